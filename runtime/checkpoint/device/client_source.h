// SPDX-License-Identifier: Apache-2.0
// Device buffers of any PJRT client as what a save writes.
//
// A source keeps the values that its buffer had when it was made, whatever is launched afterwards,
// until it is destroyed, which a save does as soon as it has read the array.
//
//   Hekla's plugins: the buffer gets an external reference. A launch that would consume it works on
//   a copy of this one tensor instead. Making a source waits neither for the contents nor for a
//   copy. Dense row-major buffers are fetched chunk by chunk, so no host memory is needed beyond
//   the save's own staging; types below eight bits as a whole.
//   Other plugins: the array is copied to the host at once, and that is waited for. They
//   need not copy what is referenced, and XLA's CPU plugin (of version 0.106) was seen to crash
//   when a buffer is consumed whose copy to the host has only been started.
//
// The buffer is shared with the source, so it may be given up by its owner, but it must not be
// freed by Buffer::free meanwhile: then the save fails.
#pragma once

#include <memory>

#include "runtime/base/status.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/client/client.h"

namespace hekla::checkpoint {

// INVALID_ARGUMENT: an empty, freed or donated buffer; UNIMPLEMENTED: a token or a type newer than
// this runtime. Errors of whatever computes the contents come out of read(), on other plugins than
// Hekla's out of this.
Result<std::shared_ptr<ArraySource>> client_source(std::shared_ptr<const runtime::Buffer> buffer);

// Adds a tensor that every rank holds as a whole, from a device.
Status add_buffer(State* state, std::string name, std::shared_ptr<const runtime::Buffer> buffer);

}  // namespace hekla::checkpoint
