// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/testing/observed_values.h"

#include <cstdlib>

namespace hekla::kernel::testing {

ObservedValues::ObservedValues(const TestKernel& test) : values_(test.kernel.body.size()) {
  const Function& f = test.kernel.body;
  Buffers memory = test.contents;
  const Status status = interpret_observed(
      test.kernel, spans(memory),
      [&](std::span<const int64_t> point, std::span<const int64_t> iterations, Value v,
          uint64_t bits) {
        if (is_float(f.type(v))) return;
        Position position(point.begin(), point.end());
        position.insert(position.end(), iterations.begin(), iterations.end());
        const int64_t number =
            f.type(v) == ScalarType::kI64 ? static_cast<int64_t>(bits) : static_cast<int32_t>(bits);
        values_[static_cast<size_t>(v)].emplace(std::move(position), number);
      });
  if (!status.ok()) std::abort();
}

void ObservedValues::for_pairs(Value v, size_t which, int64_t step,
                               const std::function<void(int64_t, int64_t)>& f) const {
  const auto& all = of(v);
  for (const auto& [position, value] : all) {
    if (which >= position.size()) continue;
    Position other = position;
    other[which] += step;
    const auto it = all.find(other);
    if (it != all.end()) f(value, it->second);
  }
}

}  // namespace hekla::kernel::testing
