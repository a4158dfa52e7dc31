// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/reference/kernels/test_arrays.h"

namespace hekla::reference {
namespace {

// Composition of x -> m x + b: associative and not commutative, so it sees the order of elements.
void compose(int32_t m1, int32_t b1, int32_t m2, int32_t b2, int32_t& m, int32_t& b) {
  const auto wrap = [](int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); };
  m = wrap(static_cast<int64_t>(m1) * m2);
  b = wrap(static_cast<int64_t>(b1) * m2 + b2);
}

LambdaFunction<int32_t> affine() {
  return {DType::kI32, 4, DType::kI32, 2,
          [](const auto& in, auto& out) { compose(in[0], in[1], in[2], in[3], out[0], out[1]); }};
}

std::vector<HostArray> affine_init() {
  return {HostArray::scalar<int32_t>(DType::kI32, 1), HostArray::scalar<int32_t>(DType::kI32, 0)};
}

TEST(Reduce, KeepsTheOrderOfElementsForAnyDims) {
  Random random(3);
  for (int round = 0; round < 150; ++round) {
    Dims dims, dimensions, kept;
    for (int64_t d = 0, rank = pick(random, 0, 4); d < rank; ++d) {
      dims.push_back(pick(random, 0, 40) % (round % 3 == 0 ? 41 : 8));
      if (pick(random, 0, 1) != 0) {
        dimensions.push_back(d);
      } else {
        kept.push_back(d);
      }
    }
    const std::vector<HostArray> inputs = {random_i32(random, dims), random_i32(random, dims)};
    LambdaFunction<int32_t> body = affine();
    const std::vector<HostArray> results =
        reference::reduce(inputs, affine_init(), dimensions, body).value();
    Dims result_dims;
    for (int64_t d : kept) result_dims.push_back(dims[d]);
    ASSERT_EQ(results[0].dims(), result_dims);
    const size_t count = static_cast<size_t>(element_count(result_dims));
    std::vector<int32_t> m(count, 1), b(count, 0);
    for (const Dims& index : all_indices(dims)) {
      Dims to;
      for (int64_t d : kept) to.push_back(index[d]);
      const int64_t at_result = flat(result_dims, to);
      compose(m[at_result], b[at_result], at(inputs[0], index), at(inputs[1], index), m[at_result],
              b[at_result]);
    }
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(results[0].as<int32_t>()[i], m[i]);
      ASSERT_EQ(results[1].as<int32_t>()[i], b[i]);
    }
  }
}

LambdaFunction<float> float_body(BinaryBody body) {
  LambdaFunction<float> f(DType::kF32, 2, DType::kF32, 1, [](const auto&, auto&) { std::abort(); });
  f.body = body;
  return f;
}

TEST(Reduce, LongFloatSumsStayAccurate) {
  HostArray ones(DType::kF32, {1 << 22});
  std::fill_n(ones.mutable_as<float>(), ones.size(), 0.1f);
  LambdaFunction<float> body = float_body(BinaryBody::kAdd);
  const HostArray zero(DType::kF32, {});
  const float sum = *reduce({&ones, 1}, {&zero, 1}, Dims{0}, body).value()[0].as<float>();
  EXPECT_NEAR(sum / (0.1f * (1 << 22)), 1.0, 1e-6);
}

TEST(Reduce, MaximumPropagatesNanAndEmptyGivesInit) {
  HostArray values(DType::kF32, {100});
  values.mutable_as<float>()[57] = std::nanf("");
  LambdaFunction<float> body = float_body(BinaryBody::kMaximum);
  const HostArray init = HostArray::scalar<float>(DType::kF32, -HUGE_VALF);
  EXPECT_TRUE(std::isnan(*reduce({&values, 1}, {&init, 1}, Dims{0}, body).value()[0].as<float>()));
  const HostArray empty(DType::kF32, {0, 2});
  const HostArray result = reference::reduce({&empty, 1}, {&init, 1}, Dims{0}, body).value()[0];
  ASSERT_EQ(result.dims(), Dims{2});
  EXPECT_EQ(result.as<float>()[1], -HUGE_VALF);
}

TEST(ReduceWindow, AgreesWithTheSpecificationIndexByIndex) {
  Random random(4);
  int64_t compared = 0;
  for (int round = 0; round < 300; ++round) {
    Dims dims, result_dims;
    WindowConfig c;
    for (int64_t d = 0, rank = pick(random, 0, 3); d < rank; ++d) {
      dims.push_back(pick(random, 1, 7));
      c.window_dimensions.push_back(pick(random, 1, 5));
      c.window_strides.push_back(pick(random, 1, 3));
      c.base_dilations.push_back(pick(random, 1, 3));
      c.window_dilations.push_back(pick(random, 1, 2));
      c.padding.push_back({pick(random, -2, 4), pick(random, -2, 4)});
      const int64_t padded =
          (dims[d] - 1) * c.base_dilations[d] + 1 + c.padding[d][0] + c.padding[d][1];
      const int64_t extent = (c.window_dimensions[d] - 1) * c.window_dilations[d] + 1;
      result_dims.push_back(padded < extent ? 0 : (padded - extent) / c.window_strides[d] + 1);
    }
    const std::vector<HostArray> inputs = {random_i32(random, dims), random_i32(random, dims)};
    LambdaFunction<int32_t> body = affine();
    const Result<std::vector<HostArray>> results = reduce_window(inputs, affine_init(), c, body);
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    ASSERT_EQ((*results)[0].dims(), result_dims);
    for (const Dims& index : all_indices(result_dims)) {
      int32_t m = 1, b = 0;
      for (const Dims& tap : all_indices(c.window_dimensions)) {
        Dims from;
        bool is_element = true;
        for (size_t d = 0; d < dims.size(); ++d) {
          const int64_t place =
              index[d] * c.window_strides[d] + tap[d] * c.window_dilations[d] - c.padding[d][0];
          is_element = is_element && place >= 0 && place % c.base_dilations[d] == 0 &&
                       place / c.base_dilations[d] < dims[d];
          from.push_back(place / c.base_dilations[d]);
        }
        if (is_element) compose(m, b, at(inputs[0], from), at(inputs[1], from), m, b);
      }
      ASSERT_EQ(at((*results)[0], index), m) << "round " << round;
      ASSERT_EQ(at((*results)[1], index), b) << "round " << round;
      ++compared;
    }
  }
  EXPECT_GT(compared, 2000);
}

TEST(ReduceWindow, CumulativeSumsAreNotQuadratic) {
  const int64_t n = 100000;
  HostArray values(DType::kI32, {n});
  std::fill_n(values.mutable_as<int32_t>(), n, 1);
  LambdaFunction<int32_t> body = add_i32();
  const HostArray zero(DType::kI32, {});
  WindowConfig c;
  c.window_dimensions = {n};
  c.padding = {{n - 1, 0}};
  const HostArray sums = reduce_window({&values, 1}, {&zero, 1}, c, body).value()[0];
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(sums.as<int32_t>()[i], i + 1);
  EXPECT_LT(body.calls, 10000);
}

TEST(SelectAndScatter, AgreesWithTheSpecificationIndexByIndex) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    Dims dims, windows;
    WindowConfig c;
    for (int64_t d = 0, rank = pick(random, 1, 3); d < rank; ++d) {
      dims.push_back(pick(random, 1, 7));
      c.window_dimensions.push_back(pick(random, 1, 4));
      c.window_strides.push_back(pick(random, 1, 3));
      c.padding.push_back({pick(random, 0, 2), pick(random, 0, 2)});
      const int64_t padded = dims[d] + c.padding[d][0] + c.padding[d][1];
      windows.push_back(padded < c.window_dimensions[d]
                            ? 0
                            : (padded - c.window_dimensions[d]) / c.window_strides[d] + 1);
    }
    const HostArray operand = random_i32(random, dims, 0, 4);  // many ties
    const HostArray source = random_i32(random, windows);
    const HostArray init = HostArray::scalar<int32_t>(DType::kI32, 7);
    LambdaFunction<int32_t, uint8_t> select(
        DType::kI32, 2, DType::kI1, 1, [](const auto& in, auto& out) { out[0] = in[0] >= in[1]; });
    LambdaFunction<int32_t> scatter = add_i32();
    const HostArray result = select_and_scatter(operand, source, init, c, select, scatter).value();
    std::vector<int32_t> expected(static_cast<size_t>(operand.size()), 7);
    for (const Dims& index : all_indices(windows)) {
      int64_t best = -1;
      for (const Dims& tap : all_indices(c.window_dimensions)) {
        Dims from;
        bool is_inside = true;
        for (size_t d = 0; d < dims.size(); ++d) {
          from.push_back(index[d] * c.window_strides[d] + tap[d] - c.padding[d][0]);
          is_inside = is_inside && from[d] >= 0 && from[d] < dims[d];
        }
        if (is_inside && (best < 0 || at(operand, from) > operand.as<int32_t>()[best])) {
          best = flat(dims, from);
        }
      }
      if (best >= 0) expected[best] += at(source, index);
    }
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result.as<int32_t>()));
  }
}

TEST(Map, AppliesTheComputationToEveryElement) {
  Random random(6);
  const std::vector<HostArray> inputs = {random_i32(random, {70, 80}),
                                         random_i32(random, {70, 80})};
  LambdaFunction<int32_t> body(DType::kI32, 2, DType::kI32, 1,
                               [](const auto& in, auto& out) { out[0] = 3 * in[0] - in[1]; });
  const HostArray result = map(inputs, body).value();
  for (int64_t i = 0; i < result.size(); ++i) {
    ASSERT_EQ(result.as<int32_t>()[i], 3 * inputs[0].as<int32_t>()[i] - inputs[1].as<int32_t>()[i]);
  }
}

}  // namespace
}  // namespace hekla::reference
