// SPDX-License-Identifier: Apache-2.0
// From operations to kernels: reads the attributes and calls the array kernel.
#include <algorithm>
#include <optional>

#include "backends/lapack/library.h"
#include "backends/reference/custom_calls.h"
#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/kernels/block_body.h"
#include "backends/reference/kernels/kernels.h"
#include "backends/reference/lapack_calls.h"
#include "backends/reference/quantized.h"
#include "backends/reference/region_function.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using ir::OpCode;
using Data = std::vector<Datum>;

Data one(HostArray array) {
  Data data;
  data.emplace_back(std::move(array));
  return data;
}

Result<Data> one(Result<HostArray> array) {
  if (!array.ok()) return array.status();
  return one(*std::move(array));
}

Result<Data> many(Result<std::vector<HostArray>> arrays) {
  if (!arrays.ok()) return arrays.status();
  Data data;
  for (HostArray& array : *arrays) data.emplace_back(std::move(array));
  return data;
}

std::vector<HostArray> arrays(const Data& operands, size_t first, size_t count) {
  std::vector<HostArray> result;
  for (size_t i = first; i < first + count; ++i) result.push_back(operands[i].array);
  return result;
}

// A vector of integers as numbers: shapes and indices known at run time.
std::vector<int64_t> numbers(const HostArray& vector) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < vector.size(); ++i) values.push_back(index_at(vector, i));
  return values;
}

WindowConfig window_config(const ir::Operation& op) {
  WindowConfig config;
  config.window_dimensions = int_list(op, "window_dimensions");
  config.window_strides = int_list(op, "window_strides");
  config.base_dilations = int_list(op, "base_dilations");
  config.window_dilations = int_list(op, "window_dilations");
  config.padding = padding_of(op);
  return config;
}

DotGeneralConfig dot_config(const ir::Operation& op) {
  DotGeneralConfig config;
  if (const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>()) {
    config.lhs_batching_dimensions = n->lhs_batching_dimensions;
    config.rhs_batching_dimensions = n->rhs_batching_dimensions;
    config.lhs_contracting_dimensions = n->lhs_contracting_dimensions;
    config.rhs_contracting_dimensions = n->rhs_contracting_dimensions;
  }
  if (const auto* a = op.attribute("algorithm").get<ir::DotAlgorithm>()) {
    DotAlgorithm algorithm;
    algorithm.lhs_precision_type = a->lhs_precision_type.dtype();
    algorithm.rhs_precision_type = a->rhs_precision_type.dtype();
    algorithm.accumulation_type = a->accumulation_type.dtype();
    algorithm.lhs_component_count = a->lhs_component_count;
    algorithm.rhs_component_count = a->rhs_component_count;
    algorithm.num_primitive_operations = a->num_primitive_operations;
    algorithm.allow_imprecise_accumulation = a->allow_imprecise_accumulation;
    config.algorithm = algorithm;
  }
  return config;
}

ConvolutionConfig convolution_config(const ir::Operation& op) {
  const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  ConvolutionConfig config;
  config.window_strides = int_list(op, "window_strides");
  config.padding = padding_of(op);
  config.lhs_dilation = int_list(op, "lhs_dilation");
  config.rhs_dilation = int_list(op, "rhs_dilation");
  config.window_reversal = bool_list(op, "window_reversal");
  config.input_batch_dimension = n->input_batch_dimension;
  config.input_feature_dimension = n->input_feature_dimension;
  config.input_spatial_dimensions = n->input_spatial_dimensions;
  config.kernel_input_feature_dimension = n->kernel_input_feature_dimension;
  config.kernel_output_feature_dimension = n->kernel_output_feature_dimension;
  config.kernel_spatial_dimensions = n->kernel_spatial_dimensions;
  config.output_batch_dimension = n->output_batch_dimension;
  config.output_feature_dimension = n->output_feature_dimension;
  config.output_spatial_dimensions = n->output_spatial_dimensions;
  config.feature_group_count = int_value(op, "feature_group_count", 1);
  config.batch_group_count = int_value(op, "batch_group_count", 1);
  return config;
}

GatherConfig gather_config(const ir::Operation& op, std::vector<int64_t> slice_sizes) {
  const auto* n = op.attribute("dimension_numbers").get<ir::GatherDimensionNumbers>();
  return {n->offset_dims,           n->collapsed_slice_dims,
          n->operand_batching_dims, n->start_indices_batching_dims,
          n->start_index_map,       n->index_vector_dim,
          std::move(slice_sizes)};
}

ScatterConfig scatter_config(const ir::Operation& op) {
  const auto* n = op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
  return {n->update_window_dims,           n->inserted_window_dims,
          n->input_batching_dims,          n->scatter_indices_batching_dims,
          n->scatter_dims_to_operand_dims, n->index_vector_dim};
}

// dot: the last dimension of the left side with the first of the right one.
Result<HostArray> dot(const HostArray& a, const HostArray& b, DType result) {
  DotGeneralConfig config;
  config.lhs_contracting_dimensions = {a.rank() - 1};
  config.rhs_contracting_dimensions = {0};
  return dot_general(a, b, config, result);
}

// "ab,bc->ac" as one dot_general and a transpose; letters that stand on one side only and not in
// the result are summed over first.
Result<HostArray> einsum(const ir::Operation& op, HostArray a, HostArray b, DType result);

Result<HostArray> sum_over(const HostArray& x, std::span<const int64_t> dimensions) {
  if (dimensions.empty()) return x;
  // A contraction with ones: the sum in the accumulator's type.
  Dims shape;
  for (int64_t d : dimensions) shape.push_back(x.dims()[static_cast<size_t>(d)]);
  HEKLA_ASSIGN_OR_RETURN(HostArray one_i32, HostArray::allocate(DType::kI32, {}));
  one_i32.mutable_as<int32_t>()[0] = 1;
  HEKLA_ASSIGN_OR_RETURN(HostArray unit, convert_elements(one_i32, x.dtype()));
  HEKLA_ASSIGN_OR_RETURN(HostArray ones, broadcast_in_dim(unit, {}, shape));
  DotGeneralConfig config;
  config.lhs_contracting_dimensions.assign(dimensions.begin(), dimensions.end());
  for (size_t i = 0; i < dimensions.size(); ++i) {
    config.rhs_contracting_dimensions.push_back(static_cast<int64_t>(i));
  }
  return dot_general(x, ones, config, x.dtype());
}

Result<HostArray> reorder(HostArray x, const std::string& from, const std::string& to) {
  std::vector<int64_t> permutation;
  for (char letter : to) permutation.push_back(static_cast<int64_t>(from.find(letter)));
  return transpose(x, permutation);
}

// Sums over the letters of `from` that stand neither in `other` nor in `to`.
Result<HostArray> drop_lonely(HostArray x, std::string& from, const std::string& other,
                              const std::string& to) {
  std::vector<int64_t> lonely;
  std::string kept;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from.find(from[i], i + 1) != std::string::npos) {
      return unimplemented("einsum with a letter twice in one operand ({})", from);
    }
    const bool is_lonely =
        other.find(from[i]) == std::string::npos && to.find(from[i]) == std::string::npos;
    if (is_lonely) {
      lonely.push_back(static_cast<int64_t>(i));
    } else {
      kept += from[i];
    }
  }
  from = kept;
  return sum_over(x, lonely);
}

Result<HostArray> einsum(const ir::Operation& op, HostArray a, HostArray b, DType result) {
  const std::string config = text_value(op, "einsum_config");
  const size_t comma = config.find(',');
  const size_t arrow = config.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return invalid_argument("einsum_config \"{}\" must look like \"ab,bc->ac\"", config);
  }
  std::string left = config.substr(0, comma);
  std::string right = config.substr(comma + 1, arrow - comma - 1);
  const std::string to = config.substr(arrow + 2);
  if (static_cast<int64_t>(left.size()) != a.rank() ||
      static_cast<int64_t>(right.size()) != b.rank()) {
    return invalid_argument("einsum_config \"{}\" does not fit {} and {}", config, a.shape(),
                            b.shape());
  }
  HEKLA_ASSIGN_OR_RETURN(a, drop_lonely(std::move(a), left, right, to));
  HEKLA_ASSIGN_OR_RETURN(b, drop_lonely(std::move(b), right, left, to));
  DotGeneralConfig dims;
  std::string from;
  std::string free_left;
  for (size_t i = 0; i < left.size(); ++i) {
    const size_t j = right.find(left[i]);
    if (j == std::string::npos) {
      free_left += left[i];
    } else if (to.find(left[i]) != std::string::npos) {
      dims.lhs_batching_dimensions.push_back(static_cast<int64_t>(i));
      dims.rhs_batching_dimensions.push_back(static_cast<int64_t>(j));
      from += left[i];
    } else {
      dims.lhs_contracting_dimensions.push_back(static_cast<int64_t>(i));
      dims.rhs_contracting_dimensions.push_back(static_cast<int64_t>(j));
    }
  }
  from += free_left;
  for (char letter : right) {
    if (left.find(letter) == std::string::npos) from += letter;
  }
  for (char letter : to) {
    if (from.find(letter) == std::string::npos || to.size() != from.size()) {
      return invalid_argument("einsum_config \"{}\" has a result letter without an operand",
                              config);
    }
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray product, dot_general(a, b, dims, result));
  return reorder(std::move(product), from, to);
}

Result<HostArray> unary_einsum(const ir::Operation& op, HostArray a) {
  const std::string config = text_value(op, "einsum_config");
  const size_t arrow = config.find("->");
  std::string from = config.substr(0, arrow);
  const std::string to = arrow == std::string::npos ? "" : config.substr(arrow + 2);
  if (arrow == std::string::npos || static_cast<int64_t>(from.size()) != a.rank()) {
    return invalid_argument("einsum_config \"{}\" does not fit {}", config, a.shape());
  }
  HEKLA_ASSIGN_OR_RETURN(a, drop_lonely(std::move(a), from, "", to));
  if (from.size() != to.size()) {
    return invalid_argument("einsum_config \"{}\" has a result letter without an operand", config);
  }
  return reorder(std::move(a), from, to);
}

Result<HostArray> constant(const ir::Operation& op) {
  return op.attribute("value").get<ir::DenseValue>()->expand();
}

Result<HostArray> reshape(HostArray x, const Dims& dims) {
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(x.dtype(), dims));
  if (bytes != x.size_bytes()) {
    return invalid_argument("{} cannot become {}", x.shape(), shape_string(x.dtype(), dims));
  }
  return x.with_shape(x.dtype(), dims);
}

Result<RngAlgorithm> rng_algorithm(const ir::Operation& op) {
  const std::string name = text_value(op, "rng_algorithm");
  if (name == "DEFAULT") return RngAlgorithm::kDefault;
  if (name == "THREE_FRY") return RngAlgorithm::kThreeFry;
  if (name == "PHILOX") return RngAlgorithm::kPhilox;
  return invalid_argument("there is no rng_algorithm {}", name);
}

FftType fft_type(const ir::Operation& op) {
  const std::string name = text_value(op, "fft_type");
  if (name == "IFFT") return FftType::kIfft;
  if (name == "RFFT") return FftType::kRfft;
  if (name == "IRFFT") return FftType::kIrfft;
  return FftType::kFft;
}

Result<Data> execute_movement(const ir::Operation& op, Data& operands) {
  const auto array = [&](size_t i) -> HostArray& { return operands[i].array; };
  switch (op.code()) {
    case OpCode::kBroadcastInDim:
      return one(broadcast_in_dim(array(0), int_list(op, "broadcast_dimensions"),
                                  op.result()->type().dims()));
    case OpCode::kDynamicBroadcastInDim:
      return one(
          broadcast_in_dim(array(0), int_list(op, "broadcast_dimensions"), numbers(array(1))));
    case OpCode::kBroadcast: {
      std::vector<int64_t> dims = int_list(op, "broadcast_sizes");
      std::vector<int64_t> places;
      for (int64_t i = 0; i < array(0).rank(); ++i) {
        places.push_back(static_cast<int64_t>(int_list(op, "broadcast_sizes").size()) + i);
        dims.push_back(array(0).dims()[static_cast<size_t>(i)]);
      }
      return one(broadcast_in_dim(array(0), places, dims));
    }
    case OpCode::kReshape: {
      Dims dims = op.result()->type().dims();
      // One dimension that is not known holds what the others leave (check_op refuses two).
      if (const auto open = std::ranges::find(dims, ir::kDynamic); open != dims.end()) {
        *open = 1;
        const int64_t others = element_count(dims);
        *open = others == 0 ? 0 : array(0).size() / others;
      }
      return one(reshape(std::move(array(0)), dims));
    }
    case OpCode::kDynamicReshape:
      return one(reshape(std::move(array(0)), numbers(array(1))));
    case OpCode::kTranspose:
      return one(transpose(array(0), int_list(op, "permutation")));
    case OpCode::kReverse:
      return one(reverse(array(0), int_list(op, "dimensions")));
    case OpCode::kSlice:
      return one(slice(array(0), {int_list(op, "start_indices"), int_list(op, "limit_indices"),
                                  int_list(op, "strides")}));
    case OpCode::kRealDynamicSlice:
      return one(slice(array(0), {numbers(array(1)), numbers(array(2)), numbers(array(3))}));
    case OpCode::kDynamicSlice:
      return one(dynamic_slice(array(0), arrays(operands, 1, operands.size() - 1),
                               int_list(op, "slice_sizes")));
    case OpCode::kDynamicUpdateSlice:
      return one(dynamic_update_slice(std::move(array(0)), array(1),
                                      arrays(operands, 2, operands.size() - 2)));
    case OpCode::kPad:
      return one(pad(array(0), array(1),
                     {int_list(op, "edge_padding_low"), int_list(op, "edge_padding_high"),
                      int_list(op, "interior_padding")}));
    case OpCode::kDynamicPad:
      return one(
          pad(array(0), array(1), {numbers(array(2)), numbers(array(3)), numbers(array(4))}));
    case OpCode::kConcatenate:
      return one(concatenate(arrays(operands, 0, operands.size()), int_value(op, "dimension")));
    case OpCode::kIota:
      return one(iota(op.result()->type().dtype(), op.result()->type().dims(),
                      int_value(op, "iota_dimension")));
    case OpCode::kDynamicIota:
      return one(
          iota(op.result()->type().dtype(), numbers(array(0)), int_value(op, "iota_dimension")));
    case OpCode::kBitcastConvert: {
      Dims dims = array(0).dims();
      const DType to = op.result()->type().dtype();
      const int from_bits = dtype_bits(array(0).dtype());
      if (from_bits > dtype_bits(to)) dims.push_back(from_bits / dtype_bits(to));
      if (from_bits < dtype_bits(to)) dims.pop_back();
      return one(bitcast_convert(std::move(array(0)), to, dims));
    }
    case OpCode::kGetDimensionSize: {
      const int64_t size = array(0).dims()[static_cast<size_t>(int_value(op, "dimension"))];
      return one(HostArray::scalar<int32_t>(DType::kI32, static_cast<int32_t>(size)));
    }
    case OpCode::kSetDimensionSize: {
      // Arrays have their run-time sizes: what lies beyond the new size can never be seen again.
      SliceConfig config;
      config.start_indices.assign(array(0).dims().size(), 0);
      config.limit_indices = array(0).dims();
      int64_t& limit = config.limit_indices[static_cast<size_t>(int_value(op, "dimension"))];
      const int64_t size = index_at(array(1), 0);
      if (size < 0 || size > limit) {
        return invalid_argument("size {} is outside of [0, {}] for {}", size, limit,
                                array(0).shape());
      }
      limit = size;
      return one(slice(array(0), config));
    }
    case OpCode::kGather:
      return one(gather(array(0), array(1), gather_config(op, int_list(op, "slice_sizes"))));
    case OpCode::kDynamicGather:
      return one(gather(array(0), array(1), gather_config(op, numbers(array(2)))));
    case OpCode::kTorchIndexSelect:
      return one(torch_index_select(array(0), array(1), int_value(op, "dim"),
                                    int_value(op, "batch_dims")));
    default:
      return unimplemented("the evaluator does not run {}", op.name());
  }
}

// Sums of f32 in f64, rounded once: as exact as the order of the addends allows.
Result<HostArray> sum_in_f64(const HostArray& input, const HostArray& init,
                             std::span<const int64_t> dimensions) {
  HEKLA_ASSIGN_OR_RETURN(HostArray wide, convert_elements(input, DType::kF64));
  HEKLA_ASSIGN_OR_RETURN(HostArray start, convert_elements(init, DType::kF64));
  const std::unique_ptr<ScalarFunction> add = make_block_body(BinaryBody::kAdd, DType::kF64);
  HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> sums,
                         reference::reduce({&wide, 1}, {&start, 1}, dimensions, *add));
  return convert_elements(sums[0], DType::kF32);
}

Result<Data> execute_regions(const Step& step, Interpreter& interpreter, Frame& frame,
                             Data& operands) {
  const ir::Operation& op = *step.op;
  std::vector<std::unique_ptr<RegionFunction>> regions;
  for (const auto& plan : step.regions) {
    regions.push_back(std::make_unique<RegionFunction>(*plan, interpreter, frame));
  }
  const size_t half = operands.size() / 2;
  switch (op.code()) {
    case OpCode::kReduce:
      if (half == 1 && operands[0].array.dtype() == DType::kF32 &&
          regions[0]->binary_body() == BinaryBody::kAdd &&
          regions[0]->output_dtypes()[0] == DType::kF32) {
        return one(sum_in_f64(operands[0].array, operands[1].array, int_list(op, "dimensions")));
      }
      return many(reduce(arrays(operands, 0, half), arrays(operands, half, half),
                         int_list(op, "dimensions"), *regions[0]));
    case OpCode::kReduceWindow:
      return many(reduce_window(arrays(operands, 0, half), arrays(operands, half, half),
                                window_config(op), *regions[0]));
    case OpCode::kSelectAndScatter:
      return one(select_and_scatter(operands[0].array, operands[1].array, operands[2].array,
                                    window_config(op), *regions[0], *regions[1]));
    case OpCode::kMap:
      return one(map(arrays(operands, 0, operands.size()), *regions[0]));
    case OpCode::kScatter:
      return many(scatter(arrays(operands, 0, half), operands[half].array,
                          arrays(operands, half + 1, half), scatter_config(op), *regions[0]));
    case OpCode::kSort:
      return many(
          sort(arrays(operands, 0, operands.size()), int_value(op, "dimension", -1), *regions[0]));
    default:
      return unimplemented("the evaluator does not run {}", op.name());
  }
}

bool takes_lapack(const Interpreter& interpreter, const HostArray& a) {
  return interpreter.options().use_lapack && is_lapack_type(a.dtype()) &&
         lapack::table() != nullptr;
}

Result<Data> execute_algebra(const ir::Operation& op, Interpreter& interpreter, Data& operands) {
  const auto array = [&](size_t i) -> HostArray& { return operands[i].array; };
  const DType result = op.result_count() > 0 ? real_dtype(op.result()->type()) : DType::kInvalid;
  switch (op.code()) {
    case OpCode::kDot:
      return one(dot(array(0), array(1), result));
    case OpCode::kDotGeneral:
      return one(dot_general(array(0), array(1), dot_config(op), result));
    case OpCode::kConvolution:
      return one(convolution(array(0), array(1), convolution_config(op), result));
    case OpCode::kDynamicConv: {
      ConvolutionConfig config = convolution_config(op);
      config.padding.clear();
      const std::vector<int64_t> padding = numbers(array(2));
      for (size_t i = 0; i + 1 < padding.size(); i += 2) {
        config.padding.push_back({padding[i], padding[i + 1]});
      }
      return one(convolution(array(0), array(1), config, result));
    }
    case OpCode::kEinsum:
      return one(einsum(op, std::move(array(0)), std::move(array(1)), result));
    case OpCode::kUnaryEinsum:
      return one(unary_einsum(op, std::move(array(0))));
    case OpCode::kFft:
      return one(fft(array(0), fft_type(op), int_list(op, "fft_length")));
    case OpCode::kCholesky:
      if (takes_lapack(interpreter, array(0))) {
        return one(lapack_cholesky(array(0), bool_value(op, "lower"), interpreter.options()));
      }
      return one(cholesky(array(0), bool_value(op, "lower")));
    case OpCode::kTriangularSolve: {
      TriangularSolveConfig config;
      config.left_side = bool_value(op, "left_side");
      config.lower = bool_value(op, "lower");
      config.unit_diagonal = bool_value(op, "unit_diagonal");
      const std::string transpose = text_value(op, "transpose_a");
      if (transpose == "TRANSPOSE") config.transpose_a = Transpose::kTranspose;
      if (transpose == "ADJOINT") config.transpose_a = Transpose::kAdjoint;
      if (takes_lapack(interpreter, array(0))) {
        return one(lapack_triangular_solve(array(0), array(1), config, interpreter.options()));
      }
      return one(triangular_solve(array(0), array(1), config));
    }
    case OpCode::kRngBitGenerator: {
      HEKLA_ASSIGN_OR_RETURN(RngAlgorithm algorithm, rng_algorithm(op));
      HEKLA_ASSIGN_OR_RETURN(RngBits bits,
                             rng_bit_generator(array(0), algorithm, op.result(1)->type().dtype(),
                                               op.result(1)->type().dims()));
      Data data = one(std::move(bits.output_state));
      data.emplace_back(std::move(bits.output));
      return data;
    }
    case OpCode::kRng: {
      const bool is_normal = text_value(op, "rng_distribution") == "NORMAL";
      return one(rng(array(0), array(1), numbers(array(2)),
                     is_normal ? RngDistribution::kNormal : RngDistribution::kUniform,
                     interpreter.next_seed()));
    }
    case OpCode::kBatchNormTraining:
      return many(batch_norm_training(array(0), array(1), array(2),
                                      static_cast<float>(float_value(op, "epsilon")),
                                      int_value(op, "feature_index")));
    case OpCode::kBatchNormInference:
      return one(batch_norm_inference(array(0), array(1), array(2), array(3), array(4),
                                      static_cast<float>(float_value(op, "epsilon")),
                                      int_value(op, "feature_index")));
    case OpCode::kBatchNormGrad:
      return many(batch_norm_grad(array(0), array(1), array(2), array(3), array(4),
                                  static_cast<float>(float_value(op, "epsilon")),
                                  int_value(op, "feature_index")));
    default:
      return unimplemented("the evaluator does not run {}", op.name());
  }
}

// On the real values of quantized operands; the result is quantized again where its type says so.
Result<Data> execute_quantized(const ir::Operation& op, Interpreter& interpreter, Data& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Quantization* quantization = op.operand(i)->type().quantization();
    if (quantization == nullptr) continue;
    HEKLA_ASSIGN_OR_RETURN(operands[i].array, dequantize(operands[i].array, *quantization));
  }
  Data results;
  if (op.code() == OpCode::kUniformQuantize || op.code() == OpCode::kUniformDequantize) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           convert_elements(operands[0].array, real_dtype(op.result()->type())));
    results = one(std::move(array));
  } else if (ir::is_elementwise(op.code())) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, execute_elementwise(op, operands));
    results = one(std::move(array));
  } else {
    HEKLA_ASSIGN_OR_RETURN(results, execute_algebra(op, interpreter, operands));
  }
  if (const ir::Quantization* quantization = op.result()->type().quantization()) {
    HEKLA_ASSIGN_OR_RETURN(results[0].array, quantize(results[0].array, *quantization));
  }
  return results;
}

// What is neither data movement, nor a region, nor algebra.
Result<Data> execute_other(const Step& step, Interpreter& interpreter, Data& operands) {
  const ir::Operation& op = *step.op;
  switch (op.code()) {
    case OpCode::kConstant:
      return one(constant(op));
    case OpCode::kAfterAll:
    case OpCode::kCreateToken:
      return Data(1);
    case OpCode::kReplicaId:
      return one(HostArray::scalar<uint32_t>(
          DType::kUI32, static_cast<uint32_t>(interpreter.options().replica_id)));
    case OpCode::kPartitionId:
      return one(HostArray::scalar<uint32_t>(
          DType::kUI32, static_cast<uint32_t>(interpreter.options().partition_id)));
    case OpCode::kLaunchNumber:
      return one(HostArray::scalar<uint32_t>(DType::kUI32, interpreter.options().launch_number));
    // Sharding annotations mean nothing on one device.
    case OpCode::kSdyShardingConstraint:
    case OpCode::kSdyReshard:
    case OpCode::kSdyPropagationBarrier:
      return std::move(operands);
    case OpCode::kSdyShardingGroup:
      return Data();
    case OpCode::kCustomCall:
      return execute_custom_call(op, operands, interpreter.options());
    case OpCode::kCheckExpectEq:
    case OpCode::kCheckExpectEqConst:
    case OpCode::kCheckExpectAlmostEq:
    case OpCode::kCheckExpectAlmostEqConst:
    case OpCode::kCheckExpectClose:
      return execute_check(op, operands);
    default:
      return unimplemented("the evaluator does not run {}", op.name());
  }
}

}  // namespace

Status cut_to_size(const ir::Operation& op, Data& operands) {
  if (!ir::is_elementwise(op.code())) return ok_status();
  const ir::Type& type = op.result()->type();
  if (type.is_static_tensor() || type.bounds().empty()) return ok_status();
  for (size_t d = 0; d < type.dims().size(); ++d) {
    if (type.dims()[d] != ir::kDynamic) continue;
    const auto has_size = [&](size_t i) {
      const ir::Type& one = op.operand(i)->type();
      return one.rank() == type.rank() && one.dims()[d] == ir::kDynamic;
    };
    std::optional<int64_t> size;
    for (size_t i = 0; i < operands.size() && !size.has_value(); ++i) {
      if (has_size(i)) size = operands[i].array.dims()[d];
    }
    if (!size.has_value()) continue;
    for (size_t i = 0; i < operands.size(); ++i) {
      HostArray& array = operands[i].array;
      if (has_size(i) || array.rank() != type.rank() || array.dims()[d] <= *size) continue;
      SliceConfig config;
      config.start_indices.assign(array.dims().size(), 0);
      config.limit_indices = array.dims();
      config.limit_indices[d] = *size;
      HEKLA_ASSIGN_OR_RETURN(array, slice(array, config));
    }
  }
  return ok_status();
}

Result<Data> execute_op(const Step& step, Interpreter& interpreter, Frame& frame, Data& operands) {
  const ir::Operation& op = *step.op;
  if (computes_on_real_values(op) && has_quantized(op)) {
    return execute_quantized(op, interpreter, operands);
  }
  if (ir::is_elementwise(op.code())) return one(execute_elementwise(op, operands));
  switch (op.code()) {
    case OpCode::kReduce:
    case OpCode::kReduceWindow:
    case OpCode::kSelectAndScatter:
    case OpCode::kMap:
    case OpCode::kScatter:
    case OpCode::kSort:
      return execute_regions(step, interpreter, frame, operands);
    case OpCode::kDot:
    case OpCode::kDotGeneral:
    case OpCode::kConvolution:
    case OpCode::kDynamicConv:
    case OpCode::kEinsum:
    case OpCode::kUnaryEinsum:
    case OpCode::kFft:
    case OpCode::kCholesky:
    case OpCode::kTriangularSolve:
    case OpCode::kRngBitGenerator:
    case OpCode::kRng:
    case OpCode::kBatchNormTraining:
    case OpCode::kBatchNormInference:
    case OpCode::kBatchNormGrad:
      return execute_algebra(op, interpreter, operands);
    case OpCode::kBroadcastInDim:
    case OpCode::kDynamicBroadcastInDim:
    case OpCode::kBroadcast:
    case OpCode::kReshape:
    case OpCode::kDynamicReshape:
    case OpCode::kTranspose:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kRealDynamicSlice:
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kPad:
    case OpCode::kDynamicPad:
    case OpCode::kConcatenate:
    case OpCode::kIota:
    case OpCode::kDynamicIota:
    case OpCode::kBitcastConvert:
    case OpCode::kGetDimensionSize:
    case OpCode::kSetDimensionSize:
    case OpCode::kGather:
    case OpCode::kDynamicGather:
    case OpCode::kTorchIndexSelect:
      return execute_movement(op, operands);
    default:
      return execute_other(step, interpreter, operands);
  }
}

}  // namespace hekla::reference
