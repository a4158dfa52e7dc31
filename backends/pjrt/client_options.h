// SPDX-License-Identifier: Apache-2.0
// Options: one table per backend, and one of the compiler, of what may be set, from where, with
// which default.
//
//   OptionTable table;
//   table.integer("num_devices", "HEKLA_NUM_DEVICES", options.device_count, {1, 256}, "1",
//                 "logical devices");
//   HEKLA_RETURN_IF_ERROR(table.read(given));
//
// The environment gives defaults, what the client gives counts more. docs/options.md is printed
// from these tables. A table holds references to what it sets. One thread; pure but for the
// environment.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backends/pjrt/backend.h"

namespace hekla::pjrt {

class OptionTable {
 public:
  // `what`: "client option", for messages.
  explicit OptionTable(std::string what = "client option") : what_(std::move(what)) {}

  struct Range {
    int64_t least = 0;
    int64_t most = std::numeric_limits<int64_t>::max();
  };
  struct Option {
    std::string name;
    std::string environment;  // empty: none
    std::string kind;         // "integer", "flag", "text", or the words that there are
    std::string fallback;     // the default, in words
    std::string meaning;
    std::function<Status(const std::string& name, const OptionValue&)> set;
  };

  // Integers and flags may come as text, flags as 0 and 1.
  void integer(const char* name, const char* environment, int64_t& target, Range range,
               const char* fallback, const char* meaning);
  void flag(const char* name, const char* environment, bool& target, const char* fallback,
            const char* meaning);
  // `words`: the values that there are; empty: any text.
  void text(const char* name, const char* environment, std::string& target,
            std::vector<std::string> words, const char* fallback, const char* meaning);

  // INVALID_ARGUMENT: an option that there is not, or a value that it cannot have, with what there
  // is.
  Status read(const Options& given) const;

  const std::vector<Option>& options() const { return options_; }
  // The same for what the table has of `given`, which keeps the rest.
  Status take(Options& given) const;

  // Null when there is none.
  const Option* find(std::string_view name) const;

 private:
  std::string what_;
  std::vector<Option> options_;
};

// Of launches over several devices, whatever the backend: the C API layer's own.
OptionTable gang_option_table(GangOptions& options);

// What all our backends know.
struct CommonOptions {
  int64_t device_count = 1;
  int64_t memory_limit_bytes = 0;  // of each device
};
// `limit`: the default of the memory limit, in words.
void add_common_options(OptionTable& table, CommonOptions& options, const char* limit);
// Of those that compile: whether a program is refused when some of it would run on the host.
void add_fail_on_fallback(OptionTable& table, bool& fail_on_fallback);
// UNIMPLEMENTED where it is set and some operation would; a line for each.
Status check_fallbacks(bool fail_on_fallback, const std::vector<std::string>& fallbacks);

// What the user may say of one compilation (env_option_overrides, JAX's compiler_options).
struct CompilerSwitches {
  CompilerOptions options;
  std::string row_groups, stored_transposes, tree_reductions, attention, attention_tile,
      matrix_pieces, persistent_loops, schedule_seed;  // as given
  std::string ring_products;
  int64_t link_megabytes = 0, device_gigaflops = 0, link_latency_us = 5;
};
OptionTable compiler_option_table(CompilerSwitches& switches);
// INVALID_ARGUMENT as OptionTable::read.
Result<CompilerOptions> read_compiler_options(const Options& given);

}  // namespace hekla::pjrt
