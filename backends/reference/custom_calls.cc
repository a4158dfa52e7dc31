// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/custom_calls.h"

#include <cmath>
#include <complex>

#include "backends/reference/assertions.h"
#include "backends/reference/kernels/kernels.h"
#include "backends/reference/lapack_calls.h"
#include "backends/reference/user_calls.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using Data = std::vector<Datum>;

bool is_identity(std::string_view target) {
  for (std::string_view name : {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape",
                                "annotate_device_placement", "LayoutConstraint"}) {
    if (target == name) return true;
  }
  return target.starts_with("xla.sdy.");
}

using Complex = std::complex<double>;

// A function of one number that older senders write as a call instead of a composite; null where
// it has no complex form.
struct NamedFunction {
  std::string_view target;
  double (*real)(double);
  Complex (*complex)(Complex);
};

constexpr NamedFunction kFunctions[] = {
    {"chlo.erf", [](double x) { return std::erf(x); }, nullptr},
    {"mhlo.erf", [](double x) { return std::erf(x); }, nullptr},
    {"mhlo.acos", [](double x) { return std::acos(x); }, [](Complex z) { return std::acos(z); }},
    {"mhlo.acosh", [](double x) { return std::acosh(x); }, [](Complex z) { return std::acosh(z); }},
    {"mhlo.asin", [](double x) { return std::asin(x); }, [](Complex z) { return std::asin(z); }},
    {"mhlo.asinh", [](double x) { return std::asinh(x); }, [](Complex z) { return std::asinh(z); }},
    {"mhlo.atanh", [](double x) { return std::atanh(x); }, [](Complex z) { return std::atanh(z); }},
    {"mhlo.cosh", [](double x) { return std::cosh(x); }, [](Complex z) { return std::cosh(z); }},
    {"mhlo.sinh", [](double x) { return std::sinh(x); }, [](Complex z) { return std::sinh(z); }},
    {"mhlo.tan", [](double x) { return std::tan(x); }, [](Complex z) { return std::tan(z); }},
};

const NamedFunction* find_function(std::string_view target) {
  for (const NamedFunction& function : kFunctions) {
    if (function.target == target) return &function;
  }
  return nullptr;
}

bool is_defined_for(const NamedFunction& function, DType dtype) {
  return is_float(dtype) || (is_complex(dtype) && function.complex != nullptr);
}

Result<Data> apply_function(const HostArray& x, const NamedFunction& function) {
  const bool on_complex = is_complex(x.dtype());
  HEKLA_ASSIGN_OR_RETURN(HostArray wide,
                         convert_elements(x, on_complex ? DType::kC128 : DType::kF64));
  if (on_complex) {
    Complex* values = wide.mutable_as<Complex>();
    for (int64_t i = 0; i < wide.size(); ++i) values[i] = function.complex(values[i]);
  } else {
    double* values = wide.mutable_as<double>();
    for (int64_t i = 0; i < wide.size(); ++i) values[i] = function.real(values[i]);
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result, convert_elements(wide, x.dtype()));
  return Data{Datum(std::move(result))};
}

const ir::DictionaryValue* call_attributes(const ir::Operation& op) {
  for (const char* name : {"mhlo.attributes", "mhlo.backend_config", "backend_config"}) {
    if (const auto* found = op.attribute(name).get<ir::DictionaryValue>()) return found;
  }
  return nullptr;
}

Result<Data> run_top_k(const ir::Operation& op, const HostArray& x) {
  const ir::DictionaryValue* attributes = call_attributes(op);
  const ir::Attribute* k = attributes == nullptr ? nullptr : attributes->find("k");
  const auto* count = k == nullptr ? nullptr : k->get<ir::IntegerValue>();
  if (count == nullptr) return invalid_argument("mhlo.topk has no attribute k");
  const ir::Attribute* largest = attributes->find("largest");
  const auto* flag = largest == nullptr ? nullptr : largest->get<ir::BoolValue>();
  HEKLA_ASSIGN_OR_RETURN(TopK best, top_k(x, count->value, flag == nullptr || flag->value));
  return Data{Datum(std::move(best.values)), Datum(std::move(best.indices))};
}

Result<Data> run_shape_assertion(const ir::Operation& op, const Data& operands) {
  if (operands.empty() || operands[0].array.dtype() != DType::kI1) {
    return invalid_argument("shape_assertion takes an i1");
  }
  if (operands[0].array.as<uint8_t>()[0] != 0) return Data();
  return Status(StatusCode::kFailedPrecondition,
                "shape assertion failed: " + text_value(op, "error_message"));
}

bool is_top_k(std::string_view target) { return target == "mhlo.topk" || target == "chlo.top_k"; }

Status check_approx_top_k(const ir::Operation& op) {
  const ApproxTopK call = approx_top_k_of(op);
  const size_t inputs = op.result_count();
  bool fits = !call.comparator.empty() && inputs > 0 && op.operand_count() == 2 * inputs;
  for (size_t i = 0; fits && i < inputs; ++i) {
    const ir::Type& from = op.operand(i)->type();
    const ir::Type& to = op.result(i)->type();
    fits = from.is_static_tensor() && to.is_static_tensor() && from.dtype() == to.dtype() &&
           from.rank() == to.rank() && call.dimension >= -from.rank() &&
           call.dimension < from.rank();
    for (size_t d = 0; fits && d < from.dims().size(); ++d) {
      const int64_t dimension = call.dimension < 0 ? call.dimension + from.rank() : call.dimension;
      fits = static_cast<int64_t>(d) == dimension ? to.dims()[d] <= from.dims()[d]
                                                  : to.dims()[d] == from.dims()[d];
    }
  }
  if (fits) return ok_status();
  return invalid_argument(
      "ApproxTopK needs a comparator, n inputs, n scalars and n results that "
      "are shorter along reduction_dim");
}

}  // namespace

bool is_approx_top_k(const ir::Operation& op) {
  return text_value(op, "call_target_name") == "ApproxTopK";
}

ApproxTopK approx_top_k_of(const ir::Operation& op) {
  ApproxTopK call;
  if (const auto* called = op.attribute("called_computations").get<ir::ArrayValue>()) {
    if (!called->elements.empty()) {
      if (const auto* name = called->elements[0].get<ir::SymbolValue>()) {
        call.comparator = name->root;
      }
    }
  }
  if (const ir::DictionaryValue* attributes = call_attributes(op)) {
    const ir::Attribute* dimension = attributes->find("reduction_dim");
    const auto* number = dimension == nullptr ? nullptr : dimension->get<ir::IntegerValue>();
    if (number != nullptr) call.dimension = number->value;
  }
  return call;
}

Status check_custom_call(const ir::Operation& op) {
  if (is_approx_top_k(op)) return check_approx_top_k(op);
  const std::string target = text_value(op, "call_target_name");
  if (is_lapack_call(target)) return check_lapack_call(op);
  // The verifier knows nothing of what a target takes.
  const auto takes = [&](size_t operands, size_t results) {
    bool fits = op.operand_count() == operands && op.result_count() == results;
    for (const ir::Value* operand : op.operands()) fits = fits && operand->type().is_tensor();
    if (fits) return ok_status();
    return unimplemented("custom call {} with these operands and results; it takes {} and gives {}",
                         target, operands, results);
  };
  if (is_identity(target)) {
    if (op.operand_count() == op.result_count()) return ok_status();
    return unimplemented("custom call {} with {} operands and {} results", target,
                         op.operand_count(), op.result_count());
  }
  if (target == "dce_sink") return op.result_count() == 0 ? ok_status() : takes(1, 0);
  if (target == "Qr" || target == "ProductOfElementaryHouseholderReflectors") {
    const bool is_qr = target == "Qr";
    HEKLA_RETURN_IF_ERROR(is_qr ? takes(1, 2) : takes(2, 1));
    const ir::Type& a = op.operand(0)->type();
    const bool is_matrix = a.rank() >= 2 && (a.dtype() == DType::kF32 || a.dtype() == DType::kF64 ||
                                             is_complex(a.dtype()));
    if (!is_matrix) return unimplemented("{} of {}", target, a.to_string());
    return ok_status();
  }
  if (is_top_k(target)) {
    HEKLA_RETURN_IF_ERROR(takes(1, 2));
    if (op.operand(0)->type().rank() >= 1 && !is_complex(op.operand(0)->type().dtype())) {
      return ok_status();
    }
    return unimplemented("{} of {}", target, op.operand(0)->type().to_string());
  }
  if (target == "shape_assertion") {
    return op.operand_count() >= 1 && op.operand(0)->type().is_tensor() && op.result_count() == 0
               ? ok_status()
               : takes(1, 0);
  }
  if (is_assertion(target)) {
    return op.operand_count() == 1 ? takes(1, 0) : takes(2, 0);
  }
  if (const NamedFunction* function = find_function(target)) {
    HEKLA_RETURN_IF_ERROR(takes(1, 1));
    if (is_defined_for(*function, op.operand(0)->type().dtype())) return ok_status();
    return unimplemented("{} of {}", target, op.operand(0)->type().to_string());
  }
  return check_user_call(op);
}

bool is_user_call(const ir::Operation& op) {
  if (op.code() != ir::OpCode::kCustomCall) return false;
  const std::string target = text_value(op, "call_target_name");
  return !is_approx_top_k(op) && !is_lapack_call(target) && !is_identity(target) &&
         target != "dce_sink" && target != "Qr" &&
         target != "ProductOfElementaryHouseholderReflectors" && !is_top_k(target) &&
         target != "shape_assertion" && !is_assertion(target) && find_function(target) == nullptr;
}

bool is_known_composite(const ir::Operation& op) {
  if (op.code() != ir::OpCode::kComposite || op.operand_count() != 1) return false;
  const ir::Type& type = op.operand(0)->type();
  return text_value(op, "name") == "chlo.erf" && type.is_tensor() &&
         type.quantization() == nullptr && is_float(type.dtype());
}

Result<Data> execute_composite(const ir::Operation& op, const Data& operands) {
  return apply_function(operands[0].array, *find_function(text_value(op, "name")));
}

Result<Data> execute_custom_call(const ir::Operation& op, Data& operands,
                                 const EvaluateOptions& options) {
  const std::string target = text_value(op, "call_target_name");
  if (is_lapack_call(target)) return execute_lapack_call(op, operands, options);
  if (is_identity(target)) return std::move(operands);
  if (target == "dce_sink") return Data();
  if (target == "Qr") {
    HEKLA_ASSIGN_OR_RETURN(Qr qr, householder_qr(operands[0].array));
    return Data{Datum(std::move(qr.packed)), Datum(std::move(qr.taus))};
  }
  if (target == "ProductOfElementaryHouseholderReflectors") {
    HEKLA_ASSIGN_OR_RETURN(HostArray q, householder_product(operands[0].array, operands[1].array));
    return Data{Datum(std::move(q))};
  }
  if (const NamedFunction* function = find_function(target)) {
    return apply_function(operands[0].array, *function);
  }
  if (is_top_k(target)) return run_top_k(op, operands[0].array);
  if (target == "shape_assertion") return run_shape_assertion(op, operands);
  if (is_assertion(target)) return run_assertion(target, op, operands);
  return execute_user_call(op, operands, options);
}

Result<Data> execute_check(const ir::Operation& op, Data& operands) {
  return run_assertion(op.name(), op, operands);
}

}  // namespace hekla::reference
