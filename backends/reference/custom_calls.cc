// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/custom_calls.h"

#include <cmath>

#include "backends/reference/assertions.h"
#include "backends/reference/kernels/kernels.h"
#include "backends/reference/op_attributes.h"

namespace hekla::reference {
namespace {

using Data = std::vector<Datum>;

bool is_identity(std::string_view target) {
  for (std::string_view name :
       {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement",
        "LayoutConstraint", "CustomSPMDPartitioning"}) {
    if (target == name) return true;
  }
  return target.starts_with("xla.sdy.");
}

// Functions of one number that older senders write as calls instead of composites.
double (*unary_function(std::string_view target))(double) {
  if (target == "mhlo.erf" || target == "chlo.erf") return [](double x) { return std::erf(x); };
  if (target == "mhlo.acos") return [](double x) { return std::acos(x); };
  if (target == "mhlo.asin") return [](double x) { return std::asin(x); };
  if (target == "mhlo.acosh") return [](double x) { return std::acosh(x); };
  if (target == "mhlo.asinh") return [](double x) { return std::asinh(x); };
  if (target == "mhlo.atanh") return [](double x) { return std::atanh(x); };
  if (target == "mhlo.cosh") return [](double x) { return std::cosh(x); };
  if (target == "mhlo.sinh") return [](double x) { return std::sinh(x); };
  if (target == "mhlo.tan") return [](double x) { return std::tan(x); };
  return nullptr;
}

Result<Data> apply_function(const HostArray& x, double (*function)(double)) {
  if (!is_float(x.dtype())) return unimplemented("this function is not defined for {}", x.shape());
  HEKLA_ASSIGN_OR_RETURN(HostArray wide, convert_elements(x, DType::kF64));
  double* values = wide.mutable_as<double>();
  for (int64_t i = 0; i < wide.size(); ++i) values[i] = function(values[i]);
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

}  // namespace

Status check_custom_call(const ir::Operation& op) {
  const std::string target = text_value(op, "call_target_name");
  if (is_identity(target)) {
    if (op.operand_count() == op.result_count()) return ok_status();
    return unimplemented("custom call {} with {} operands and {} results", target,
                         op.operand_count(), op.result_count());
  }
  if (unary_function(target) != nullptr || is_top_k(target) || target == "Qr" ||
      target == "ProductOfElementaryHouseholderReflectors" || target == "shape_assertion" ||
      target == "dce_sink" || is_assertion(target)) {
    return ok_status();
  }
  return unimplemented("custom call target {}", target);
}

Result<Data> execute_custom_call(const ir::Operation& op, Data& operands) {
  const std::string target = text_value(op, "call_target_name");
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
  if (auto* function = unary_function(target)) return apply_function(operands[0].array, function);
  if (is_top_k(target)) return run_top_k(op, operands[0].array);
  if (target == "shape_assertion") return run_shape_assertion(op, operands);
  if (is_assertion(target)) return run_assertion(target, op, operands);
  return unimplemented("custom call target {}", target);
}

Result<Data> execute_check(const ir::Operation& op, Data& operands) {
  return run_assertion(op.name(), op, operands);
}

}  // namespace hekla::reference
