// SPDX-License-Identifier: Apache-2.0
// Byte strings are what numpy 2 writes for the arrays that the tests name.
#include "runtime/npy/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace hekla::runtime {
namespace {

// An npy file as numpy writes it: magic, version, padded header, data.
std::string file(int version, std::string header, std::string_view data) {
  const size_t head = version == 1 ? 10 : 12;
  header.append(128 - head - header.size() - 1, ' ').push_back('\n');
  std::string bytes("\x93NUMPY");
  bytes += {static_cast<char>(version), '\0'};
  bytes += {static_cast<char>(header.size()), '\0'};
  if (version > 1) bytes += {'\0', '\0'};
  return bytes + header + std::string(data);
}
std::string header(const char* descr, const char* fortran, const char* shape) {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran,
                     shape);
}
template <size_t n>
std::string_view raw(const char (&text)[n]) {
  return {text, n - 1};
}

TEST(Npy, ReadsBigEndian) {
  auto array = parse_npy(file(1, header(">i4", "False", "(2, 3)"),
                              raw("\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5")));
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_EQ(array->shape(), "i32[2,3]");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(array->as<int32_t>()[i], i);
}

TEST(Npy, ReadsBigEndianComplexPartByPart) {
  auto array = parse_npy(file(1, header(">c8", "False", "(1,)"), raw("\x3f\x80\0\0\x40\0\0\0")));
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_EQ(array->dtype(), DType::kC64);
  EXPECT_EQ(array->as<float>()[0], 1.0f);
  EXPECT_EQ(array->as<float>()[1], 2.0f);
}

TEST(Npy, ReadsFortranOrder) {
  auto array = parse_npy(file(1, header("<i2", "True", "(2, 3)"), raw("\0\0\3\0\1\0\4\0\2\0\5\0")));
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(array->as<int16_t>()[i], i);
}

TEST(Npy, ReadsVersionsTwoAndThree) {
  auto two = parse_npy(file(2, header("<f4", "False", "()"), raw("\0\0\x20\x40")));
  ASSERT_TRUE(two.ok()) << two.status().to_string();
  EXPECT_EQ(two->rank(), 0);
  EXPECT_EQ(two->as<float>()[0], 2.5f);
  auto three = parse_npy(file(3, header("<f8", "False", "(1,)"), raw("\0\0\0\0\0\0\xf8\x3f")));
  ASSERT_TRUE(three.ok()) << three.status().to_string();
  EXPECT_EQ(three->as<double>()[0], 1.5);
}

TEST(Npy, TypesWithoutANameTakeTheTrueOne) {
  const std::string bf16 = file(1, header("<V2", "False", "(1,)"), raw("\xc0\x3f"));
  EXPECT_EQ(parse_npy(bf16).status().code(), StatusCode::kInvalidArgument);
  auto array = parse_npy(bf16, DType::kBF16);
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_EQ(float_from_bits(DType::kBF16, array->as<uint16_t>()[0]), 1.5);
  // ml_dtypes leaves the high bits of int4 zero; host memory holds them sign-extended.
  auto int4 = parse_npy(file(1, header("<V1", "False", "(2,)"), raw("\x0d\x07")), DType::kI4);
  ASSERT_TRUE(int4.ok());
  EXPECT_EQ(int4->as<int8_t>()[0], -3);
  EXPECT_EQ(int4->as<int8_t>()[1], 7);
  auto as_unsigned =
      parse_npy(file(1, header("<u2", "False", "(1,)"), raw("\xc0\x3f")), DType::kBF16);
  EXPECT_TRUE(as_unsigned.ok());
  EXPECT_FALSE(parse_npy(file(1, header("<f4", "False", "()"), raw("\0\0\0\0")), DType::kI32).ok());
}

TEST(Npy, EveryDtypeSurvivesWritingAndReading) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    HostArray array(dtype, {3, 2});
    for (int64_t k = 0; k < array.size_bytes(); ++k) {
      array.mutable_data()[k] = static_cast<std::byte>(dtype_bits(dtype) < 8 ? k & 1 : 17 * k);
    }
    if (dtype == DType::kI2 || dtype == DType::kI4) array.mutable_as<int8_t>()[0] = -1;
    const std::string bytes = format_npy(array);
    EXPECT_EQ((bytes.size() - static_cast<size_t>(array.size_bytes())) % 64, 0u);
    auto back = parse_npy(bytes, dtype);
    ASSERT_TRUE(back.ok()) << dtype_name(dtype) << ": " << back.status().to_string();
    EXPECT_TRUE(back->identical(array)) << dtype_name(dtype);
  }
}

TEST(Npy, ZeroSizesAndScalarsSurvive) {
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{3, 0, 2}}) {
    const HostArray array(DType::kF32, dims);
    auto back = parse_npy(format_npy(array));
    ASSERT_TRUE(back.ok());
    EXPECT_TRUE(back->identical(array));
  }
}

TEST(Npy, MalformedInputIsRefusedWithAReason) {
  const std::string good = file(1, header("<f4", "False", "(2,)"), raw("\0\0\0\0\0\0\0\0"));
  ASSERT_TRUE(parse_npy(good).ok());
  // Every proper prefix, and one byte too many.
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(parse_npy(good.substr(0, size)).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(parse_npy(good + "x").ok());
  for (const std::string& text :
       {header("<f4", "False", "(9999999999999, 9999999999999)"), header("<f4", "False", "(-1,)"),
        header("<f4", "False", "(99999999999999999999,)"), header("<f4", "Maybe", "(2,)"),
        header("<x4", "False", "(2,)"), header("<f9", "False", "(2,)"), header("", "False", "()"),
        header("<O8", "False", "(2,)"), std::string("{'descr': [('a', '<f4')]}"),
        std::string("{'descr': '<f4'}"), std::string("{"), std::string("{'shape': (1,1,1"),
        std::string("[1]"), header("<f4", "False", "(1000000000,)")}) {
    auto array = parse_npy(file(1, text, raw("\0\0\0\0\0\0\0\0")));
    EXPECT_EQ(array.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_FALSE(array.status().message().empty());
  }
}

TEST(Npy, CorruptedBytesNeverDoMoreThanFail) {
  const std::string good = file(1, header("<f4", "True", "(2, 3)"), std::string(24, '\1'));
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int i = 0; i <= round % 4; ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto array = parse_npy(bytes);
    if (!array.ok()) continue;
    EXPECT_LE(array->size_bytes(), 24);
  }
}

TEST(Npy, FilesAreWrittenAndRead) {
  const std::string path = testing::TempDir() + "npy_test.npy";
  const HostArray array = HostArray::scalar<double>(DType::kF64, 0.1);
  ASSERT_TRUE(write_npy(path, array).ok());
  auto back = read_npy(path);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->identical(array));
  EXPECT_EQ(read_npy("/nonexistent.npy").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(write_npy("/nonexistent/x.npy", array).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(write_npy(path, HostArray()).ok());
}

}  // namespace
}  // namespace hekla::runtime
