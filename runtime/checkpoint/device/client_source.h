// SPDX-License-Identifier: Apache-2.0
// Device buffers of any PJRT client as what a save writes.
//
// A source keeps the values that its buffer had when it was made, whatever is launched afterwards,
// until it is destroyed, which a save does as soon as it has read the array. Making one does not
// wait: not for the contents of the buffer, and not for a copy.
//
//   Hekla's plugins: the buffer gets an external reference. A launch that would consume it works on
//   a copy of this one tensor instead. Dense row-major buffers are fetched chunk by chunk, so no
//   host memory is needed beyond the save's own staging; types below eight bits as a whole.
//   Other plugins may refuse such a launch (XLA's do), so the copy to the host is started at once;
//   PJRT orders it before launches that come later. It costs host memory for the whole array until
//   it is written.
//
// The buffer is shared with the source, so it may be given up by its owner, but it must not be
// freed by Buffer::free meanwhile: then the save fails and names the tensor's source as deleted.
#pragma once

#include <memory>

#include "runtime/base/status.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/client/client.h"

namespace hekla::checkpoint {

// INVALID_ARGUMENT: an empty, freed or donated buffer; UNIMPLEMENTED: a token or a type newer than
// this runtime. Errors of whatever computes the contents come out of the save.
Result<std::shared_ptr<ArraySource>> client_source(std::shared_ptr<const runtime::Buffer> buffer);

// Adds a tensor that every rank holds as a whole, from a device.
Status add_buffer(State* state, std::string name, std::shared_ptr<const runtime::Buffer> buffer);

}  // namespace hekla::checkpoint
