// SPDX-License-Identifier: Apache-2.0
// model.h5, the view of a step for h5py users: one dataset per tensor under its name, without data
// of its own. A tensor in one piece is an external link into its shard; one in several pieces a
// virtual dataset over them, with names relative to the step's directory and NaN where a source is
// missing. Hekla never reads through it, and `hekla ckpt repair` can make it again.
//
// What a virtual dataset cannot show is an empty dataset (no space) with the attribute `warning`:
// tensors over more than 128 files (readers run out of descriptors and show the fill value without
// an error), and packed types cut elsewhere than between whole rows of whole bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/step_index.h"

namespace hekla::checkpoint {

inline constexpr size_t kMaxViewSources = 128;

// The bytes of model.h5; the same for the same index.
Result<std::vector<std::byte>> make_view(const StepIndex& index);

}  // namespace hekla::checkpoint
