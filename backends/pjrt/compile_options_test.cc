// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/compile_options.h"

#include <gtest/gtest.h>

#include "backends/pjrt/client_options.h"
#include "backends/pjrt/handles.h"
#include "runtime/base/protobuf_wire.h"

namespace hekla::pjrt {
namespace {

// CompileOptionsProto with the build options (field 3) that `fill` writes.
template <typename Fill>
std::string message_with(Fill&& fill) {
  wire::Writer build;
  fill(build);
  wire::Writer message;
  message.message(3, build);
  return message.text();
}

TEST(CompileOptions, ReadsCountsAndDevicesByReplicaAndPartition) {
  const std::string message = message_with([](wire::Writer& build) {
    build.varint(4, 2);
    build.varint(5, 3);
    build.bytes(9, serialize_device_assignment(2, 3, {0, 1, 2, 3, 4, 300}));
  });
  const Result<CompileOptions> options = parse_compile_options(message);
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->replica_count, 2);
  EXPECT_EQ(options->partition_count, 3);
  EXPECT_EQ(options->device_ids, (std::vector<int64_t>{0, 1, 2, 3, 4, 300}));
}

TEST(CompileOptions, TheLastOfTwoAssignmentsCounts) {
  const std::string message = message_with([](wire::Writer& build) {
    build.bytes(9, serialize_device_assignment(1, 1, {7}));
    build.bytes(9, serialize_device_assignment(1, 1, {5}));
  });
  const Result<CompileOptions> options = parse_compile_options(message);
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->device_ids, std::vector<int64_t>{5});
}

// Counts are only as large as the lists that come with them.
TEST(CompileOptions, AnAssignmentOfNothingIsRefusedAtOnce) {
  for (const auto& [replicas, partitions] :
       {std::pair<uint64_t, uint64_t>{uint64_t{1} << 62, 0}, {0, uint64_t{1} << 62}, {~0ULL, 1}}) {
    const std::string message =
        message_with([&replicas = replicas, &partitions = partitions](wire::Writer& build) {
          wire::Writer assignment;
          assignment.varint(1, replicas);
          assignment.varint(2, partitions);
          build.message(9, assignment);
        });
    const Result<CompileOptions> options = parse_compile_options(message);
    ASSERT_FALSE(options.ok()) << replicas << " x " << partitions;
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(CompileOptions, AnEmptyAssignmentIsNone) {
  const Result<CompileOptions> options =
      parse_compile_options(message_with([](wire::Writer& build) { build.bytes(9, ""); }));
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_TRUE(options->device_ids.empty());
}

TEST(CompileOptions, CutAnywhereItIsMalformedOrShorter) {
  const std::string message = message_with([](wire::Writer& build) {
    build.varint(4, 2);
    build.bytes(9, serialize_device_assignment(2, 1, {0, 1}));
  });
  for (size_t size = 1; size < message.size(); ++size) {
    const Result<CompileOptions> options = parse_compile_options(message.substr(0, size));
    EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument) << size;
  }
}

// An entry of env_option_overrides, with a text.
std::string with_override(const std::string& message, std::string_view name,
                          std::string_view text) {
  wire::Writer value, entry, more;
  value.bytes(1, text);
  entry.bytes(1, name);
  entry.message(2, value);
  more.message(7, entry);
  return message + more.text();
}

// Protobuf writes maps in another order in each process.
TEST(Fingerprint, DoesNotDependOnTheOrderOfOptions) {
  const std::string code =
      "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }";
  const auto fingerprint = [&](const std::string& options) {
    return make_program(code, options).value()->fingerprint;
  };
  const std::string none;
  const std::string fuse = with_override(none, "hekla_fuse", "false");
  const std::string reuse = with_override(none, "hekla_reuse_memory", "false");
  const std::string both = with_override(fuse, "hekla_reuse_memory", "false");
  EXPECT_EQ(fingerprint(both), fingerprint(with_override(reuse, "hekla_fuse", "false")));
  EXPECT_EQ(fingerprint(none), fingerprint(none));
  EXPECT_NE(fingerprint(none), fingerprint(fuse));
  EXPECT_NE(fingerprint(fuse), fingerprint(reuse));
  EXPECT_NE(fingerprint(fuse), fingerprint(both));
}

TEST(CompilerOptions, ThoseOfXlaMeanNothing) {
  const auto read = read_compiler_options(
      {{"xla_embed_ir_in_executable", true}, {"hekla_fuse", std::string("false")}});
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_FALSE(read->plan.fuse);
}

// Options of clients are none of a compilation.
TEST(CompilerOptions, WhatThereIsNotIsRefused) {
  for (const char* name : {"hekla_colour", "node_id", "num_devices"}) {
    const auto read = read_compiler_options({{name, std::string("0")}});
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hekla::pjrt
