// SPDX-License-Identifier: Apache-2.0
// OpCode: the operations that the IR knows by name, and the plain facts about them.
//
// StableHLO's ops, the terminator and call of `func`, the ops of Shardy and of StableHLO's `check`
// dialect, the cast that stands between VHLO and builtin types, and hekla.launch_number, which
// compiled programs hold (ui32: how often the executable was launched before). Any other operation
// is kUnknown and carries its name, so that a program is read whole and all that is unsupported in
// it can be named at once. Pure data, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hekla::ir {

class Attribute;

// clang-format off
#define HEKLA_IR_OPS(X) \
  X(kAbs, "stablehlo.abs") \
  X(kAdd, "stablehlo.add") \
  X(kAfterAll, "stablehlo.after_all") \
  X(kAllGather, "stablehlo.all_gather") \
  X(kAllReduce, "stablehlo.all_reduce") \
  X(kAllToAll, "stablehlo.all_to_all") \
  X(kAnd, "stablehlo.and") \
  X(kAsyncDone, "stablehlo.async_done") \
  X(kAsyncStart, "stablehlo.async_start") \
  X(kAtan2, "stablehlo.atan2") \
  X(kBatchNormGrad, "stablehlo.batch_norm_grad") \
  X(kBatchNormInference, "stablehlo.batch_norm_inference") \
  X(kBatchNormTraining, "stablehlo.batch_norm_training") \
  X(kBitcastConvert, "stablehlo.bitcast_convert") \
  X(kBroadcast, "stablehlo.broadcast") \
  X(kBroadcastInDim, "stablehlo.broadcast_in_dim") \
  X(kCase, "stablehlo.case") \
  X(kCbrt, "stablehlo.cbrt") \
  X(kCeil, "stablehlo.ceil") \
  X(kCholesky, "stablehlo.cholesky") \
  X(kClamp, "stablehlo.clamp") \
  X(kCollectiveBroadcast, "stablehlo.collective_broadcast") \
  X(kCollectivePermute, "stablehlo.collective_permute") \
  X(kCollectiveReduce, "stablehlo.collective_reduce") \
  X(kCompare, "stablehlo.compare") \
  X(kComplex, "stablehlo.complex") \
  X(kComposite, "stablehlo.composite") \
  X(kConcatenate, "stablehlo.concatenate") \
  X(kConstant, "stablehlo.constant") \
  X(kConvert, "stablehlo.convert") \
  X(kConvolution, "stablehlo.convolution") \
  X(kCosine, "stablehlo.cosine") \
  X(kCountLeadingZeros, "stablehlo.count_leading_zeros") \
  X(kCreateToken, "stablehlo.create_token") \
  X(kCrossReplicaSum, "stablehlo.cross-replica-sum") \
  X(kCustomCall, "stablehlo.custom_call") \
  X(kDivide, "stablehlo.divide") \
  X(kDot, "stablehlo.dot") \
  X(kDotGeneral, "stablehlo.dot_general") \
  X(kDynamicBroadcastInDim, "stablehlo.dynamic_broadcast_in_dim") \
  X(kDynamicConv, "stablehlo.dynamic_conv") \
  X(kDynamicGather, "stablehlo.dynamic_gather") \
  X(kDynamicIota, "stablehlo.dynamic_iota") \
  X(kDynamicPad, "stablehlo.dynamic_pad") \
  X(kDynamicReshape, "stablehlo.dynamic_reshape") \
  X(kDynamicSlice, "stablehlo.dynamic_slice") \
  X(kDynamicUpdateSlice, "stablehlo.dynamic_update_slice") \
  X(kEinsum, "stablehlo.einsum") \
  X(kExponential, "stablehlo.exponential") \
  X(kExponentialMinusOne, "stablehlo.exponential_minus_one") \
  X(kFft, "stablehlo.fft") \
  X(kFloor, "stablehlo.floor") \
  X(kGather, "stablehlo.gather") \
  X(kGetDimensionSize, "stablehlo.get_dimension_size") \
  X(kGetTupleElement, "stablehlo.get_tuple_element") \
  X(kIf, "stablehlo.if") \
  X(kImag, "stablehlo.imag") \
  X(kInfeed, "stablehlo.infeed") \
  X(kIota, "stablehlo.iota") \
  X(kIsFinite, "stablehlo.is_finite") \
  X(kLog, "stablehlo.log") \
  X(kLogPlusOne, "stablehlo.log_plus_one") \
  X(kLogistic, "stablehlo.logistic") \
  X(kMap, "stablehlo.map") \
  X(kMaximum, "stablehlo.maximum") \
  X(kMinimum, "stablehlo.minimum") \
  X(kMultiply, "stablehlo.multiply") \
  X(kNegate, "stablehlo.negate") \
  X(kNot, "stablehlo.not") \
  X(kOptimizationBarrier, "stablehlo.optimization_barrier") \
  X(kOr, "stablehlo.or") \
  X(kOutfeed, "stablehlo.outfeed") \
  X(kPad, "stablehlo.pad") \
  X(kPartitionId, "stablehlo.partition_id") \
  X(kPopcnt, "stablehlo.popcnt") \
  X(kPower, "stablehlo.power") \
  X(kReal, "stablehlo.real") \
  X(kRealDynamicSlice, "stablehlo.real_dynamic_slice") \
  X(kRecv, "stablehlo.recv") \
  X(kReduce, "stablehlo.reduce") \
  X(kReducePrecision, "stablehlo.reduce_precision") \
  X(kReduceScatter, "stablehlo.reduce_scatter") \
  X(kReduceWindow, "stablehlo.reduce_window") \
  X(kRemainder, "stablehlo.remainder") \
  X(kReplicaId, "stablehlo.replica_id") \
  X(kReshape, "stablehlo.reshape") \
  X(kReturn, "stablehlo.return") \
  X(kReverse, "stablehlo.reverse") \
  X(kRng, "stablehlo.rng") \
  X(kRngBitGenerator, "stablehlo.rng_bit_generator") \
  X(kRoundNearestAfz, "stablehlo.round_nearest_afz") \
  X(kRoundNearestEven, "stablehlo.round_nearest_even") \
  X(kRsqrt, "stablehlo.rsqrt") \
  X(kScatter, "stablehlo.scatter") \
  X(kSelect, "stablehlo.select") \
  X(kSelectAndScatter, "stablehlo.select_and_scatter") \
  X(kSend, "stablehlo.send") \
  X(kSetDimensionSize, "stablehlo.set_dimension_size") \
  X(kShiftLeft, "stablehlo.shift_left") \
  X(kShiftRightArithmetic, "stablehlo.shift_right_arithmetic") \
  X(kShiftRightLogical, "stablehlo.shift_right_logical") \
  X(kSign, "stablehlo.sign") \
  X(kSine, "stablehlo.sine") \
  X(kSlice, "stablehlo.slice") \
  X(kSort, "stablehlo.sort") \
  X(kSqrt, "stablehlo.sqrt") \
  X(kSubtract, "stablehlo.subtract") \
  X(kTan, "stablehlo.tan") \
  X(kTanh, "stablehlo.tanh") \
  X(kTorchIndexSelect, "stablehlo.torch_index_select") \
  X(kTranspose, "stablehlo.transpose") \
  X(kTriangularSolve, "stablehlo.triangular_solve") \
  X(kTuple, "stablehlo.tuple") \
  X(kUnaryEinsum, "stablehlo.unary_einsum") \
  X(kUniformDequantize, "stablehlo.uniform_dequantize") \
  X(kUniformQuantize, "stablehlo.uniform_quantize") \
  X(kWhile, "stablehlo.while") \
  X(kXor, "stablehlo.xor") \
  X(kFuncReturn, "func.return") \
  X(kFuncCall, "func.call") \
  X(kSdyShardingConstraint, "sdy.sharding_constraint") \
  X(kSdyManualComputation, "sdy.manual_computation") \
  X(kSdyReturn, "sdy.return") \
  X(kSdyShardingGroup, "sdy.sharding_group") \
  X(kSdyReshard, "sdy.reshard") \
  X(kSdyPropagationBarrier, "sdy.propagation_barrier") \
  X(kSdyNamedComputation, "sdy.named_computation") \
  X(kUnrealizedCast, "builtin.unrealized_conversion_cast") \
  X(kLaunchNumber, "hekla.launch_number") \
  X(kCheckExpectEq, "check.expect_eq") \
  X(kCheckExpectEqConst, "check.expect_eq_const") \
  X(kCheckExpectAlmostEq, "check.expect_almost_eq") \
  X(kCheckExpectAlmostEqConst, "check.expect_almost_eq_const") \
  X(kCheckExpectClose, "check.expect_close") \
  X(kCheckExpectSerializedEq, "check.expect_serialized_eq")
// clang-format on

enum class OpCode : uint16_t {
  kUnknown,
#define HEKLA_IR_ENUMERATOR(code, name) code,
  HEKLA_IR_OPS(HEKLA_IR_ENUMERATOR)
#undef HEKLA_IR_ENUMERATOR
};

// "stablehlo.add"; empty for kUnknown.
std::string_view op_name(OpCode code);
// By the full name; nullopt for a name that is not in the list.
std::optional<OpCode> op_code_from_name(std::string_view name);

// One operand, one result of the same shape, element by element (abs ... tanh, convert,
// is_finite, real, imag, reduce_precision, uniform_quantize, uniform_dequantize).
bool is_elementwise_unary(OpCode code);
// Two operands and a result of one shape, element by element (add ... xor, compare, complex).
bool is_elementwise_binary(OpCode code);
// The above, select and clamp (whose predicate or limits may also be scalars).
bool is_elementwise(OpCode code);
// Of two operands, the order of which makes no difference, and that reductions are made of: add,
// multiply, maximum, minimum, and, or, xor. StableHLO's `applies` is for these.
bool is_commutative_reducer(OpCode code);
// return, func.return, sdy.return.
bool is_terminator(OpCode code);
// Ops that talk to the outside or to other devices and are kept although nobody uses their result.
bool has_side_effect(OpCode code);

// True when an attribute has the value that the op means without it, so that readers leave it out.
// The list is StableHLO's own defaults; every window op has strides 1, dilations 1 and padding 0.
bool is_default_attribute(OpCode code, std::string_view name, const Attribute& value);

}  // namespace hekla::ir
