// SPDX-License-Identifier: Apache-2.0
#include "tests/random/check.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <sstream>
#include <unordered_map>

#include "backends/compiler/passes/isolate.h"
#include "backends/compiler/spmd/partition_program.h"
#include "backends/reference/evaluator.h"
#include "runtime/base/hash.h"
#include "runtime/client/open.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"
#include "tests/random/attention.h"
#include "tests/random/manual.h"
#include "tests/random/partitions.h"
#include "tests/random/tolerance.h"

namespace hekla::testing {
namespace {

using ir::OpCode;

constexpr std::string_view kCheckedWith = "// Checked with:";  // opens CheckOptions in a text

// Teams of attention on matrix units, for any that have 8 or 16 rows, columns and products.
constexpr std::array kMatrixTiles = {"1x16x16", "2x16x32", "4x32x16", "2x48x32"};

class PluginDevice : public Device {
 public:
  PluginDevice(std::string name, runtime::Client client)
      : name_(std::move(name)), client_(std::move(client)) {
    kept_subnormals_ = parse_kept_subnormals(
        client_.addressable_devices()[0].string_attribute("subnormals_as_zero"));
  }
  const std::string& name() const override { return name_; }

  Result<std::vector<std::vector<HostArray>>> run(const ir::Module& module,
                                                  const std::vector<HostArray>& inputs,
                                                  const std::vector<std::string>& forms,
                                                  int launches) override {
    if (manual_copies(module) > 1) return run_copies(module, inputs, forms, launches);
    return run_program(module, inputs, forms, launches);
  }

 private:
  using Results = std::vector<HostArray>;

  // In a manual computation whose copies have inputs of their own. What the first gives is the
  // result; what any gives must have the bits that another one gives of the same inputs.
  Result<std::vector<Results>> run_copies(const ir::Module& module, const Results& inputs,
                                          const std::vector<std::string>& forms, int launches) {
    const std::unique_ptr<ir::Module> manual = in_manual_computation(module);
    const auto copies = static_cast<size_t>(manual_copies(module));
    std::vector<Results> own(copies);  // inputs by copy
    own[0] = inputs;
    for (size_t c = 1; c < copies; ++c) {
      for (const HostArray& input : own[c - 1]) own[c].push_back(rotated(input));
    }
    const auto launch = [&](size_t first, int times) {
      Results stacks;
      for (size_t i = 0; i < inputs.size(); ++i) {
        Results arrays;
        for (size_t c = 0; c < copies; ++c) arrays.push_back(own[(c + first) % copies][i]);
        stacks.push_back(stacked(arrays));
      }
      return run_program(*manual, stacks, forms, times);
    };
    HEKLA_ASSIGN_OR_RETURN(const std::vector<Results> all, launch(0, launches));
    HEKLA_ASSIGN_OR_RETURN(const std::vector<Results> moved, launch(1, 1));
    std::vector<Results> firsts(all.size());
    for (size_t r = 0; r < all[0].size(); ++r) {
      for (size_t c = 0; c < copies; ++c) {
        const HostArray one = nth_of(all[0][r], (c + 1) % copies);
        const HostArray other = nth_of(moved[0][r], c);
        if (!std::ranges::equal(one.bytes(), other.bytes())) {
          return internal_error(
              "of the same inputs copies {} and {} of the manual computation "
              "give result {} with other bits",
              (c + 1) % copies, c, r);
        }
      }
      for (size_t k = 0; k < all.size(); ++k) firsts[k].push_back(nth_of(all[k][r], 0));
    }
    return firsts;
  }

  Result<std::vector<Results>> run_program(const ir::Module& module, const Results& inputs,
                                           const std::vector<std::string>& forms, int launches) {
    runtime::CompileOptions options;
    for (const std::string& option : forms) {
      const size_t at = option.find('=');
      const std::string value = option.substr(at + 1);
      if (value == "true" || value == "false") {
        options.overrides.emplace_back(option.substr(0, at), value == "true");
      } else {
        options.overrides.emplace_back(option.substr(0, at), value);
      }
    }
    const int64_t partitions = partition_count(module);
    options.num_partitions = partitions;
    options.allow_sharding_propagation_to_parameters = false;
    // What the plugin says of parameters and results, from the pass that it runs: wrong shardings
    // would show as wrong values.
    spmd::PartitionOptions partition;
    partition.partitions = partitions;
    partition.may_choose_results = {true};
    partition.schedule = partition_schedule(forms);
    spmd::OneDeviceProgram known;
    if (partitions > 1) {
      HEKLA_ASSIGN_OR_RETURN(known, spmd::partition_program(module, partition));
      count_partitioning(partition.schedule, known.counts);
    } else {
      known.parameters.resize(inputs.size());
      known.results.resize(module.entry()->type.results().size());
    }
    Result<runtime::Executable> executable =
        client_.compile(stablehlo::print_module(module), options);
    if (!executable.ok()) return executable.status().with_context("compile");
    count_schedules(*executable);
    const ir::Function& entry = *module.entry();
    std::vector<std::vector<runtime::Buffer>> buffers(static_cast<size_t>(partitions));
    std::vector<std::vector<const runtime::Buffer*>> arguments(buffers.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> parts,
                             take_apart(inputs[i], known.parameters[i], partitions));
      for (size_t d = 0; d < buffers.size(); ++d) {
        HEKLA_ASSIGN_OR_RETURN(runtime::Buffer buffer,
                               client_.to_device(parts[d], client_.addressable_devices()[d]));
        buffers[d].push_back(std::move(buffer));
      }
    }
    for (size_t d = 0; d < buffers.size(); ++d) {
      for (const runtime::Buffer& buffer : buffers[d]) arguments[d].push_back(&buffer);
    }
    std::vector<std::vector<HostArray>> all;
    for (int i = 0; i < launches; ++i) {
      HEKLA_ASSIGN_OR_RETURN(const runtime::Launch launch, executable->launch(arguments));
      std::vector<HostArray> results;
      for (size_t r = 0; r < launch.outputs[0].size(); ++r) {
        std::vector<HostArray> parts;
        for (size_t d = 0; d < buffers.size(); ++d) {
          HEKLA_ASSIGN_OR_RETURN(HostArray part, launch.outputs[d][r].to_host());
          parts.push_back(std::move(part));
        }
        HEKLA_ASSIGN_OR_RETURN(
            HostArray whole, put_together(parts, entry.type.results()[r].dims(), known.results[r]));
        results.push_back(std::move(whole));
      }
      all.push_back(std::move(results));
    }
    return all;
  }

  // As the plugin reads these options.
  static spmd::PartitionSchedule partition_schedule(const std::vector<std::string>& forms) {
    spmd::PartitionSchedule schedule;
    for (const std::string& form : forms) {
      if (form == "hekla_recompute_parts=false") schedule.recompute = false;
      if (form == kRingProducts) schedule.rings = spmd::Rings::kAlways;
      if (form == kMergeCollectives) schedule.merge_collectives = false;
      if (form == kHoistCollectives) schedule.hoist_collectives = false;
      if (form == kCombineCollectives) schedule.combine_bytes = 0;
    }
    return schedule;
  }

  void count_partitioning(const spmd::PartitionSchedule& schedule,
                          const spmd::PartitionCounts& counts) {
    schedules_["partitioner: computed once more"] += counts.recomputed;
    schedules_["partitioner: sent alone"] += schedule.recompute ? 0 : 1;
    schedules_["partitioner: products around rings"] += counts.rings;
    schedules_["partitioner: products at once"] += schedule.rings == spmd::Rings::kAlways ? 0 : 1;
    schedules_["partitioner: collectives merged"] += counts.merged;
    schedules_["partitioner: collectives not merged"] += schedule.merge_collectives ? 0 : 1;
    schedules_["partitioner: collectives out of loops"] += counts.hoisted;
    schedules_["partitioner: collectives left in loops"] += schedule.hoist_collectives ? 0 : 1;
    schedules_["partitioner: collectives combined"] += counts.combined;
    schedules_["partitioner: collectives apart"] += schedule.combine_bytes > 0 ? 0 : 1;
  }

  // Plugins that do not show schedules have none in the table.
  void count_schedules(const runtime::Executable& executable) {
    const Result<std::string> text = executable.artefact("schedules");
    if (!text.ok()) return;
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) ++schedules_[line];
  }

  const std::string name_;
  const runtime::Client client_;
};

void add_to_digest(uint64_t* digest, const std::vector<HostArray>& arrays) {
  if (digest == nullptr) return;
  for (const HostArray& array : arrays) *digest = fnv1a(array.bytes(), *digest);
}

}  // namespace

std::string_view kind_name(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kError:
      return "error";
    case Finding::Kind::kOperation:
      return "operation";
    case Finding::Kind::kBits:
      return "bits";
    case Finding::Kind::kAttention:
      return "attention";
  }
  return "";
}

Result<std::unique_ptr<Device>> open_device(const std::string& name, int64_t device_count) {
  runtime::Options options;
  if (device_count > 1) options.emplace_back("num_devices", device_count);
  HEKLA_ASSIGN_OR_RETURN(runtime::Client client, runtime::open_client(name, options));
  return std::unique_ptr<Device>(std::make_unique<PluginDevice>(name, std::move(client)));
}

Result<std::optional<Finding>> check(const Program& program, Device& device,
                                     const CheckOptions& options, uint64_t* digest) {
  const auto finding = [&](Finding::Kind kind, std::string text) {
    return std::optional<Finding>(Finding{device.name(), kind, std::move(text), {}});
  };
  HEKLA_RETURN_IF_ERROR(ir::verify(*program.module));
  HEKLA_RETURN_IF_ERROR(reference::check_supported(*program.module));
  const passes::Exposed exposed = passes::expose_values(*program.module);
  const std::string drawn = fmt::format("{}={}", kDrawnSchedules, options.schedule_seed);
  const bool draws_all = options.schedule_seed % 2 == 1;
  std::vector<std::string> always;
  if (options.small_limits) always.emplace_back("hekla_small_limits=true");
  if (options.tree_reductions) {
    always.push_back(fmt::format("hekla_tree_reductions={}", *options.tree_reductions));
  }
  always.push_back(fmt::format("hekla_matrix_pieces={}", options.matrix_pieces));
  const bool has_pieces = options.matrix_pieces != "false" && device.name() == "vulkan";
  const DType pieces = !has_pieces                      ? DType::kF32
                       : options.matrix_pieces == "f16" ? DType::kF16
                                                        : DType::kBF16;
  // Other bits than those of the operations by themselves: see below.
  const size_t attention_switch = always.size();
  always.emplace_back("hekla_attention=false");
  if (!options.recompute_parts) always.emplace_back("hekla_recompute_parts=false");
  if (options.ring_products) always.emplace_back(kRingProducts);
  const size_t always_count = always.size();
  std::vector<std::string> stored = always;
  if (draws_all) stored.push_back(drawn);
  const auto all = device.run(*exposed.module, program.inputs, stored, 1);
  if (!all.ok()) return finding(Finding::Kind::kError, all.status().to_string());
  const std::vector<HostArray>& values = (*all)[0];

  // Each operation on the operands that the device has.
  const ir::Block& block = program.module->entry()->body().front();
  std::unordered_map<const ir::Value*, HostArray> known;
  for (size_t i = 0; i < block.argument_count(); ++i) {
    known[block.argument(i)] = program.inputs[i];
  }
  for (size_t k = 0; k + 1 < block.operations().size(); ++k) {
    const ir::Operation& op = *block.operations()[k];
    std::vector<HostArray> got;
    bool is_visible = true;
    for (size_t i = 0; i < op.result_count(); ++i) {
      const int64_t place = exposed.places[k][i];
      is_visible &= place >= 0;
      if (place < 0) continue;
      got.push_back(values[static_cast<size_t>(place)]);
      known[op.result(i)] = got.back();
    }
    if (!is_visible) continue;
    const passes::SingleOperation single = passes::isolate_operation(*program.module, op);
    std::vector<HostArray> operands;
    for (const ir::Value* value : single.inputs) operands.push_back(known[value]);
    HEKLA_ASSIGN_OR_RETURN(const std::string wrong,
                           difference(single, operands, got, device.kept_subnormals(),
                                      partition_count(*program.module) > 1, pieces));
    if (wrong.empty()) continue;
    auto found = finding(Finding::Kind::kOperation,
                         fmt::format("{} (operation {}), {}", op.name(), k, wrong));
    found->single = {single.module, std::move(operands)};
    return found;
  }

  if (partition_count(*program.module) == 1) {
    // A program with these results by kernels of a kind: the same bits however it is planned
    // otherwise. Empty: what `difference` says of them is, too.
    const auto check_kind =
        [&](const ir::Module& alone, const char* kind, const std::vector<std::string>& forms,
            const std::function<std::string(const std::vector<HostArray>&)>& difference)
        -> std::optional<Finding> {
      always[attention_switch] = fmt::format("hekla_attention={}", kind);
      std::vector<HostArray> first;
      for (const std::string& form : forms) {
        std::vector<std::string> chosen = always;
        chosen.push_back(form);
        const auto got = device.run(alone, program.inputs, chosen, 1);
        if (!got.ok()) {
          return finding(Finding::Kind::kError,
                         fmt::format("attention={}, {}: {}", kind, form, got.status().to_string()));
        }
        const std::vector<HostArray>& results = (*got)[0];
        std::string wrong;
        if (first.empty()) {
          first = results;
          wrong = difference(results);
        }
        for (size_t i = 0; wrong.empty() && i < results.size(); ++i) {
          wrong = bit_difference(results[i], first[i]);
        }
        if (wrong.empty()) continue;
        return finding(Finding::Kind::kAttention,
                       fmt::format("attention={}, {}: {}", kind, form, wrong));
      }
      return std::nullopt;
    };
    const std::string fused = "hekla_fuse=true", apart = "hekla_fuse=false";
    for (const lower::Attention& attention : attentions_of(*program.module)) {
      const auto alone = attention_alone(*program.module, attention);
      const auto difference = [&](const std::vector<HostArray>& got) {
        return attention_difference(attention, known, got[0]);
      };
      // One of them by all forms; as size decides it is one of both.
      const bool is_first = options.schedule_seed % 2 == 0;
      // Of operands that matrix units have, on devices with some; else as size decides.
      if (attention.product->operand(0)->type().dtype() != DType::kF32) {
        always.push_back(fmt::format("hekla_attention_tile={}",
                                     kMatrixTiles[options.schedule_seed % kMatrixTiles.size()]));
        if (auto wrong = check_kind(*alone, "matrix", {fused, drawn}, difference)) return wrong;
        always.pop_back();
      }
      for (const char* kind : {"tiles", "keys"}) {
        const bool has_all = (std::string_view(kind) == "tiles") == is_first;
        const std::vector<std::string> some{fused, drawn}, all_forms{fused, apart, drawn};
        if (auto wrong = check_kind(*alone, kind, has_all ? all_forms : some, difference)) {
          return wrong;
        }
      }
    }
    // Their many kernels take long to compile where they are large.
    if (!options.small_limits && options.schedule_seed % 8 != 0) {
      always.emplace_back("hekla_small_limits=true");
    }
    for (const lower::RecomputedScores& scores : recomputed_scores_of(*program.module)) {
      if (auto wrong = check_kind(*gradients_alone(*program.module, scores), "true",
                                  {fused, apart, drawn}, [&](const std::vector<HostArray>& got) {
                                    return gradient_difference(scores, known, got);
                                  })) {
        return wrong;
      }
    }
    always[attention_switch] = "hekla_attention=false";
    always.resize(always_count);
  }

  const size_t result_count = block.terminator()->operand_count();
  std::vector<HostArray> want(values.begin(),
                              values.begin() + static_cast<std::ptrdiff_t>(result_count));
  add_to_digest(digest, want);
  std::vector<std::string> forms = {""};
  int launches = 1;
  for (const std::string& form : options.forms) {
    if (form == "again") {
      launches = 2;
    } else if (form == kSeveralArenas) {
      forms.push_back(fmt::format("{}={}", kSeveralArenas, 1 << options.schedule_seed % 17));
    } else {
      forms.push_back(form == kDrawnSchedules ? drawn : form);
    }
  }
  for (const std::string& option : forms) {
    const std::string form = option.empty() ? "fused" : option;
    std::vector<std::string> chosen = always;
    if (!option.empty()) chosen.push_back(option);
    if (option.starts_with(kSeveralArenas) && draws_all) chosen.emplace_back("hekla_fuse=false");
    const auto got =
        device.run(*program.module, program.inputs, chosen, option.empty() ? launches : 1);
    if (!got.ok()) {
      return finding(Finding::Kind::kError, fmt::format("{}: {}", form, got.status().to_string()));
    }
    // Where all values are results, arrays may be cut in other ways, and sums be in another order.
    if (option.empty() && partition_count(*program.module) > 1) want = (*got)[0];
    for (size_t l = 0; l < got->size(); ++l) {
      for (size_t i = 0; i < result_count; ++i) {
        const std::string wrong = bit_difference((*got)[l][i], want[i]);
        if (wrong.empty()) continue;
        return finding(Finding::Kind::kBits,
                       fmt::format("result {} of the program ({}, launch {}) against the one with "
                                   "all values stored, or the first launch: {}",
                                   i, form, l + 1, wrong));
      }
    }
  }
  return std::optional<Finding>();
}

namespace {

// Erases what nobody needs, and the inputs of arguments that nobody uses.
void remove_unused(ir::Module& module, std::vector<HostArray>& inputs) {
  ir::Function& entry = *module.entry();
  ir::Block& block = entry.body().front();
  for (size_t i = block.operations().size() - 1; i-- > 0;) {
    ir::Operation* op = block.operations()[i].get();
    bool is_used = false;
    for (size_t r = 0; r < op->result_count(); ++r) is_used |= op->result(r)->has_uses();
    if (!is_used) block.erase(op);
  }
  // Arguments cannot be erased: a copy of the function takes those that are used.
  auto function = std::make_unique<ir::Function>(entry.name());
  function->visibility = entry.visibility;
  ir::ValueMap map;
  ir::Block& copy = function->body().add_block();
  std::vector<HostArray> kept;
  for (size_t i = 0; i < block.argument_count(); ++i) {
    if (!block.argument(i)->has_uses()) continue;
    function->argument_attributes.push_back(
        i < entry.argument_attributes.size() ? entry.argument_attributes[i] : ir::AttributeMap());
    map[block.argument(i)] = copy.add_argument(block.argument(i)->type());
    kept.push_back(inputs[i]);
  }
  for (const auto& op : block.operations()) copy.append(ir::clone_operation(*op, map));
  std::vector<ir::Type> types;
  for (const ir::Value* value : copy.terminator()->operands()) types.push_back(value->type());
  function->type = ir::Type::function(copy.argument_types(), types);
  function->result_attributes = entry.result_attributes;
  function->result_attributes.resize(types.size());
  inputs = std::move(kept);
  // Functions that nobody calls any more.
  std::vector<std::unique_ptr<ir::Function>> others;
  for (auto& other : module.functions) {
    if (other.get() != &entry) others.push_back(std::move(other));
  }
  module.functions.clear();
  module.functions.push_back(std::move(function));
  for (auto& other : others) module.functions.push_back(std::move(other));
}

// A changed copy; `change` gets the entry's block and may add arguments with inputs, and takes away
// the result of that number.
template <typename Change>
Program changed(const Program& program, const Change& change, int64_t lost_result = -1) {
  std::unique_ptr<ir::Module> module = ir::clone_module(*program.module);
  std::vector<HostArray> inputs = program.inputs;
  auto& results = module->entry()->result_attributes;
  if (lost_result >= 0 && lost_result < static_cast<int64_t>(results.size())) {
    results.erase(results.begin() + lost_result);
  }
  change(module->entry()->body().front(), inputs);
  remove_unused(*module, inputs);
  return {std::shared_ptr<const ir::Module>(std::move(module)), std::move(inputs)};
}

}  // namespace

Program shrink(const Program& program, const Finding& finding, Device& device,
               const CheckOptions& options) {
  const auto fails = [&](const Program& candidate) {
    const auto result = check(candidate, device, options);
    return result.ok() && result->has_value() && (*result)->kind == finding.kind;
  };
  if (finding.single.module != nullptr && fails(finding.single)) return finding.single;
  Program best = program;
  bool smaller = true;
  while (smaller) {
    smaller = false;
    const auto try_it = [&](Program candidate) {
      if (!fails(candidate)) return false;
      best = std::move(candidate);
      smaller = true;
      return true;
    };
    for (size_t i = best.module->entry()->type.results().size(); i-- > 0;) {
      if (best.module->entry()->type.results().size() < 2) break;
      try_it(changed(
          best,
          [&](ir::Block& block, std::vector<HostArray>&) {
            std::vector<ir::Value*> results = block.terminator()->operands();
            results.erase(results.begin() + static_cast<std::ptrdiff_t>(i));
            block.terminator()->set_operands(results);
          },
          static_cast<int64_t>(i)));
    }
    // An operation's results become arguments; the values are the evaluator's.
    for (size_t k = 0; k + 1 < best.module->entry()->body().front().operations().size(); ++k) {
      const passes::Exposed exposed = passes::expose_values(*best.module);
      const auto values = reference::evaluate(*exposed.module, best.inputs);
      if (!values.ok()) break;
      const std::vector<int64_t>& places = exposed.places[k];
      if (std::count(places.begin(), places.end(), -1) > 0 || places.empty()) continue;
      const bool was_smaller =
          try_it(changed(best, [&](ir::Block& block, std::vector<HostArray>& inputs) {
            ir::Operation* op = block.operations()[k].get();
            for (size_t r = 0; r < op->result_count(); ++r) {
              op->result(r)->replace_all_uses_with(block.add_argument(op->result(r)->type()));
              inputs.push_back((*values)[static_cast<size_t>(places[r])]);
            }
          }));
      if (was_smaller) --k;
    }
  }
  return best;
}

std::string to_text(const Program& program) {
  const std::unique_ptr<ir::Module> module = ir::clone_module(*program.module);
  auto function = std::make_unique<ir::Function>("inputs");
  function->visibility = ir::Function::Visibility::kPrivate;
  ir::Block& block = function->body().add_block();
  std::vector<ir::Value*> values;
  for (const HostArray& input : program.inputs) {
    const ir::Type type = ir::Type::tensor(input.dtype(), input.dims());
    values.push_back(block
                         .append(OpCode::kConstant, {}, {type},
                                 ir::AttributeMap({{"value", ir::make_dense(type, input)}}))
                         ->result());
  }
  block.append(OpCode::kFuncReturn, values, {});
  std::vector<ir::Type> types;
  for (const ir::Value* value : values) types.push_back(value->type());
  function->type = ir::Type::function({}, types);
  function->result_attributes.resize(types.size());
  module->functions.push_back(std::move(function));
  return stablehlo::print_module(*module);
}

std::string to_comment(const CheckOptions& options) {
  std::string comment = fmt::format("{} schedule_seed={} small_limits={}", kCheckedWith,
                                    options.schedule_seed, options.small_limits);
  if (options.tree_reductions) {
    comment += fmt::format(" tree_reductions={}", *options.tree_reductions);
  }
  return comment + fmt::format(" matrix_pieces={} ring_products={} recompute_parts={}\n",
                               options.matrix_pieces, options.ring_products,
                               options.recompute_parts);
}

Result<CheckOptions> options_in(const std::string& text, CheckOptions options) {
  const size_t start = text.find(kCheckedWith);
  if (start == std::string::npos) return options;
  std::istringstream words(text.substr(start + kCheckedWith.size(),
                                       text.find('\n', start) - start - kCheckedWith.size()));
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    bool is_right = value == "true" || value == "false";
    if (name == "schedule_seed") {
      const char* end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, options.schedule_seed);
      is_right = error == std::errc() && stop == end;
    } else if (name == "small_limits") {
      options.small_limits = value == "true";
    } else if (name == "tree_reductions") {
      options.tree_reductions = value == "true";
    } else if (name == "matrix_pieces") {
      options.matrix_pieces = value;
      is_right = true;
    } else if (name == "ring_products") {
      options.ring_products = value == "true";
    } else if (name == "recompute_parts") {
      options.recompute_parts = value == "true";
    } else {
      is_right = false;
    }
    if (!is_right) return invalid_argument("\"{}\" behind \"{}\"", word, kCheckedWith);
  }
  return options;
}

Result<Program> from_text(const std::string& text) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, stablehlo::read_program(text));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  Program program;
  for (size_t i = 0; i < module->functions.size(); ++i) {
    if (module->functions[i]->name() != "inputs") continue;
    const ir::Block& block = module->functions[i]->body().front();
    for (const ir::Value* value : block.terminator()->operands()) {
      const ir::DenseValue* dense =
          value->defining_op() == nullptr
              ? nullptr
              : value->defining_op()->attribute("value").get<ir::DenseValue>();
      if (dense == nullptr) return invalid_argument("@inputs may return constants only");
      HEKLA_ASSIGN_OR_RETURN(HostArray array, dense->expand());
      program.inputs.push_back(std::move(array));
    }
    module->functions.erase(module->functions.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  // Who runs it takes an input for every parameter.
  const ir::Function* entry = module->entry();
  if (entry == nullptr || entry->is_declaration()) {
    return invalid_argument("the program has no entry");
  }
  const ir::Block& body = entry->body().front();
  if (program.inputs.size() != body.argument_count()) {
    return invalid_argument(
        "the program has {} parameters and its function @inputs gives {} arrays; a private @inputs "
        "without parameters returns one constant for each",
        body.argument_count(), program.inputs.size());
  }
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const HostArray& input = program.inputs[i];
    const ir::Type& type = body.argument(i)->type();
    if (!type.is_static_tensor() || type.dtype() != input.dtype() || type.dims() != input.dims()) {
      return invalid_argument("parameter {} is {}, and @inputs gives {}", i, type.to_string(),
                              ir::Type::tensor(input.dtype(), input.dims()).to_string());
    }
  }
  program.module = std::move(module);
  return program;
}

}  // namespace hekla::testing
