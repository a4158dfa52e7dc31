// SPDX-License-Identifier: Apache-2.0
// Case folders: a program with its inputs and the results that it must give (case.json).
//
// The form is described in tests/programs/README.md. Reading makes the inputs and loads the files;
// a broken case gives INVALID_ARGUMENT or NOT_FOUND with the file's name and the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "tools/run/compare.h"

namespace hekla::tools {

struct ExpectedResult {
  Tolerance tolerance;
  // Either the whole result, or samples and the sum.
  bool is_sampled = false;
  HostArray array;
  DType dtype = DType::kInvalid;
  Dims dims;
  std::vector<int64_t> indices;
  std::vector<double> values;
  double sum = 0;
  double abs_sum = 0;
  double sum_rtol = 0;
};
Comparison compare(const HostArray& got, const ExpectedResult& want);

struct Case {
  std::string name;
  std::string description;
  std::string program;  // the bytes
  std::vector<HostArray> inputs;
  std::vector<ExpectedResult> outputs;
};

Result<Case> read_case(const std::string& folder);
// The folders below `folder` that hold a case.json, sorted by name; `folder` itself if it does.
// NOT_FOUND when there is none.
Result<std::vector<std::string>> find_cases(const std::string& folder);

// The arrays that a JSON file of the folder lists under a key, in the form of a case's inputs.
Result<std::vector<HostArray>> read_arrays(const std::string& folder, const std::string& file,
                                           const char* key);

// A whole file. NOT_FOUND with the reason.
Result<std::string> read_file(const std::string& path);

}  // namespace hekla::tools
