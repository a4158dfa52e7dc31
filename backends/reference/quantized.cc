// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/quantized.h"

#include <algorithm>
#include <cmath>

#include "backends/reference/kernels/convert.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

// Calls f(element, parameter index): 0 per tensor, the index along the axis otherwise.
template <typename F>
void for_each_parameter(const Dims& dims, const ir::Quantization& quantization, F f) {
  const int64_t count = element_count(dims);
  int64_t inner = 1;
  int64_t along = 1;
  if (quantization.axis >= 0) {
    const size_t axis = static_cast<size_t>(quantization.axis);
    along = dims[axis];
    for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  }
  for (int64_t i = 0; i < count; ++i) f(i, static_cast<size_t>(i / inner % along));
}

Status check_parameters(const HostArray& x, const ir::Quantization& quantization) {
  size_t wanted = 1;
  if (quantization.axis >= x.rank()) {
    return invalid_argument("the quantized dimension {} is not one of {}", quantization.axis,
                            x.shape());
  }
  if (quantization.axis >= 0) {
    wanted = static_cast<size_t>(x.dims()[static_cast<size_t>(quantization.axis)]);
  }
  if (quantization.scales.size() != wanted || quantization.zero_points.size() != wanted) {
    return invalid_argument("{} needs {} scales and zero points, its type has {} and {}", x.shape(),
                            wanted, quantization.scales.size(), quantization.zero_points.size());
  }
  return ok_status();
}

// f32 arithmetic unless the expressed type is wider: that is the type that results are defined in.
template <typename F>
decltype(auto) visit_real(DType expressed, F&& f) {
  return expressed == DType::kF64 ? f(double{}) : f(float{});
}

bool moves_elements(OpCode code) {
  switch (code) {
    case OpCode::kAllGather:
    case OpCode::kAllToAll:
    case OpCode::kBroadcastInDim:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kConcatenate:
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kGather:
    case OpCode::kPad:
    case OpCode::kRecv:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSend:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return true;
    default:
      return false;
  }
}

bool passes_values_on(OpCode code) {
  switch (code) {
    case OpCode::kCase:
    case OpCode::kComposite:
    case OpCode::kConstant:
    case OpCode::kFuncCall:
    case OpCode::kFuncReturn:
    case OpCode::kGetTupleElement:
    case OpCode::kIf:
    case OpCode::kOptimizationBarrier:
    case OpCode::kReturn:
    case OpCode::kTuple:
    case OpCode::kWhile:
      return true;
    default:
      return false;
  }
}

// What they do with elements is their region's, whose operations compute on real values.
bool applies_region(OpCode code) {
  switch (code) {
    case OpCode::kAllReduce:
    case OpCode::kCollectiveReduce:
    case OpCode::kMap:
    case OpCode::kReduce:
    case OpCode::kReduceScatter:
    case OpCode::kReduceWindow:
    case OpCode::kScatter:
    case OpCode::kSelectAndScatter:
    case OpCode::kSort:
      return true;
    default:
      return false;
  }
}

// The same integers mean the same numbers, wherever the axis has moved to.
bool same_parameters(const ir::Quantization& a, const ir::Quantization& b) {
  return a.storage == b.storage && a.expressed == b.expressed && a.scales == b.scales &&
         a.zero_points == b.zero_points;
}

}  // namespace

DType real_dtype(const ir::Type& type) {
  const ir::Quantization* quantization = type.quantization();
  return quantization == nullptr ? type.dtype() : quantization->expressed;
}

Result<HostArray> dequantize(const HostArray& stored, const ir::Quantization& quantization) {
  HEKLA_RETURN_IF_ERROR(check_parameters(stored, quantization));
  return visit_real(quantization.expressed, [&](auto zero) -> Result<HostArray> {
    using T = decltype(zero);
    const DType wide = sizeof(T) == 8 ? DType::kF64 : DType::kF32;
    HEKLA_ASSIGN_OR_RETURN(HostArray integers, convert_elements(stored, DType::kI64));
    HEKLA_ASSIGN_OR_RETURN(HostArray real, HostArray::allocate(wide, stored.dims(), false));
    const int64_t* q = integers.as<int64_t>();
    T* out = real.mutable_as<T>();
    for_each_parameter(stored.dims(), quantization, [&](int64_t i, size_t p) {
      out[i] = static_cast<T>(q[i] - quantization.zero_points[p]) *
               static_cast<T>(quantization.scales[p]);
    });
    return convert_elements(real, quantization.expressed);
  });
}

Result<HostArray> quantize(const HostArray& real, const ir::Quantization& quantization) {
  HEKLA_RETURN_IF_ERROR(check_parameters(real, quantization));
  return visit_real(quantization.expressed, [&](auto zero) -> Result<HostArray> {
    using T = decltype(zero);
    HEKLA_ASSIGN_OR_RETURN(HostArray wide,
                           convert_elements(real, sizeof(T) == 8 ? DType::kF64 : DType::kF32));
    HEKLA_ASSIGN_OR_RETURN(HostArray integers,
                           HostArray::allocate(DType::kI64, real.dims(), false));
    const T* x = wide.as<T>();
    int64_t* out = integers.mutable_as<int64_t>();
    const T low = static_cast<T>(quantization.storage_min);
    const T high = static_cast<T>(quantization.storage_max);
    for_each_parameter(real.dims(), quantization, [&](int64_t i, size_t p) {
      const T zero_point = static_cast<T>(quantization.zero_points[p]);
      const T value = x[i] / static_cast<T>(quantization.scales[p]) + zero_point;
      if (std::isnan(value)) {
        out[i] = quantization.zero_points[p];
      } else if (value >= high) {  // the limit itself may not be exact in T
        out[i] = quantization.storage_max;
      } else {
        out[i] = static_cast<int64_t>(std::nearbyint(std::max(value, low)));
      }
    });
    return convert_elements(integers, quantization.storage);
  });
}

bool has_quantized(const ir::Operation& op) {
  const auto is_quantized = [](const ir::Type& type) { return type.quantization() != nullptr; };
  for (const ir::Value* operand : op.operands()) {
    if (is_quantized(operand->type())) return true;
  }
  return std::ranges::any_of(op.result_types(), is_quantized);
}

bool computes_on_real_values(const ir::Operation& op) {
  switch (op.code()) {
    case OpCode::kBitcastConvert:
    case OpCode::kConvert:
      return false;
    case OpCode::kConvolution:
    case OpCode::kDot:
    case OpCode::kDotGeneral:
      return true;
    default:
      return ir::is_elementwise(op.code());
  }
}

Status check_quantized(const ir::Operation& op) {
  if (computes_on_real_values(op) || passes_values_on(op.code())) return ok_status();
  const ir::Quantization* first = nullptr;
  bool is_same = true;
  std::string text;
  const auto look = [&](const ir::Type& type) {
    if (type.quantization() == nullptr) return;
    if (first == nullptr) {
      first = type.quantization();
      text = type.to_string();
    }
    is_same = is_same && same_parameters(*first, *type.quantization());
  };
  for (const ir::Value* operand : op.operands()) look(operand->type());
  for (const ir::Type& type : op.result_types()) look(type);
  if (applies_region(op.code())) {
    // A region sees single elements, which have lost their place on the axis.
    if (first->axis >= 0) return unimplemented("a scale per index of an axis here ({})", text);
  } else if (!moves_elements(op.code())) {
    return unimplemented("quantized types here ({})", text);
  }
  if (!is_same) return unimplemented("a change of quantization ({})", text);
  return ok_status();
}

}  // namespace hekla::reference
