// SPDX-License-Identifier: Apache-2.0
// The programs and compile options of the suite. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/protobuf_wire.h"

namespace hekla::conformance {

// StableHLO text. All f32[4] unless the comment says otherwise.
extern const std::string_view kAdd;          // (a, b) -> a + b
extern const std::string_view kAddOne;       // a -> a + 1
extern const std::string_view kIdentity;     // a -> a
extern const std::string_view kConstant;     // () -> [1 2 3 4]
extern const std::string_view kTwoOutputs;   // a f32[4] -> (sum f32[], a * 2 f32[4], a > 0 i1[4])
extern const std::string_view kEmpty;        // a f32[0,3] -> f32[3,0], f32[] sum
extern const std::string_view kMatmul;       // (f32[2,3], f32[3,4]) -> f32[2,4]
extern const std::string_view kDonateAlias;  // a aliases the output: a + b
extern const std::string_view kDonateAny;    // a is a donor: a + b
extern const std::string_view kDonateBoth;   // a and b alias the outputs: (a + 1, b * b)
// a f32[256,256] -> the array after 100 steps of x = x * 0.5 + 1: long enough to be in flight.
extern const std::string_view kLong;
extern const std::string_view kSyntaxError;
extern const std::string_view kTypeError;      // adds f32[4] and f32[3]
extern const std::string_view kUnknownTarget;  // a custom call that nobody knows
extern const std::string_view kMhlo;           // the module of the upstream conformance test

// kAdd as a portable artifact, and as an HloModuleProto.
std::string_view add_bytecode_new();  // StableHLO 1.13
std::string_view add_bytecode_old();  // StableHLO 0.9
std::string_view add_hlo_proto();

struct CompileSettings {
  int replicas = 1;
  int partitions = 1;
  std::vector<int64_t> device_ids = {0};  // replica-major; empty: no device assignment
  bool use_spmd_partitioning = true;      // of several partitions; else each has its own program
};
// A serialized CompileOptionsProto.
std::string compile_options(const CompileSettings& settings);

// Splits a message into its top-level fields; false when the bytes are no message.
bool parse_proto(std::string_view message, std::vector<wire::Field>* fields);

}  // namespace hekla::conformance
