// SPDX-License-Identifier: Apache-2.0
// What the kernels' tests share: random arrays, regions made of lambdas, and plain index arithmetic
// that is independent of the kernels' loops.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "backends/reference/scalar_function.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

using Random = std::mt19937;

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

inline HostArray random_i32(Random& random, const Dims& dims, int64_t low = -9, int64_t high = 9) {
  HostArray array(DType::kI32, dims);
  for (int64_t i = 0; i < array.size(); ++i) {
    array.mutable_as<int32_t>()[i] = static_cast<int32_t>(pick(random, low, high));
  }
  return array;
}

inline Dims random_permutation(Random& random, int64_t rank) {
  Dims order;
  for (int64_t d = 0; d < rank; ++d) order.push_back(d);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

inline int64_t flat(const Dims& dims, const Dims& index) {
  int64_t at = 0;
  for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + index[d];
  return at;
}

inline int32_t at(const HostArray& array, const Dims& index) {
  return array.as<int32_t>()[flat(array.dims(), index)];
}

// Every index of dims, in row-major order.
inline std::vector<Dims> all_indices(const Dims& dims) {
  std::vector<Dims> result;
  const int64_t count = element_count(dims);
  for (int64_t i = 0; i < count; ++i) {
    Dims index(dims.size());
    int64_t rest = i;
    for (size_t d = dims.size(); d-- > 0;) {
      index[d] = rest % dims[d];
      rest /= dims[d];
    }
    result.push_back(index);
  }
  return result;
}

// A region of n inputs of type T; `f` gets the inputs and fills the outputs.
template <typename T, typename Out = T>
class LambdaFunction : public ScalarFunction {
 public:
  using F = std::function<void(const std::vector<T>&, std::vector<Out>&)>;
  LambdaFunction(DType in, size_t inputs, DType out, size_t outputs, F f)
      : in_(inputs, in), out_(outputs, out), f_(std::move(f)) {}

  const std::vector<DType>& input_dtypes() const override { return in_; }
  const std::vector<DType>& output_dtypes() const override { return out_; }
  std::optional<BinaryBody> binary_body() const override { return body; }
  Status apply(int64_t count, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs) override {
    ++calls;
    std::vector<T> in(in_.size());
    std::vector<Out> out(out_.size());
    for (int64_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < in.size(); ++k) in[k] = reinterpret_cast<const T*>(inputs[k])[i];
      f_(in, out);
      for (size_t k = 0; k < out.size(); ++k) reinterpret_cast<Out*>(outputs[k])[i] = out[k];
    }
    return ok_status();
  }

  std::optional<BinaryBody> body;
  int64_t calls = 0;

 private:
  std::vector<DType> in_;
  std::vector<DType> out_;
  F f_;
};

inline LambdaFunction<int32_t> add_i32() {
  return {DType::kI32, 2, DType::kI32, 1,
          [](const auto& in, auto& out) { out[0] = in[0] + in[1]; }};
}

}  // namespace hekla::reference
