// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/client_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "runtime/base/log.h"

namespace hekla::pjrt {
namespace {

constexpr int64_t kMaxDevices = 256;

Result<int64_t> as_integer(const std::string& name, const OptionValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error == std::errc() && end == text->data() + text->size()) return number;
  }
  return invalid_argument("the option {} must be an integer", name);
}

Result<bool> as_flag(const std::string& name, const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* number = std::get_if<int64_t>(&value); number != nullptr && *number >> 1 == 0) {
    return *number == 1;
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (*text == "true" || *text == "1") return true;
    if (*text == "false" || *text == "0") return false;
  }
  return invalid_argument("the option {} must be true or false", name);
}

// Text that is a number may come as one.
Result<std::string> as_text(const std::string& name, const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  return invalid_argument("the option {} must be text", name);
}

}  // namespace

void OptionTable::integer(const char* name, const char* environment, int64_t& target, Range range,
                          const char* fallback, const char* meaning) {
  const auto set = [&target, range](const std::string& from, const OptionValue& value) -> Status {
    HEKLA_ASSIGN_OR_RETURN(const int64_t number, as_integer(from, value));
    if (number < range.least || number > range.most) {
      return range.most == std::numeric_limits<int64_t>::max()
                 ? invalid_argument("{} must be at least {}, is {}", from, range.least, number)
                 : invalid_argument("{} must be {} to {}, is {}", from, range.least, range.most,
                                    number);
    }
    target = number;
    return ok_status();
  };
  options_.push_back({name, environment, "integer", fallback, meaning, set});
}

void OptionTable::flag(const char* name, const char* environment, bool& target,
                       const char* fallback, const char* meaning) {
  const auto set = [&target](const std::string& from, const OptionValue& value) -> Status {
    HEKLA_ASSIGN_OR_RETURN(target, as_flag(from, value));
    return ok_status();
  };
  options_.push_back({name, environment, "flag", fallback, meaning, set});
}

void OptionTable::text(const char* name, const char* environment, std::string& target,
                       std::vector<std::string> words, const char* fallback, const char* meaning) {
  const std::string kind = words.empty() ? "text" : fmt::format("{}", fmt::join(words, ", "));
  const auto set = [&target, words = std::move(words), kind](const std::string& from,
                                                             const OptionValue& value) -> Status {
    HEKLA_ASSIGN_OR_RETURN(std::string text, as_text(from, value));
    if (!words.empty() && std::find(words.begin(), words.end(), text) == words.end()) {
      return invalid_argument("{} must be one of {}, is {}", from, kind, text);
    }
    target = std::move(text);
    return ok_status();
  };
  options_.push_back({name, environment, kind, fallback, meaning, set});
}

Status OptionTable::read(const Options& given) const {
  for (const Option& option : options_) {
    const char* value =
        option.environment.empty() ? nullptr : std::getenv(option.environment.c_str());
    if (value == nullptr || *value == '\0') continue;
    HEKLA_RETURN_IF_ERROR(option.set(option.environment, std::string(value)));
  }
  for (const auto& [name, value] : given) {
    const Option* known = find(name);
    if (known == nullptr) {
      std::vector<std::string> names;
      for (const Option& option : options_) names.push_back(option.name);
      return invalid_argument("No such {}: '{}'; there are {}", what_, name,
                              fmt::join(names, ", "));
    }
    HEKLA_RETURN_IF_ERROR(known->set(name, value));
  }
  return ok_status();
}

Status OptionTable::take(Options& given) const {
  Options own, others;
  for (auto& option : given) {
    (find(option.first) != nullptr ? own : others).push_back(std::move(option));
  }
  given = std::move(others);
  return read(own);
}

const OptionTable::Option* OptionTable::find(std::string_view name) const {
  const auto known = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& option) { return option.name == name; });
  return known == options_.end() ? nullptr : &*known;
}

OptionTable gang_option_table(GangOptions& options) {
  constexpr int64_t kMostSeconds = int64_t{1} << 30;
  OptionTable table;
  table.integer(
      "gang_warning_seconds", "HEKLA_GANG_WARNING_SECONDS", options.warning_seconds,
      {0, kMostSeconds}, "10",
      "how long a device waits at a collective, or for a device whose inputs are not there, "
      "before the log says, once a launch, which devices it waits for; 0: the log says "
      "nothing");
  table.integer(
      "gang_deadline_seconds", "HEKLA_GANG_DEADLINE_SECONDS", options.deadline_seconds,
      {0, kMostSeconds}, "0: none",
      "how long a device waits at a collective, or for a device whose inputs are not there, "
      "before the launch ends on all its devices with DEADLINE_EXCEEDED, which names those "
      "that are missing");
  return table;
}

void add_common_options(OptionTable& table, CommonOptions& options, const char* limit) {
  table.integer("num_devices", "HEKLA_NUM_DEVICES", options.device_count, {1, kMaxDevices}, "1",
                "logical devices cut from the physical one");
  table.integer("memory_limit_bytes", "HEKLA_MEMORY_LIMIT", options.memory_limit_bytes, {}, limit,
                "memory of each logical device");
}

void add_fail_on_fallback(OptionTable& table, bool& fail_on_fallback) {
  table.flag("fail_on_fallback", "HEKLA_FAIL_ON_FALLBACK", fail_on_fallback, "false",
             "programs of which some operation would run in the evaluator on the host are refused");
}

Status check_fallbacks(bool fail_on_fallback, const std::vector<std::string>& fallbacks) {
  if (!fail_on_fallback || fallbacks.empty()) return ok_status();
  return unimplemented("fail_on_fallback is set, and these operations have no kernel:\n{}",
                       fmt::join(fallbacks, "\n"));
}

OptionTable compiler_option_table(CompilerSwitches& switches) {
  OptionTable table("compile option");  // as clients call it
  plan::PlanOptions& plan = switches.options.plan;
  table.flag("hekla_fuse", "", plan.fuse, "true",
             "operations share kernels; false: each is a kernel and all values are stored");
  table.flag("hekla_reuse_memory", "", plan.reuse_memory, "true",
             "temporaries that do not live at the same time share bytes");
  table.integer("hekla_arena_limit_bytes", "", plan.arena_limit_bytes, {}, "the device's",
                "temporaries of more bytes together are in several arenas, each of at most these "
                "many or of one value; 0: the device's limit");
  table.text("hekla_row_groups", "", switches.row_groups, {"true", "led", "false"}, "where it pays",
             "chains of kernels along rows run block by block of rows");
  table.text("hekla_stored_transposes", "", switches.stored_transposes, {"true", "false"},
             "where it pays", "a transpose that several kernels read is stored once");
  table.text(
      "hekla_tree_reductions", "", switches.tree_reductions, {"true", "false"},
      "as the device prefers",
      "reductions, scans and sorts go by teams of invocations, and long sums of products with "
      "few results in parts, where the device has them; other bits of sums");
  table.text(
      "hekla_attention", "", switches.attention, {"true", "tiles", "keys", "matrix", "false"},
      "where it pays",
      "softmax(Q K^T) V and its gradients keep no scores in memory where the device has teams "
      "of invocations: forwards a team for a block of rows (tiles) or, of few rows, for a "
      "part of the keys (keys), or for a block of rows by matrix units (matrix), which round the "
      "weights; other bits of sums");
  table.text("hekla_attention_tile", "", switches.attention_tile, {}, "by size",
             "what a team of hekla_attention=matrix has: subgroups, keys at once and elements of "
             "each row of the result, as 4x32x64; one that does not fit the device is refused");
  table.text(
      "hekla_matrix_pieces", "", switches.matrix_pieces, {"true", "all", "f16", "false"}, "false",
      "matrix products and convolutions of f32 whose precision or algorithm allows it go by "
      "matrix units of bf16, in pieces; true: where four products are enough; all: also six and "
      "nine; f16: all by those of f16, which has not f32's range, for tests; other bits");
  table.text("hekla_persistent_loops", "", switches.persistent_loops, {"true", "false"},
             "where it pays",
             "a loop of small kernels is one kernel, which a workgroup of the device runs to its "
             "end, or on the CPU one function");
  table.flag("hekla_overlap_collectives", "", plan.overlap_collectives, "true",
             "kernels run while collectives wait for other devices");
  table.flag(
      "hekla_recompute_parts", "", switches.options.partition.recompute, "true",
      "what is at hand in some parts of a sharded array is computed once more in others where "
      "this moves fewer bytes; other bits of sums");
  table.flag("hekla_merge_collectives", "", switches.options.partition.merge_collectives, "true",
             "equal collectives of a program over partitions are one");
  table.flag("hekla_hoist_collectives", "", switches.options.partition.hoist_collectives, "true",
             "collectives that give the same in each pass of a loop run once, in front of it");
  table.integer("hekla_hoist_collectives_bytes", "", switches.options.partition.hoist_bytes, {},
                "64 MiB",
                "of results that collectives in front of one loop, and what goes there with them, "
                "keep in memory while it runs");
  table.integer("hekla_combine_collectives_bytes", "", switches.options.partition.combine_bytes, {},
                "1 MiB",
                "all_reduces, and all_gathers, of as many bytes together run as one; 0: each by "
                "itself");
  table.text("hekla_ring_products", "", switches.ring_products, {"true", "false"},
             "where transfers hide behind products",
             "products whose operand devices would gather, or whose result they would scatter, go "
             "in steps around a ring of them; other bits of sums");
  table.integer("hekla_link_megabytes", "", switches.link_megabytes, {}, "0: unknown",
                "what a device sends to another in a second, for what depends on hiding it");
  table.integer("hekla_device_gigaflops", "", switches.device_gigaflops, {}, "0: unknown",
                "what a device computes of products in a second, likewise");
  table.integer("hekla_link_latency_us", "", switches.link_latency_us, {}, "5",
                "what a transfer takes before its first byte, likewise");
  table.flag("hekla_small_limits", "", plan.small_limits, "false",
             "small arrays are computed as large ones are: for tests");
  table.text("hekla_f32_algorithm", "", switches.options.f32_algorithm,
             {"f32_f32_f32", "tf32_tf32_f32", "tf32_tf32_f32_x3", "bf16_bf16_f32",
              "bf16_bf16_f32_x3", "bf16_bf16_f32_x6", "bf16_bf16_f32_x9"},
             "f32_f32_f32",
             "how matrix products and convolutions of f32 are computed that ask for the precision "
             "DEFAULT and name no algorithm");
  table.text("hekla_schedule_seed", "", switches.schedule_seed, {}, "0: the best ones",
             "kernels' schedules are drawn from all that are right, by this number: for tests");
  return table;
}

Result<CompilerOptions> read_compiler_options(const Options& given) {
  CompilerSwitches switches;
  Options own;
  for (const auto& option : given) {
    // Programs that were written for XLA set them, and they say how XLA compiles, not what.
    if (option.first.starts_with("xla_")) {
      log_message(LogLevel::kVerbose, "the compiler option {} is XLA's and means nothing here",
                  option.first);
    } else {
      own.push_back(option);
    }
  }
  HEKLA_RETURN_IF_ERROR(compiler_option_table(switches).read(own));
  plan::PlanOptions& plan = switches.options.plan;
  if (!switches.row_groups.empty()) {
    plan.row_groups = switches.row_groups == "true"  ? plan::RowGroups::kAll
                      : switches.row_groups == "led" ? plan::RowGroups::kAllLed
                                                     : plan::RowGroups::kNone;
  }
  if (!switches.stored_transposes.empty()) {
    plan.stored_transposes = switches.stored_transposes == "true" ? plan::StoredTransposes::kAll
                                                                  : plan::StoredTransposes::kNone;
  }
  if (!switches.tree_reductions.empty()) {
    plan.tree_reductions = switches.tree_reductions == "true" ? plan::TreeReductions::kWherePossible
                                                              : plan::TreeReductions::kNone;
  }
  spmd::PartitionSchedule& partition = switches.options.partition;
  if (!switches.ring_products.empty()) {
    partition.rings = switches.ring_products == "true" ? spmd::Rings::kAlways : spmd::Rings::kNever;
  }
  partition.link = {1e9 * static_cast<double>(switches.device_gigaflops),
                    1e6 * static_cast<double>(switches.link_megabytes),
                    1e-6 * static_cast<double>(switches.link_latency_us)};
  if (!switches.attention.empty()) {
    plan.attention = switches.attention == "true"     ? plan::FusedAttention::kWherePossible
                     : switches.attention == "tiles"  ? plan::FusedAttention::kTiles
                     : switches.attention == "keys"   ? plan::FusedAttention::kKeys
                     : switches.attention == "matrix" ? plan::FusedAttention::kMatrix
                                                      : plan::FusedAttention::kNone;
  }
  if (!switches.matrix_pieces.empty()) {
    plan.matrix_pieces = switches.matrix_pieces == "true"  ? plan::MatrixPieces::kWherePays
                         : switches.matrix_pieces == "all" ? plan::MatrixPieces::kAlways
                         : switches.matrix_pieces == "f16" ? plan::MatrixPieces::kF16
                                                           : plan::MatrixPieces::kNone;
  }
  if (!switches.persistent_loops.empty()) {
    plan.persistent_loops = switches.persistent_loops == "true"
                                ? plan::PersistentLoops::kWherePossible
                                : plan::PersistentLoops::kNone;
  }
  if (!switches.attention_tile.empty()) {
    plan::PlanOptions::AttentionTile& tile = plan.attention_tile;
    const char* at = switches.attention_tile.data();
    const char* const end = at + switches.attention_tile.size();
    bool is_right = true;
    for (int64_t* part : {&tile.subgroups, &tile.keys, &tile.width}) {
      if (part != &tile.subgroups) is_right = is_right && at != end && *at++ == 'x';
      const auto [next, error] = std::from_chars(at, end, *part);
      is_right = is_right && error == std::errc() && *part > 0 && *part <= 1024;
      at = next;
    }
    if (!is_right || at != end) {
      return invalid_argument(
          "the compiler option hekla_attention_tile is subgroups, keys and values of a row as "
          "4x32x64, each from 1 to 1024, not {}",
          switches.attention_tile);
    }
  }
  const std::string& seed = switches.schedule_seed;
  if (!seed.empty()) {
    const auto [end, error] =
        std::from_chars(seed.data(), seed.data() + seed.size(), switches.options.schedule_seed);
    if (error != std::errc() || end != seed.data() + seed.size()) {
      return invalid_argument(
          "the compiler option hekla_schedule_seed is a number from 0 to 2^64 - 1, not {}", seed);
    }
  }
  return switches.options;
}

}  // namespace hekla::pjrt
