// SPDX-License-Identifier: Apache-2.0
#include "tools/run/compare_by_op.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <unordered_map>

#include "backends/compiler/passes/isolate.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::tools {
namespace {

Result<std::vector<HostArray>> launch(const runtime::Client& client,
                                      const runtime::Executable& executable,
                                      const std::vector<HostArray>& inputs) {
  std::vector<runtime::Buffer> buffers;
  for (const HostArray& input : inputs) {
    HEKLA_ASSIGN_OR_RETURN(runtime::Buffer buffer,
                           client.to_device(input, client.addressable_devices().front()));
    buffers.push_back(std::move(buffer));
  }
  HEKLA_ASSIGN_OR_RETURN(const runtime::Launch done, executable.launch(buffers));
  std::vector<HostArray> results;
  for (const runtime::Buffer& output : done.outputs[0]) {
    if (output.dtype() == DType::kInvalid) {  // a token
      results.emplace_back();
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray array, output.to_host());
    results.push_back(std::move(array));
  }
  return results;
}

double greatest(const HostArray& array) {
  double most = 0;
  const int64_t parts = array.size() * (is_complex(array.dtype()) ? 2 : 1);
  for (int64_t k = 0; k < parts; ++k) {
    const double value = std::fabs(element(array, k));
    if (std::isfinite(value)) most = std::max(most, value);
  }
  return most;
}

}  // namespace

Result<OpComparison> compare_by_op(std::string_view program, const std::vector<HostArray>& inputs,
                                   const runtime::Client& device, const runtime::Client& reference,
                                   std::optional<double> rtol, std::optional<double> atol) {
  HEKLA_ASSIGN_OR_RETURN(const std::unique_ptr<ir::Module> module,
                         stablehlo::read_program(program));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  const ir::Function* entry = module->entry();
  if (entry == nullptr || entry->is_declaration()) {
    return invalid_argument("the program has no entry function");
  }
  const ir::Block& block = const_cast<ir::Function*>(entry)->body().front();
  if (inputs.size() != block.argument_count()) {
    return invalid_argument("the program takes {} arguments, {} are given", block.argument_count(),
                            inputs.size());
  }
  const passes::Exposed exposed = passes::expose_values(*module);
  Result<runtime::Executable> whole = reference.compile(stablehlo::print_module(*exposed.module));
  if (!whole.ok()) return whole.status().with_context(reference.plugin().name());
  const auto values = launch(reference, *whole, inputs);
  if (!values.ok()) return values.status().with_context(reference.plugin().name());

  std::unordered_map<const ir::Value*, const HostArray*> known;
  for (size_t i = 0; i < inputs.size(); ++i) known[block.argument(i)] = &inputs[i];
  std::map<std::string, runtime::Executable> compiled;
  OpComparison result;
  const size_t count = block.operations().size() - 1;  // without the terminator
  for (size_t k = 0; k < count; ++k) {
    const ir::Operation& op = *block.operations()[k];
    bool is_visible = true;
    for (size_t r = 0; r < op.result_count(); ++r) {
      const int64_t place = exposed.places[k][r];
      is_visible &= place >= 0;
      if (place >= 0) known[op.result(r)] = &(*values)[static_cast<size_t>(place)];
    }
    const passes::SingleOperation single = passes::isolate_operation(*module, op);
    std::vector<HostArray> operands;
    for (const ir::Value* value : single.inputs) {
      is_visible &= known.contains(value);
      if (is_visible) operands.push_back(*known[value]);
    }
    if (!is_visible) {
      ++result.skipped;
      continue;
    }
    const std::string where = fmt::format("{} (operation {} of {}, {})", op.name(), k, count,
                                          ir::location_string(op.location()));
    const std::string text = stablehlo::print_module(*single.module);
    auto it = compiled.find(text);
    if (it == compiled.end()) {
      Result<runtime::Executable> executable = device.compile(text);
      if (!executable.ok()) return executable.status().with_context(where);
      it = compiled.emplace(text, *std::move(executable)).first;
    }
    const auto got = launch(device, it->second, operands);
    if (!got.ok()) return got.status().with_context(where);
    ++result.operations;
    for (size_t r = 0; r < op.result_count(); ++r) {
      const HostArray& want = *known[op.result(r)];
      Tolerance tolerance = default_tolerance(want.dtype());
      tolerance.atol *= greatest(want);
      if (rtol) tolerance.rtol = *rtol;
      if (atol) tolerance.atol = *atol;
      const Comparison comparison = compare((*got)[r], want, tolerance);
      if (comparison.passed) continue;
      result.difference = fmt::format(
          "{}, result {} {}: {}; {} of {} elements differ, tolerance {:.3g} + {:.3g} * |want|",
          where, r, want.shape(), comparison.first_difference, comparison.mismatches,
          comparison.compared, tolerance.atol, tolerance.rtol);
      return result;
    }
  }
  return result;
}

}  // namespace hekla::tools
