// SPDX-License-Identifier: Apache-2.0
// Restoring a state: which stored tensors go under which names, cut and typed as somebody wants
// them, and what did not fit.
//
// Without targets everything comes back as it was saved. With targets each stored name, after
// renaming, looks for the target of its name. Only what is asked for is read, all in one plan.
//
// restore() may be called from several threads on one step. Errors: those of StepReader; and
// FAILED_PRECONDITION listing what is missing, unexpected or of another shape (strict),
// INVALID_ARGUMENT for a request that contradicts itself.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/restore/step_reader.h"

namespace hekla::checkpoint {

// One array that a target is read into.
struct TargetBox {
  Box box;
  Dims dims;  // of the array, where padding makes it larger; empty: box.size. Padding is zero.
};

struct RestoreTarget {
  std::string name;
  std::optional<DType> dtype;  // to be cast to; unset: as stored
  std::optional<Dims> shape;   // must be the stored one; unset: any
  // Empty and without `nothing_here`: the whole tensor in one array.
  std::vector<TargetBox> boxes;
  bool nothing_here = false;  // the tensor is wanted, but no box of it by this process
};

// A stored name, or all names below it, gets another: {"encoder", "backbone"} makes "encoder" to
// "backbone" and "encoder/0/w" to "backbone/0/w". An empty `to` drops that level.
struct Rename {
  std::string from;
  std::string to;
};

struct RestoreRequest {
  std::vector<RestoreTarget> targets;  // empty: everything
  // Stored names that are looked at ('*' any characters, '?' one); empty: all.
  std::vector<std::string> only;
  std::vector<Rename> renames;  // the first that fits counts
  // Whether missing, unexpected and mismatched tensors are errors; else they are reported.
  bool strict = true;
};

struct RestoredTensor {
  std::string name;  // after renaming
  int32_t stored = 0;
  // In the order of the target's boxes; one array of the whole tensor without boxes.
  std::vector<Box> boxes;
  std::vector<HostArray> arrays;
};

struct RestoreReport {
  std::vector<RestoredTensor> tensors;  // in the order of the targets, or of names in the step
  std::vector<std::string> missing;     // targets that no stored tensor is for
  std::vector<std::string> unexpected;  // stored tensors, after renaming, that no target is for
  std::vector<std::string> mismatched;  // sentences: another shape, a dtype that cannot be cast
  int64_t bytes_wanted = 0;             // stored bytes of all boxes
  int64_t bytes_read = 0;  // from files during this call (others of the same step included)
};

// `share` as in StepReader::read; not called when the request is refused.
Result<RestoreReport> restore(const StepReader& step, const RestoreRequest& request,
                              std::stop_token stop = {}, const ShareReads& share = nullptr);

// The name that `renames` give.
std::string renamed(std::string_view name, const std::vector<Rename>& renames);

}  // namespace hekla::checkpoint
