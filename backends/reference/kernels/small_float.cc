// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "backends/reference/kernels/dispatch.h"

namespace hekla::reference {
namespace {

using Table = std::array<float, 256>;

std::array<Table, kDTypeCount> make_tables() {
  std::array<Table, kDTypeCount> tables{};
  for (int d = static_cast<int>(DType::kF4E2M1FN); d <= static_cast<int>(DType::kF8E8M0FNU); ++d) {
    for (int bits = 0; bits < 256; ++bits) {
      const uint64_t mask = (uint64_t{1} << dtype_bits(static_cast<DType>(d))) - 1;
      tables[d][bits] = static_cast<float>(float_from_bits(static_cast<DType>(d), bits & mask));
    }
  }
  return tables;
}

}  // namespace

const float* small_float_table(DType dtype) {
  static const std::array<Table, kDTypeCount> tables = make_tables();
  return tables[static_cast<int>(dtype)].data();
}

}  // namespace hekla::reference
