// SPDX-License-Identifier: Apache-2.0
// The safetensors file format: eight bytes with the length of a JSON header, the header, the data.
//
// Read as its specification says and strictly: header at most 100 MB, data without hole or overlap,
// nothing behind it. Pure functions over the header; the data are the caller's. Bad input is
// DATA_LOSS that says what and of which tensor.
// Source: https://github.com/huggingface/safetensors, README.md, "Format".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"

namespace hekla::tools {

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

struct SafeTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Dims shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// "F32", "BF16", "F8_E4M3"; empty for types that the format does not have.
std::string_view safetensors_dtype(DType dtype);

// `json`: the header; `data_bytes`: what follows it in the file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes);
// Length and header, padded with spaces so that the data begin at a multiple of 8.
// INVALID_ARGUMENT: the header would be above the limit, a dtype that the format does not have, or
// a tensor called __metadata__.
Result<std::string> safetensors_header(const SafetensorsHeader& header);

}  // namespace hekla::tools
