// SPDX-License-Identifier: Apache-2.0
// make_program: from the client's bytes to what executables share.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/bounded_dims.h"
#include "backends/pjrt/client_options.h"
#include "backends/pjrt/placements.h"
#include "runtime/base/sha256.h"
#include "runtime/program/hlo/read_hlo.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::pjrt {
namespace {

std::string text_of(const ir::AttributeMap& attributes, std::string_view name) {
  const auto* text = attributes.get(name).get<ir::StringValue>();
  return text == nullptr ? std::string() : text->value;
}

Result<std::vector<ArrayInfo>> describe(const std::vector<ir::Type>& types,
                                        const std::vector<ir::AttributeMap>& attributes,
                                        std::string_view what) {
  std::vector<ArrayInfo> infos;
  for (size_t i = 0; i < types.size(); ++i) {
    for (const ir::Type& leaf : ir::flat_types({types[i]})) {
      ArrayInfo info;
      if (!leaf.is_token()) {
        HEKLA_ASSIGN_OR_RETURN(const auto bounded, bounded_dims({leaf}, what));
        for (const BoundedDim& one : bounded) info.bounded.push_back(one.dim);
        info.dtype = leaf.dtype();
        info.dims = at_its_bounds(leaf).dims();
        HEKLA_RETURN_IF_ERROR(check_rank(info.dims.size()));
        HEKLA_RETURN_IF_ERROR(checked_bytes(info.dtype, info.dims).status());
      }
      if (i < attributes.size()) {
        const std::string kind = text_of(attributes[i], "mhlo.memory_kind");
        if (!kind.empty()) info.memory_kind = kind;
        const std::string mode = text_of(attributes[i], "mhlo.layout_mode");
        if (!mode.empty() && mode != "default" && mode != "auto") {
          Result<Order> order = read_layout(mode, info.dims.size());
          if (!order.ok()) return order.status().with_context(fmt::format("{} {}", what, i));
          info.order = *std::move(order);
        }
      }
      infos.push_back(std::move(info));
    }
  }
  return infos;
}

bool is_donor(const ir::AttributeMap& attributes) {
  const auto* donor = attributes.get("jax.buffer_donor").get<ir::BoolValue>();
  return donor != nullptr && donor->value;
}

// Which parameters a launch consumes: those that share memory with a result by the client's word,
// and of the others that it may consume those whose memory a result of one device can take: one of
// equal size and kind of memory for each. The client keeps the rest, as with XLA's clients; only
// after partitioning is it known what fits.
std::vector<bool> donated_parameters(const Program& program,
                                     const std::vector<ir::AttributeMap>& attributes) {
  const size_t count = std::min(attributes.size(), program.parameters.size());
  std::vector<bool> is_donated(program.parameters.size());
  std::vector<bool> is_taken(program.results.size());
  for (size_t i = 0; i < count; ++i) {
    const ir::Attribute& alias = attributes[i].get("tf.aliasing_output");
    is_donated[i] = !alias.is_absent();
    const auto* result = alias.get<ir::IntegerValue>();
    if (result != nullptr && result->value >= 0 &&
        result->value < static_cast<int64_t>(is_taken.size())) {
      is_taken[static_cast<size_t>(result->value)] = true;
    }
  }
  // By what may be exchanged: results that are left, as many as there are.
  std::map<std::pair<int64_t, std::string_view>, int64_t> free;
  for (size_t o = 0; o < is_taken.size(); ++o) {
    const ArrayInfo& result = program.results[o];
    if (!is_taken[o]) ++free[{result.size_bytes(), result.memory_kind}];
  }
  for (size_t i = 0; i < count; ++i) {
    if (is_donated[i] || !is_donor(attributes[i])) continue;
    const ArrayInfo& parameter = program.parameters[i];
    int64_t& left = free[{parameter.size_bytes(), parameter.memory_kind}];
    if (left == 0) continue;
    --left;
    is_donated[i] = true;
  }
  return is_donated;
}

void fill_queries(Program& program) {
  for (const ArrayInfo& result : program.results) {
    program.result_types.push_back(to_buffer_type(result.dtype));
    program.result_dims.insert(program.result_dims.end(), result.dims.begin(), result.dims.end());
    program.result_ranks.push_back(result.dims.size());
    program.result_kinds.push_back(result.memory_kind.c_str());
    program.result_kind_sizes.push_back(result.memory_kind.size());
  }
  for (const ArrayInfo& parameter : program.parameters) {
    program.parameter_kinds.push_back(parameter.memory_kind.c_str());
    program.parameter_kind_sizes.push_back(parameter.memory_kind.size());
  }
  const auto add_layouts = [&](const std::vector<ArrayInfo>& infos,
                               std::vector<PJRT_Layouts_MemoryLayout*>& out) {
    for (const ArrayInfo& info : infos) {
      program.layouts.push_back(std::make_unique<PJRT_Layouts_MemoryLayout>(
          PJRT_Layouts_MemoryLayout{layout_text(info.order, info.dims.size())}));
      out.push_back(program.layouts.back().get());
    }
  };
  add_layouts(program.parameters, program.parameter_layouts);
  add_layouts(program.results, program.result_layouts);
  const auto add_shardings = [](const std::vector<sharding::HloSharding>& shardings,
                                std::vector<std::string>& texts, std::vector<const char*>& pointers,
                                std::vector<size_t>& sizes) {
    for (const sharding::HloSharding& one : shardings) {
      // What is replicated is an OpSharding without fields.
      const bool is_plain = one.kind == sharding::HloSharding::Kind::kReplicated;
      texts.push_back(is_plain ? std::string() : sharding::encode_op_sharding(one));
    }
    for (const std::string& text : texts) {
      pointers.push_back(text.data());
      sizes.push_back(text.size());
    }
  };
  add_shardings(program.partitioned.parameters, program.parameter_shardings,
                program.parameter_sharding_pointers, program.parameter_sharding_sizes);
  add_shardings(program.partitioned.results, program.result_shardings,
                program.result_sharding_pointers, program.result_sharding_sizes);
}

// Of arrays, each from the fastest dimension to the slowest one.
ir::ArrayValue layout_lists(const std::vector<ArrayInfo>& infos) {
  ir::ArrayValue lists;
  for (const ArrayInfo& info : infos) {
    Order order = info.order;
    if (order.empty()) {
      order.resize(info.dims.size());
      std::iota(order.rbegin(), order.rend(), 0);
    }
    const Dims dims = {static_cast<int64_t>(order.size())};
    lists.elements.push_back(ir::make_dense(ir::Type::tensor(ir::Type::index(), dims),
                                            HostArray::from<int64_t>(DType::kI64, dims, order)));
  }
  return lists;
}

// The program of one device with its shardings, and the layouts of `program` where one is not
// row-major, where clients look that do not know the extensions: attributes of the module.
std::string with_attributes(const Program& program) {
  const PartitionedProgram& partitioned = program.partitioned;
  const std::unique_ptr<ir::Module> module = ir::clone_module(*partitioned.module);
  erase_sharding_constraints(*module);
  const auto text_of = [](const sharding::HloSharding& one) {
    return ir::Attribute(ir::StringValue{to_text(one)});
  };
  ir::ArrayValue parameters;
  for (const auto& one : partitioned.parameters) parameters.elements.push_back(text_of(one));
  sharding::HloSharding results;
  results.kind = sharding::HloSharding::Kind::kTuple;
  results.elements = partitioned.results;
  // Of an empty tuple clients want one, too.
  if (results.elements.empty()) results.elements.emplace_back();
  const bool is_one = partitioned.results.size() == 1;
  const ir::Type i32 = ir::Type::scalar(DType::kI32);
  const CompileOptions& options = program.parsed_options;
  module->attributes.set("mhlo.num_replicas", ir::IntegerValue{i32, options.replica_count});
  module->attributes.set("mhlo.num_partitions", ir::IntegerValue{i32, options.partition_count});
  if (options.partition_count > 1) {
    module->attributes.set("mhlo.spmd_parameters_shardings", std::move(parameters));
    module->attributes.set("mhlo.spmd_output_sharding",
                           text_of(is_one ? partitioned.results.front() : results));
  }
  if (program.in_memory != partitioned.module) {
    module->attributes.set("mhlo.xla_entry_computation_parameter_layouts",
                           layout_lists(program.parameters));
    module->attributes.set("mhlo.xla_entry_computation_result_layout",
                           layout_lists(program.results));
  }
  return stablehlo::print_module(*module);
}

// The sizes that launches have, of arrays by their numbers.
std::vector<BoundedDim> sizes_of(const std::vector<ArrayInfo>& infos) {
  std::vector<BoundedDim> sizes;
  for (size_t i = 0; i < infos.size(); ++i) {
    for (const size_t dim : infos[i].bounded) sizes.push_back({i, dim});
  }
  return sizes;
}

std::vector<Order> orders_of(const std::vector<ArrayInfo>& infos) {
  std::vector<Order> orders;
  for (const ArrayInfo& info : infos) orders.push_back(info.order);
  return orders;
}

// Chooses the layouts that the client leaves open, and makes the program on arrays as they lie in
// memory.
void lay_out(Program& program) {
  const std::shared_ptr<const ir::Module>& module = program.partitioned.module;
  const ir::Function& entry = *module->entry();
  // Of what is in tuples clients ask for no layout.
  const size_t results = entry.type.results().size();
  for (size_t i = 0; i < entry.result_attributes.size(); ++i) {
    if (results != program.results.size() || i >= results) break;
    if (text_of(entry.result_attributes[i], "mhlo.layout_mode") != "auto") continue;
    program.results[i].order = free_order(*module, i);
  }
  const std::vector<Order> parameter_orders = orders_of(program.parameters);
  const std::vector<Order> result_orders = orders_of(program.results);
  const auto is_plain = [](const std::vector<Order>& orders) {
    return std::ranges::all_of(orders, [](const Order& order) { return order.empty(); });
  };
  program.in_memory = module;
  if (is_plain(parameter_orders) && is_plain(result_orders)) return;
  std::shared_ptr<ir::Module> moved = ir::clone_module(*module);
  apply_orders(*moved, parameter_orders, result_orders);
  program.in_memory = std::move(moved);
}

// Where dimensions are bounded, what is compiled has their sizes too.
Status add_sizes(Program& program) {
  const std::vector<BoundedDim> parameters = sizes_of(program.parameters);
  const std::vector<BoundedDim> results = sizes_of(program.results);
  if (parameters.empty() && results.empty()) return ok_status();
  const ir::Function& entry = *program.in_memory->entry();
  const CompileOptions& options = program.parsed_options;
  const char* what = options.partition_count * options.replica_count > 1 ? "more than one device"
                     : program.in_memory != program.partitioned.module
                         ? "layouts that are not row-major"
                     : entry.type.elements().size() != program.parameters.size() ||
                             entry.type.results().size() != program.results.size()
                         ? "tuples"
                         : nullptr;
  if (what != nullptr) {
    return unimplemented(
        "{} has parameters or results with bounded dynamic dimensions and {}; make their sizes "
        "fixed, under PyTorch/XLA by leaving XLA_EXPERIMENTAL unset",
        program.name, what);
  }
  std::shared_ptr<ir::Module> sized = ir::clone_module(*program.in_memory);
  expose_sizes(*sized, parameters, results);
  HEKLA_RETURN_IF_ERROR(ir::verify(*sized));
  program.in_memory = std::move(sized);
  return ok_status();
}

// Of the options only what is acted on, in one order: as bytes they hold maps, whose order differs
// from process to process.
std::string fingerprint_of(const std::string& code, CompileOptions options) {
  std::sort(options.overrides.begin(), options.overrides.end());
  std::string text =
      fmt::format("{} {} {} {} [{}]", options.replica_count, options.partition_count,
                  options.is_tupled, options.is_portable, fmt::join(options.device_ids, ","));
  if (options.partition_count > 1) {
    text += fmt::format(" {} [{}] [{}]", options.use_spmd_partitioning,
                        fmt::join(options.may_choose_parameters, ","),
                        fmt::join(options.may_choose_results, ","));
  }
  for (const auto& [name, value] : options.overrides)
    text += fmt::format(" {}:{}={}:{}", name.size(), name, value.size(), value);
  Sha256 digest;
  digest.update(std::as_bytes(std::span(text)));
  digest.update(std::as_bytes(std::span("", 1)));
  digest.update(std::as_bytes(std::span(code)));
  return digest.hex();
}

}  // namespace

Program::Printed Program::optimized() const {
  // One device's program is what the client sent, unless it asks for layouts.
  const auto has_order = [](const ArrayInfo& info) { return !info.order.empty(); };
  const bool is_one = parsed_options.partition_count == 1 &&
                      std::ranges::none_of(parameters, has_order) &&
                      std::ranges::none_of(results, has_order);
  const bool is_hlo = hlo::is_hlo_module(code);
  if (is_one && !is_hlo) return {"mlir", code};
  std::call_once(made_optimized_, [&] {
    Result<std::string> with_config =
        is_one ? hlo::with_config(code) : Result<std::string>(std::string());
    if (is_one && with_config.ok()) {
      optimized_format_ = "hlo_with_config";
      optimized_ = *std::move(with_config);
    } else {
      optimized_ = with_attributes(*this);
    }
  });
  return {optimized_format_, optimized_};
}

Result<std::shared_ptr<Program>> make_program(std::string_view code, std::string_view options,
                                              const OneDeviceShardings* one_device) {
  auto program = std::make_shared<Program>();
  program->code = std::string(code);
  program->options = std::string(options);
  Result<CompileOptions> parsed = parse_compile_options(options);
  if (!parsed.ok()) {
    return invalid_argument("PJRT_Client_Compile: failed to deserialize CompileOptionsProto: {}",
                            parsed.status().message());
  }
  program->parsed_options = *std::move(parsed);
  const auto& overrides = program->parsed_options.overrides;
  HEKLA_ASSIGN_OR_RETURN(program->compiler_options,
                         read_compiler_options({overrides.begin(), overrides.end()}));
  // The program owns the bytes, so constants may be read in place; it outlives its module.
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module,
                         stablehlo::read_program(program->code));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  if (module->entry() == nullptr || module->entry()->is_declaration()) {
    return invalid_argument("the program has no entry: a function @main, or one public function");
  }
  program->asks_for_host_compute = asks_for_host_compute(*module);
  take_placements(*module);
  if (one_device == nullptr) {
    HEKLA_ASSIGN_OR_RETURN(
        program->partitioned,
        partition(std::move(module), program->parsed_options, program->compiler_options.partition));
  } else {
    program->partitioned = partitioned_already(std::move(module));
    program->partitioned.parameters = one_device->parameters;
    program->partitioned.results = one_device->results;
  }
  const ir::Module& local = *program->partitioned.module;
  const ir::Function* entry = local.entry();
  program->name = local.name.empty() ? "main" : local.name;
  HEKLA_ASSIGN_OR_RETURN(program->parameters,
                         describe(entry->type.elements(), entry->argument_attributes, "parameter"));
  HEKLA_ASSIGN_OR_RETURN(program->results,
                         describe(entry->type.results(), entry->result_attributes, "result"));
  if (program->parameters.size() != program->partitioned.parameters.size() ||
      program->results.size() != program->partitioned.results.size()) {
    return invalid_argument("the program has {} parameters and {} results, {} and {} shardings",
                            program->parameters.size(), program->results.size(),
                            program->partitioned.parameters.size(),
                            program->partitioned.results.size());
  }
  lay_out(*program);
  HEKLA_RETURN_IF_ERROR(add_sizes(*program));
  program->is_donated = donated_parameters(*program, entry->argument_attributes);
  // The client names its functions by numbers that mean something else in the next process.
  program->fingerprint = fingerprint_of(
      program->partitioned.has_custom_partitions ? stablehlo::print_module(local) : program->code,
      program->parsed_options);
  fill_queries(*program);
  return program;
}

}  // namespace hekla::pjrt
