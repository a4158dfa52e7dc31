// SPDX-License-Identifier: Apache-2.0
// `hekla ckpt diff`: what differs between two steps, in names, shapes, dtypes and values.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {

struct TensorDifference {
  std::string tensor;
  std::string what;       // "only in A", "shape f32[2] against f32[3]", "values", ...
  int64_t different = 0;  // elements whose bits differ
  int64_t elements = 0;
  double max_absolute = 0;  // over elements that are finite on both sides
  double max_ulp = 0;       // floats: distance in representable numbers of the dtype
  int64_t first = -1;       // row-major number of the first element that differs
};

struct DiffReport {
  int64_t compared = 0;  // tensors
  std::vector<TensorDifference> differences;
};

// `tensors`: those whose names contain a match. Tensors that are cut alike with equal digests are
// not read. Specs are compared too; a difference in them is one of "spec".
Result<DiffReport> diff_steps(Io& io, const checkpoint::StepReader& a,
                              const checkpoint::StepReader& b, const std::regex& tensors);

}  // namespace hekla::tools
