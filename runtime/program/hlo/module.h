// SPDX-License-Identifier: Apache-2.0
// Program: an HloModuleProto with its references resolved, nothing converted yet.
//
// Holds what every instruction has; the fields that only some opcodes have stay in the message.
// Borrows the bytes. Of what decode_program accepts: operands stand in front of their users,
// callees in front of their callers (so neither can form a cycle), parameters are numbered 0 ...
// n-1 and every computation has a root. Errors are INVALID_ARGUMENT with the instruction and the
// computation; time and memory are linear in the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/hlo/message.h"
#include "runtime/program/hlo/shape.h"
#include "runtime/program/ir/location.h"

namespace hekla::hlo {

// Fields of xla.HloInstructionProto, as hlo.proto numbers them.
enum InstructionField : uint32_t {
  kLiteral = 8,
  kParameterNumber = 9,
  kTupleIndex = 13,
  kDimensionsField = 14,
  kWindow = 15,
  kConvolutionNumbers = 16,
  kSliceDimensions = 17,
  kExponentBits = 18,
  kMantissaBits = 19,
  kDynamicSliceSizes = 20,
  kPaddingConfig = 21,
  kOutfeedConfig = 22,
  kDistribution = 23,
  kEpsilon = 24,
  kFeatureIndex = 25,
  kChannelId = 26,
  kInfeedConfig = 27,
  kCustomCallTarget = 28,
  kDotNumbers = 30,
  kFftType = 31,
  kFftLength = 32,
  kGatherNumbers = 33,
  kGatherSliceSizes = 34,
  kSharding = 40,
  kBackendConfig = 43,
  kAllReduceId = 45,
  kIsHostTransfer = 47,
  kScatterNumbers = 48,
  kReplicaGroups = 49,
  kFeatureGroupCount = 50,
  kPrecisionConfig = 51,
  kSourceTargetPairs = 52,
  kConstrainLayout = 56,
  kOperandShapesWithLayout = 57,
  kBatchGroupCount = 58,
  kTriangularSolveOptions = 59,
  kIsStable = 60,
  kCholeskyOptions = 62,
  kComparisonDirection = 63,
  kHasSideEffect = 65,
  kIndicesAreSorted = 67,
  kFrontendAttributes = 68,
  kUniqueIndices = 69,
  kRngAlgorithm = 70,
  kUseGlobalDeviceIds = 71,
  kComparisonType = 72,
  kOutputOperandAliasing = 74,
  kCustomCallApiVersion = 77,
  kTopKCount = 81,
  kTopKLargest = 85,
  kCollectiveDeviceList = 87,
  kIsComposite = 89,
  kRaggedDotNumbers = 90,
  kResultAccuracy = 91,
  kIotaDeviceList = 92,
  kMeshAxesGroups = 93,
  kIsReverse = 94,
  kNumCarries = 95,
  kSparsityConfig = 98,
};

struct Instruction {
  std::string_view name;
  std::string_view opcode;
  Shape shape;
  std::vector<size_t> operands;  // instructions of the same computation
  std::vector<size_t> called;    // computations of the program
  Message fields;
  ir::LocationRef location;
};

struct Computation {
  std::string_view name;
  std::vector<Instruction> instructions;
  size_t root = 0;
  std::vector<size_t> parameters;  // instructions, by parameter number
  size_t call_count = 0;           // instructions that name it
};

struct Program {
  std::string_view name;
  Message fields;  // of the module
  std::vector<Computation> computations;
  size_t entry = 0;
};

Result<Program> decode_program(std::string_view module);

// "add.5 (add) in %main": what errors say of an instruction.
std::string describe(const Instruction& instruction, const Computation& computation);

}  // namespace hekla::hlo
