// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host_array.h"

#include <gtest/gtest.h>

#include <limits>

namespace hekla {
namespace {

TEST(HostArray, LargeArraysBeginWithAPage) {
  for (const int64_t elements : {1 << 14, 1 << 18}) {
    const HostArray array(DType::kF32, {elements});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 4096, 0u);
  }
}

TEST(HostArray, WritingDoesNotTouchCopies) {
  const float values[] = {1, 2, 3, 4};
  HostArray a = HostArray::from<float>(DType::kF32, {2, 2}, values);
  HostArray b = a;
  EXPECT_EQ(a.data(), b.data());
  b.mutable_as<float>()[0] = 9;
  EXPECT_EQ(a.as<float>()[0], 1);
  EXPECT_EQ(b.as<float>()[0], 9);
  EXPECT_FALSE(a.identical(b));
}

TEST(HostArray, WrappedBytesAreNeverWritten) {
  int32_t foreign = 5;
  HostArray a = HostArray::wrap(DType::kI32, {}, nullptr, &foreign);
  EXPECT_EQ(a.as<int32_t>(), &foreign);
  a.mutable_as<int32_t>()[0] = 7;
  EXPECT_EQ(foreign, 5);
}

TEST(HostArray, RefusesShapesThatCannotExist) {
  constexpr int64_t kBig = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(HostArray::allocate(DType::kF32, {kBig, 2}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(HostArray::allocate(DType::kF32, {-1}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(HostArray::allocate(DType::kF32, {int64_t{1} << 50}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(HostArray::allocate(DType::kF32, {kBig, kBig, 0})->size_bytes(), 0);
}

TEST(HostArray, PrintsItsShape) {
  EXPECT_EQ(HostArray(DType::kBF16, {2, 0}).shape(), "bf16[2,0]");
  EXPECT_EQ(HostArray(DType::kI1, {}).shape(), "i1[]");
}

}  // namespace
}  // namespace hekla
