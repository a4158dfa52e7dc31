// SPDX-License-Identifier: Apache-2.0
// Against bytes of protobuf's own documentation and of its encoding rules, and malformed ones.
// tests/jax holds the messages of the C API to jaxlib's.
#include "runtime/base/protobuf_wire.h"

#include <gtest/gtest.h>

namespace hekla::wire {
namespace {

using namespace std::string_literals;

TEST(ProtobufWire, WritesTheBytesThatTheEncodingSays) {
  Writer inner;
  inner.varint(1, 150);
  EXPECT_EQ(inner.text(), "\x08\x96\x01");
  Writer writer;
  writer.bytes(2, "testing");
  writer.message(3, inner);
  writer.fixed64(1, 0x0102030405060708);
  writer.packed(6, std::vector<int64_t>{3, 270, 86942});
  writer.boolean(5, true);
  EXPECT_EQ(writer.text(),
            "\x12\x07testing\x1a\x03\x08\x96\x01\x09\x08\x07\x06\x05\x04\x03\x02\x01"
            "\x32\x06\x03\x8e\x02\x9e\xa7\x05\x28\x01"s);
}

TEST(ProtobufWire, ReadsWhatWasWritten) {
  Writer writer;
  writer.varint(1, ~uint64_t{0});
  writer.bytes(200, "a");
  writer.fixed64(3, 77);
  const std::string fixed32 = "\x25\x2a\x00\x00\x00"s;  // field 4
  const std::string message = writer.text() + fixed32;
  const auto fields = parse_fields(message);
  ASSERT_TRUE(fields.ok());
  ASSERT_EQ(fields->size(), 4u);
  EXPECT_EQ(static_cast<int64_t>((*fields)[0].value), -1);
  EXPECT_EQ((*fields)[1].number, 200u);
  EXPECT_EQ((*fields)[1].bytes, "a");
  EXPECT_EQ((*fields)[2].value, 77u);
  EXPECT_EQ((*fields)[3].value, 42u);
}

TEST(ProtobufWire, RepeatedIntegersArePackedOrNot) {
  const std::string message = "\x08\x05\x0a\x03\x01\x96\x01"s;
  const auto fields = parse_fields(message);
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(*parse_varints((*fields)[0]), std::vector<int64_t>{5});
  EXPECT_EQ(*parse_varints((*fields)[1]), (std::vector<int64_t>{1, 150}));
}

TEST(ProtobufWire, MalformedBytesAreErrors) {
  const std::string cases[] = {
      "\x08"s,                                              // a number without its value
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s,  // longer than 64 bits
      "\x00\x01"s,                                          // field 0
      "\x0a\x05test"s,                                      // shorter than it says
      "\x0b"s,                                              // a group
      "\x0e"s,                                              // no wire type
      "\x09\x01\x02"s,                                      // 64 bits cut off
      "\xf8\xff\xff\xff\xff\x01\x00"s,                      // a field number beyond 29 bits
  };
  for (const std::string& bytes : cases) {
    EXPECT_EQ(parse_fields(bytes).status().code(), StatusCode::kInvalidArgument)
        << testing::PrintToString(bytes);
  }
  Field packed;
  packed.is_bytes = true;
  packed.bytes = "\x96";
  EXPECT_EQ(parse_varints(packed).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::wire
