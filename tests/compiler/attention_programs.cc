// SPDX-License-Identifier: Apache-2.0
#include "tests/compiler/attention_programs.h"

#include <cstring>
#include <random>

namespace hekla::testing {

std::string replaced(std::string text,
                     const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [name, value] : names) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
      text.replace(at, name.size(), value);
    }
  }
  return text;
}

const char* const kScaled = R"(
  %c = stablehlo.constant dense<0.25> : tensor<$Hx$Tx$Sxf32>
  %s = stablehlo.multiply %x, %c : tensor<$Hx$Tx$Sxf32>
)";

const char* const kCausal = R"(
  %i = stablehlo.iota dim = 0 : tensor<$Tx$Sxi32>
  %j = stablehlo.iota dim = 1 : tensor<$Tx$Sxi32>
  %ge = stablehlo.compare GE, %i, %j, SIGNED : (tensor<$Tx$Sxi32>, tensor<$Tx$Sxi32>) -> tensor<$Tx$Sxi1>
  %m = stablehlo.broadcast_in_dim %ge, dims = [1, 2] : (tensor<$Tx$Sxi1>) -> tensor<$Hx$Tx$Sxi1>
  %inf = stablehlo.constant dense<0xFF800000> : tensor<$Hx$Tx$Sxf32>
  %s = stablehlo.select %m, %x, %inf : tensor<$Hx$Tx$Sxi1>, tensor<$Hx$Tx$Sxf32>
)";

const char* const kSoftmax = R"(
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %max = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<$Hx$Tx$Sxf32>, tensor<f32>) -> tensor<$Hx$Txf32>
  %lows = stablehlo.broadcast_in_dim %low, dims = [] : (tensor<f32>) -> tensor<$Hx$Txf32>
  %max1 = stablehlo.maximum %lows, %max : tensor<$Hx$Txf32>
  %max2 = stablehlo.broadcast_in_dim %max1, dims = [0, 1] : (tensor<$Hx$Txf32>) -> tensor<$Hx$Tx1xf32>
  %maxes = stablehlo.broadcast_in_dim %max2, dims = [0, 1, 2] : (tensor<$Hx$Tx1xf32>) -> tensor<$Hx$Tx$Sxf32>
  %shifted = stablehlo.subtract %s, %maxes : tensor<$Hx$Tx$Sxf32>
  %e = stablehlo.exponential %shifted : tensor<$Hx$Tx$Sxf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<$Hx$Tx$Sxf32>, tensor<f32>) -> tensor<$Hx$Txf32>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : (tensor<$Hx$Txf32>) -> tensor<$Hx$Tx$Sxf32>
  %w = stablehlo.divide %e, %sums : tensor<$Hx$Tx$Sxf32>
)";

std::vector<float> floats(std::span<const std::byte> bytes, DType dtype) {
  std::vector<float> values;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t at = 0; at < bytes.size(); at += width) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, width);
    values.push_back(static_cast<float>(float_from_bits(dtype, bits)));
  }
  return values;
}

void set_float(HostArray& array, int64_t i, double value) {
  const uint64_t bits = float_to_bits(array.dtype(), value);
  const int64_t width = dtype_bytes(array.dtype());
  std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
}

std::vector<HostArray> drawn(const ir::Module& module) {
  std::mt19937_64 random(7);
  std::vector<HostArray> inputs;
  for (const ir::Type& type : module.entry()->type.elements()) {
    HostArray array(type.dtype(), type.dims());
    const int64_t width = dtype_bytes(type.dtype());
    for (int64_t i = 0; i < array.size(); ++i) {
      const uint64_t value = random();
      if (is_float(type.dtype())) {
        set_float(array, i, static_cast<double>(value % 256) / 64 - 2);
      } else {
        const uint64_t bits = value % 2;
        std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
      }
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

}  // namespace hekla::testing
