// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/compile_options.h"

#include <gtest/gtest.h>

namespace hekla::runtime {
namespace {

using std::string_literals::operator""s;

// Field 3 of the message, without its key and length.
std::string build_options(const std::string& message) {
  EXPECT_EQ(message[0], '\x1a');
  return message.substr(2, static_cast<uint8_t>(message[1]));
}

TEST(CompileOptions, OneDeviceIsWhatJaxSends) {
  CompileOptions options;
  options.device_ids = {0};
  const std::string message = serialize_compile_options(options);
  // Values that JAX 0.10 was seen to send: ordinal -1, counts, SPMD, the 1 x 1 assignment.
  EXPECT_EQ(build_options(message),
            "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
            "\x20\x01\x28\x01\x30\x01"
            "\x4a\x09\x08\x01\x10\x01\x1a\x03\x0a\x01\x00"
            "\x62\x01\x01\x92\x01\x01\x01\x98\x01\x01\xb8\x01\x01"s);
  EXPECT_EQ(message.substr(2 + build_options(message).size()),
            "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
}

TEST(CompileOptions, TheAssignmentListsReplicasPerPartition) {
  CompileOptions options;
  options.num_replicas = 2;
  options.num_partitions = 2;
  options.device_ids = {0, 1, 2, 300};  // replica-major
  const std::string build = build_options(serialize_compile_options(options));
  EXPECT_NE(build.find("\x08\x02\x10\x02\x1a\x04\x0a\x02\x00\x02\x1a\x05\x0a\x03\x01\xac\x02"s),
            std::string::npos);
}

TEST(CompileOptions, PortableProgramsHaveNoAssignment) {
  CompileOptions options;
  options.is_portable = true;
  options.device_ids = {0};
  const std::string message = serialize_compile_options(options);
  EXPECT_EQ(build_options(message).find('\x4a'), std::string::npos);
  EXPECT_NE(message.find("\x20\x01\x28\xff"s), std::string::npos);
}

TEST(CompileOptions, OverridesAreTyped) {
  CompileOptions options;
  options.device_ids = {0};
  options.overrides = {{"a", std::string("x")}, {"b", true}, {"c", int64_t{5}}, {"d", 1.0}};
  const std::string message = serialize_compile_options(options);
  for (const std::string& entry :
       {"\x3a\x08\x0a\x01"s + "a\x12\x03\x0a\x01x"s, "\x3a\x07\x0a\x01"s + "b\x12\x02\x10\x01"s,
        "\x3a\x07\x0a\x01"s + "c\x12\x02\x18\x05"s,
        "\x3a\x0e\x0a\x01"s + "d\x12\x09\x21\0\0\0\0\0\0\xf0\x3f"s}) {
    EXPECT_NE(message.find(entry), std::string::npos);
  }
}

}  // namespace
}  // namespace hekla::runtime
