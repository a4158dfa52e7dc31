// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/movement.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/dispatch.h"
#include "backends/reference/kernels/test_arrays.h"

namespace hekla::reference {
namespace {

Dims random_dims(Random& random, int64_t low, int64_t high) {
  Dims dims;
  for (int64_t rank = pick(random, 0, 4); rank > 0; --rank) dims.push_back(pick(random, low, high));
  return dims;
}

TEST(Pad, PlacesElementsAndCropsForAnyPadding) {
  Random random(11);
  const HostArray fill = HostArray::scalar<int32_t>(DType::kI32, 77);
  for (int round = 0; round < 300; ++round) {
    const HostArray operand = random_i32(random, random_dims(random, 0, 5));
    PadConfig c;
    Dims expected_dims;
    bool is_valid = true;
    for (int64_t size : operand.dims()) {
      c.edge_padding_low.push_back(pick(random, -3, 3));
      c.edge_padding_high.push_back(pick(random, -3, 3));
      c.interior_padding.push_back(pick(random, 0, 2));
      expected_dims.push_back(size + std::max<int64_t>(size - 1, 0) * c.interior_padding.back() +
                              c.edge_padding_low.back() + c.edge_padding_high.back());
      is_valid = is_valid && expected_dims.back() >= 0;
    }
    const Result<HostArray> result = pad(operand, fill, c);
    ASSERT_EQ(result.ok(), is_valid);
    if (!is_valid) continue;
    ASSERT_EQ(result->dims(), expected_dims);
    for (const Dims& index : all_indices(expected_dims)) {
      Dims from;
      bool is_element = true;
      for (size_t d = 0; d < index.size(); ++d) {
        const int64_t place = index[d] - c.edge_padding_low[d];
        const int64_t step = c.interior_padding[d] + 1;
        is_element =
            is_element && place >= 0 && place % step == 0 && place / step < operand.dims()[d];
        from.push_back(place / step);
      }
      ASSERT_EQ(at(*result, index), is_element ? at(operand, from) : 77);
    }
  }
}

TEST(Movement, SliceReverseTransposeAndBroadcastAgreeIndexByIndex) {
  Random random(12);
  for (int round = 0; round < 200; ++round) {
    const HostArray operand = random_i32(random, random_dims(random, 1, round % 5 == 0 ? 40 : 6));
    if (operand.size() > 20000) continue;
    const int64_t rank = operand.rank();
    SliceConfig c;
    Dims reversed;
    for (int64_t d = 0; d < rank; ++d) {
      c.start_indices.push_back(pick(random, 0, operand.dims()[d]));
      c.limit_indices.push_back(pick(random, c.start_indices[d], operand.dims()[d]));
      c.strides.push_back(pick(random, 1, 3));
      if (pick(random, 0, 1) != 0) reversed.push_back(d);
    }
    const HostArray sliced = slice(operand, c).value();
    for (const Dims& index : all_indices(sliced.dims())) {
      Dims from = index;
      for (int64_t d = 0; d < rank; ++d) from[d] = c.start_indices[d] + index[d] * c.strides[d];
      ASSERT_EQ(at(sliced, index), at(operand, from));
    }
    const HostArray backwards = reference::reverse(operand, reversed).value();
    const Dims order = random_permutation(random, rank);
    const HostArray turned = transpose(operand, order).value();
    for (const Dims& index : all_indices(operand.dims())) {
      Dims mirrored = index, to(index.size());
      for (int64_t d : reversed) mirrored[d] = operand.dims()[d] - 1 - index[d];
      for (int64_t d = 0; d < rank; ++d) to[d] = index[order[d]];
      ASSERT_EQ(at(backwards, mirrored), at(operand, index));
      ASSERT_EQ(at(turned, to), at(operand, index));
    }
    Dims wide = operand.dims();
    wide.insert(wide.begin(), 2);
    Dims places = random_permutation(random, rank);
    for (int64_t d = 0; d < rank; ++d) wide[places[d] + 1] = operand.dims()[d];
    for (int64_t& place : places) ++place;
    const HostArray broad = broadcast_in_dim(operand, places, wide).value();
    for (const Dims& index : all_indices(wide)) {
      Dims from;
      for (int64_t place : places) from.push_back(index[place]);
      ASSERT_EQ(at(broad, index), at(operand, from));
    }
  }
}

TEST(DynamicSlices, ClampStartsOfAnyIntegerDtype) {
  HostArray operand(DType::kI32, {10});
  for (int i = 0; i < 10; ++i) operand.mutable_as<int32_t>()[i] = i;
  const HostArray huge = HostArray::scalar<uint64_t>(DType::kUI64, ~uint64_t{0});
  const HostArray negative = HostArray::scalar<int8_t>(DType::kI8, -5);
  EXPECT_EQ(dynamic_slice(operand, {&huge, 1}, Dims{3}).value().as<int32_t>()[0], 7);
  EXPECT_EQ(dynamic_slice(operand, {&negative, 1}, Dims{3}).value().as<int32_t>()[0], 0);
  const HostArray update = HostArray::from<int32_t>(DType::kI32, {2}, std::vector<int32_t>{50, 60});
  const HostArray updated = dynamic_update_slice(operand, update, {&huge, 1}).value();
  EXPECT_EQ(updated.as<int32_t>()[8], 50);
  EXPECT_EQ(updated.as<int32_t>()[9], 60);
  EXPECT_EQ(operand.as<int32_t>()[9], 9);
}

TEST(Movement, IotaAndConcatenate) {
  const HostArray narrow = iota(DType::kI8, {300}, 0).value();
  EXPECT_EQ(narrow.as<int8_t>()[299], 43);
  const HostArray rounded = iota(DType::kBF16, {1000}, 0).value();
  EXPECT_EQ(BFloat16Codec{}.load(rounded.as<uint16_t>()[259]), 260.0f);  // a tie, to even
  EXPECT_EQ(iota(DType::kI32, {2, 3}, 1).value().as<int32_t>()[5], 2);
  const HostArray a = iota(DType::kI32, {2, 2}, 1).value();
  const std::vector<HostArray> inputs = {a, HostArray(DType::kI32, {2, 0}), a};
  const HostArray joined = concatenate(inputs, 1).value();
  EXPECT_EQ(joined.dims(), (Dims{2, 4}));
  EXPECT_EQ(joined.as<int32_t>()[7], 1);
}

TEST(Codecs, AgreeWithTheExactConversions) {
  Random random(13);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    ASSERT_EQ(BFloat16Codec{}.store(value), float_to_bits(DType::kBF16, value)) << value;
    ASSERT_EQ(Float16Codec{}.store(value), float_to_bits(DType::kF16, value)) << value;
    if (value == 0 || !std::isfinite(value)) continue;
    const float near_f16 =
        std::ldexp(value, static_cast<int>(pick(random, -24, 17)) - std::ilogb(value));
    ASSERT_EQ(Float16Codec{}.store(near_f16), float_to_bits(DType::kF16, near_f16)) << near_f16;
  }
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Float16Codec{}.load(static_cast<uint16_t>(bits));
    const double expected = float_from_bits(DType::kF16, bits);
    ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << bits;
  }
}

TEST(ConvertElements, SaturatesWrapsAndRoundsOnce) {
  const auto convert_one = [](DType from, auto value, DType to) {
    return convert_elements(HostArray::scalar(from, value), to).value();
  };
  EXPECT_EQ(*convert_one(DType::kF32, 1e20f, DType::kI32).as<int32_t>(), 2147483647);
  EXPECT_EQ(*convert_one(DType::kF32, -1e20f, DType::kI64).as<int64_t>(),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*convert_one(DType::kF32, std::nanf(""), DType::kUI8).as<uint8_t>(), 0);
  EXPECT_EQ(*convert_one(DType::kF32, -3.0f, DType::kUI8).as<uint8_t>(), 0);
  EXPECT_EQ(*convert_one(DType::kF32, 9.9f, DType::kI4).as<int8_t>(), 7);
  EXPECT_EQ(*convert_one(DType::kI32, 300, DType::kUI8).as<uint8_t>(), 44);
  EXPECT_EQ(*convert_one(DType::kI32, 9, DType::kI4).as<int8_t>(), -7);
  EXPECT_EQ(*convert_one(DType::kF32, 0.5f, DType::kI1).as<uint8_t>(), 1);
  // Just above the middle between two bf16 values: rounding to f32 first would hit the middle.
  const double above_tie = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(*convert_one(DType::kF64, above_tie, DType::kBF16).as<uint16_t>(), 0x3f81);
  const int64_t large = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  EXPECT_EQ(*convert_one(DType::kI64, large, DType::kBF16).as<uint16_t>(), 0x5e81);
  EXPECT_EQ(*convert_one(DType::kUI64, ~uint64_t{0}, DType::kF32).as<float>(), 0x1p64f);
}

}  // namespace
}  // namespace hekla::reference
