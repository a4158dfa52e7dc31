// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/contraction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/test_arrays.h"

namespace hekla::reference {
namespace {

HostArray converted(const HostArray& array, DType dtype) {
  return convert_elements(array, dtype).value();
}

TEST(DotGeneral, AgreesWithTheSpecificationIndexByIndex) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t batch = pick(random, 0, 2), contract = pick(random, 0, 2);
    Dims sizes_b, sizes_c, lhs_free, rhs_free;
    for (int64_t i = 0; i < batch; ++i) sizes_b.push_back(pick(random, 1, 3));
    for (int64_t i = 0; i < contract; ++i) sizes_c.push_back(pick(random, 0, 9));
    for (int64_t i = pick(random, 0, 2); i > 0; --i) lhs_free.push_back(pick(random, 0, 9));
    for (int64_t i = pick(random, 0, 2); i > 0; --i) rhs_free.push_back(pick(random, 1, 19));
    DotGeneralConfig config;
    const auto make = [&](const Dims& free, Dims& batching, Dims& contracting, Dims& free_at) {
      const int64_t rank = batch + contract + static_cast<int64_t>(free.size());
      const Dims order = random_permutation(random, rank);
      Dims dims(static_cast<size_t>(rank));
      size_t k = 0;
      for (int64_t size : sizes_b) batching.push_back(order[k]), dims[order[k++]] = size;
      for (int64_t size : sizes_c) contracting.push_back(order[k]), dims[order[k++]] = size;
      Dims rest(order.begin() + static_cast<ptrdiff_t>(k), order.end());
      std::sort(rest.begin(), rest.end());
      for (size_t i = 0; i < rest.size(); ++i) dims[rest[i]] = free[i];
      free_at = rest;
      return random_i32(random, dims);
    };
    Dims lhs_free_at, rhs_free_at;
    const HostArray lhs = make(lhs_free, config.lhs_batching_dimensions,
                               config.lhs_contracting_dimensions, lhs_free_at);
    const HostArray rhs = make(rhs_free, config.rhs_batching_dimensions,
                               config.rhs_contracting_dimensions, rhs_free_at);
    const HostArray result = dot_general(lhs, rhs, config, DType::kI32).value();
    const HostArray floats = converted(
        dot_general(converted(lhs, DType::kF32), converted(rhs, DType::kF32), config, DType::kF32)
            .value(),
        DType::kI32);
    EXPECT_TRUE(floats.identical(result));
    for (const Dims& index : all_indices(result.dims())) {
      int32_t sum = 0;
      for (const Dims& c : all_indices(sizes_c)) {
        Dims l(lhs.dims().size()), r(rhs.dims().size());
        size_t k = 0;
        for (size_t i = 0; i < sizes_b.size(); ++i, ++k) {
          l[config.lhs_batching_dimensions[i]] = index[k];
          r[config.rhs_batching_dimensions[i]] = index[k];
        }
        for (int64_t d : lhs_free_at) l[d] = index[k++];
        for (int64_t d : rhs_free_at) r[d] = index[k++];
        for (size_t i = 0; i < c.size(); ++i) {
          l[config.lhs_contracting_dimensions[i]] = c[i];
          r[config.rhs_contracting_dimensions[i]] = c[i];
        }
        sum += at(lhs, l) * at(rhs, r);
      }
      ASSERT_EQ(at(result, index), sum) << "round " << round;
    }
  }
}

TEST(DotGeneral, SumsInTheTypeThatTheResultAsksFor) {
  const DotGeneralConfig inner{{}, {}, {0}, {0}, {}};
  const HostArray bytes =
      HostArray::from<int8_t>(DType::kI8, {3}, std::vector<int8_t>{-128, 127, 100});
  EXPECT_EQ(*dot_general(bytes, bytes, inner, DType::kI32).value().as<int32_t>(), 42513);
  EXPECT_EQ(*dot_general(bytes, bytes, inner, DType::kI8).value().as<int8_t>(),
            static_cast<int8_t>(42513));
  const HostArray unsigned_bytes = bytes.with_shape(DType::kUI8, {3});
  EXPECT_EQ(
      *dot_general(unsigned_bytes, unsigned_bytes, inner, DType::kUI32).value().as<uint32_t>(),
      128u * 128 + 127 * 127 + 100 * 100);
  // 4096 ones: a sum in bf16 would stop at 256.
  const HostArray ones(
      broadcast_in_dim(HostArray::scalar<uint16_t>(DType::kBF16, 0x3f80), {}, {4096}).value());
  EXPECT_EQ(*dot_general(ones, ones, inner, DType::kF32).value().as<float>(), 4096.0f);
  EXPECT_EQ(*dot_general(ones, ones, inner, DType::kBF16).value().as<uint16_t>(), 0x4580);
  const HostArray flags = HostArray::from<uint8_t>(DType::kI1, {2}, std::vector<uint8_t>{1, 1});
  EXPECT_EQ(*dot_general(flags, flags, inner, DType::kI1).value().as<uint8_t>(), 1);
  using C = std::complex<float>;
  const HostArray c = HostArray::from<C>(DType::kC64, {2}, std::vector<C>{{1, 2}, {3, -1}});
  EXPECT_EQ(*dot_general(c, c, inner, DType::kC64).value().as<C>(), C(5, -2));
  const HostArray i64 =
      HostArray::from<int64_t>(DType::kI64, {1}, std::vector<int64_t>{-4000000000});
  EXPECT_EQ(*dot_general(i64, i64, inner, DType::kI64).value().as<int64_t>(),
            static_cast<int64_t>(16000000000000000000ull));
}

// 1 + 2^-12 is 1 in bf16 and tf32; three products of bf16 pieces keep it.
TEST(DotGeneral, AlgorithmsRoundWhereOneProductMakesOne) {
  const float x = 1.0F + 0x1p-12F;
  const HostArray one = HostArray::from<float>(DType::kF32, {1}, std::vector<float>{x});
  const auto square = [&](DType type, int64_t products) {
    DotGeneralConfig config{{}, {}, {0}, {0}, {}};
    config.algorithm = DotAlgorithm{type, type, DType::kF32, 1, 1, products, false};
    return *dot_general(one, one, config, DType::kF32).value().as<float>();
  };
  EXPECT_EQ(square(DType::kF32, 1), x * x);
  EXPECT_EQ(square(DType::kBF16, 1), 1.0F);
  EXPECT_EQ(square(DType::kTF32, 1), 1.0F);
  for (const int64_t products : {3, 6, 9}) EXPECT_EQ(square(DType::kBF16, products), x * x);
  EXPECT_EQ(square(DType::kTF32, 3), x * x);
}

TEST(DotGeneral, RefusesSizesThatDiffer) {
  const HostArray a(DType::kF32, {2, 3});
  EXPECT_EQ(dot_general(a, a, {{}, {}, {1}, {0}, {}}, DType::kF32).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(dot_general(a, a, {{}, {}, {7}, {0}, {}}, DType::kF32).status().code(),
            StatusCode::kInvalidArgument);
}

// The specification's sum, one result element at a time; all arrays are i32.
int32_t naive_convolution(const HostArray& lhs, const HostArray& rhs, const ConvolutionConfig& c,
                          int64_t batch, int64_t feature, const Dims& position) {
  const size_t spatial = position.size();
  const int64_t inputs = rhs.dims()[c.kernel_input_feature_dimension];
  const int64_t outputs = rhs.dims()[c.kernel_output_feature_dimension];
  const int64_t batch_size = lhs.dims()[c.input_batch_dimension] / c.batch_group_count;
  const int64_t group = feature / (outputs / (c.feature_group_count * c.batch_group_count));
  Dims window;
  for (int64_t d : c.kernel_spatial_dimensions) window.push_back(rhs.dims()[d]);
  int32_t sum = 0;
  for (const Dims& tap : all_indices(window)) {
    Dims l(lhs.dims().size()), r(rhs.dims().size());
    bool is_inside = true;
    for (size_t i = 0; i < spatial; ++i) {
      const int64_t place =
          position[i] * c.window_strides[i] + tap[i] * c.rhs_dilation[i] - c.padding[i][0];
      is_inside = is_inside && place >= 0 && place % c.lhs_dilation[i] == 0 &&
                  place / c.lhs_dilation[i] < lhs.dims()[c.input_spatial_dimensions[i]];
      l[c.input_spatial_dimensions[i]] = place / c.lhs_dilation[i];
      r[c.kernel_spatial_dimensions[i]] = c.window_reversal[i] ? window[i] - 1 - tap[i] : tap[i];
    }
    if (!is_inside) continue;
    for (int64_t k = 0; k < inputs; ++k) {
      l[c.input_batch_dimension] = batch + (c.batch_group_count > 1 ? group * batch_size : 0);
      l[c.input_feature_dimension] = k + (c.feature_group_count > 1 ? group * inputs : 0);
      r[c.kernel_input_feature_dimension] = k;
      r[c.kernel_output_feature_dimension] = feature;
      sum += at(lhs, l) * at(rhs, r);
    }
  }
  return sum;
}

TEST(Convolution, AgreesWithTheSpecificationIndexByIndex) {
  Random random(2);
  int64_t compared = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t spatial = pick(random, 0, 3);
    const size_t rank = static_cast<size_t>(spatial) + 2;
    ConvolutionConfig c;
    const int64_t kind = pick(random, 0, 2);
    if (kind == 1) c.feature_group_count = pick(random, 1, 3);
    if (kind == 2) c.batch_group_count = pick(random, 1, 3);
    const auto place = [&](int64_t& first, int64_t& second, Dims& rest) {
      const Dims order = random_permutation(random, static_cast<int64_t>(rank));
      first = order[0];
      second = order[1];
      rest.assign(order.begin() + 2, order.end());
    };
    place(c.input_batch_dimension, c.input_feature_dimension, c.input_spatial_dimensions);
    place(c.kernel_output_feature_dimension, c.kernel_input_feature_dimension,
          c.kernel_spatial_dimensions);
    place(c.output_batch_dimension, c.output_feature_dimension, c.output_spatial_dimensions);
    Dims lhs_dims(rank), rhs_dims(rank);
    const int64_t inputs = pick(random, 1, 3);
    const int64_t outputs = pick(random, 1, 9) * c.feature_group_count * c.batch_group_count;
    const int64_t batch = pick(random, 1, 2);
    lhs_dims[c.input_batch_dimension] = batch * c.batch_group_count;
    lhs_dims[c.input_feature_dimension] = inputs * c.feature_group_count;
    rhs_dims[c.kernel_input_feature_dimension] = inputs;
    rhs_dims[c.kernel_output_feature_dimension] = outputs;
    Dims output;
    for (int64_t i = 0; i < spatial; ++i) {
      const int64_t size = pick(random, 1, 6), kernel = pick(random, 1, 3);
      lhs_dims[c.input_spatial_dimensions[i]] = size;
      rhs_dims[c.kernel_spatial_dimensions[i]] = kernel;
      c.window_strides.push_back(pick(random, 1, 3));
      c.lhs_dilation.push_back(pick(random, 1, 3));
      c.rhs_dilation.push_back(pick(random, 1, 2));
      c.padding.push_back({pick(random, -2, 3), pick(random, -2, 3)});
      c.window_reversal.push_back(pick(random, 0, 1) != 0);
      const int64_t padded = (size - 1) * c.lhs_dilation[i] + 1 + c.padding[i][0] + c.padding[i][1];
      const int64_t window = (kernel - 1) * c.rhs_dilation[i] + 1;
      output.push_back(padded < window ? 0 : (padded - window) / c.window_strides[i] + 1);
    }
    const HostArray lhs = random_i32(random, lhs_dims);
    const HostArray rhs = random_i32(random, rhs_dims);
    const HostArray result = convolution(lhs, rhs, c, DType::kI32).value();
    EXPECT_TRUE(converted(convolution(converted(lhs, DType::kC64), converted(rhs, DType::kC64), c,
                                      DType::kC64)
                              .value(),
                          DType::kI32)
                    .identical(result));
    EXPECT_TRUE(converted(convolution(converted(lhs, DType::kF64), converted(rhs, DType::kF64), c,
                                      DType::kF64)
                              .value(),
                          DType::kI32)
                    .identical(result));
    Dims expected(rank);
    expected[c.output_batch_dimension] = batch;
    expected[c.output_feature_dimension] = outputs;
    for (int64_t i = 0; i < spatial; ++i) expected[c.output_spatial_dimensions[i]] = output[i];
    ASSERT_EQ(result.dims(), expected);
    for (const Dims& index : all_indices(expected)) {
      Dims position;
      for (int64_t d : c.output_spatial_dimensions) position.push_back(index[d]);
      ASSERT_EQ(at(result, index), naive_convolution(lhs, rhs, c, index[c.output_batch_dimension],
                                                     index[c.output_feature_dimension], position))
          << "round " << round;
      ++compared;
    }
  }
  EXPECT_GT(compared, 5000);
}

}  // namespace
}  // namespace hekla::reference
