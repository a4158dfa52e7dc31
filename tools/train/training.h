// SPDX-License-Identifier: Apache-2.0
// A training job as stored in a case folder: the compiled step and what it is fed with.
//
// The step's first inputs and results are the state, then come the examples of one batch; its last
// result is the loss. The form of training.json is described in tests/programs/README.md. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "tools/run/case_file.h"

namespace hekla::tools {

struct Training {
  Case step;
  std::vector<std::string> names;      // of the state's tensors
  std::vector<HostArray> first_state;  // before step 0
  std::vector<HostArray> examples;     // ui8, first dimension: the example
  std::vector<double> scales;          // what each of `examples` is multiplied with
  int64_t epochs = 0;
  uint64_t seed = 0;
  double accuracy = 0;  // that a full training reaches

  // Takes the first part of the state (its weights) and test examples; gives classes, i32.
  Case classifier;
  size_t weights = 0;           // how many of the state
  size_t classes = 0;           // which result
  std::vector<int64_t> labels;  // of the test examples

  int64_t batch = 0;
  int64_t steps_per_epoch = 0;  // whole batches; the rest of a shuffled epoch is left out

  // The inputs of step `step` behind the state. A function of the number alone.
  Result<std::vector<HostArray>> batch_of(int64_t step) const;
};

// INVALID_ARGUMENT, NOT_FOUND: what is missing or does not fit, with the file.
Result<Training> read_training(const std::string& folder);

}  // namespace hekla::tools
