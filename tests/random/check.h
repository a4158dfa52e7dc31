// SPDX-License-Identifier: Apache-2.0
// Whether devices compute a program as the reference evaluator does, and always the same.
//
// The program runs on each device through the C API in two forms. With every value of the entry
// function as a result, each operation is compared with the evaluator on the operands that the
// device itself computed: rounding does not add up, a comparison or rounding near its edge gives no
// false alarm, and the first wrong operation has a name. As it is, fused, its results must have the
// bits of the first form; so must those of another launch, of a program that is not fused, and of
// one whose values share no memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "tests/random/subnormals.h"

namespace hekla::testing {

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;
  // Launches the program `launches` times and gives all results, one list a launch. `forms`:
  // compiler options, "name=true", "name=false" or "name=12".
  virtual Result<std::vector<std::vector<HostArray>>> run(const ir::Module& module,
                                                          const std::vector<HostArray>& inputs,
                                                          const std::vector<std::string>& forms,
                                                          int launches) = 0;
  // What of subnormal numbers the device's arithmetic keeps, as it says.
  KeptSubnormals kept_subnormals() const { return kept_subnormals_; }
  // How often each schedule ran a kernel of each name so far: "sort_merge: tile".
  const std::map<std::string, int64_t>& schedules() const { return schedules_; }

 protected:
  std::map<std::string, int64_t> schedules_;
  KeptSubnormals kept_subnormals_;
};

// By the name of a registered plugin, with so many logical devices. A program whose module has a
// mesh runs on the first ones, one a partition (partitions.h).
Result<std::unique_ptr<Device>> open_device(const std::string& name, int64_t device_count = 1);

struct Program {
  std::shared_ptr<const ir::Module> module;
  std::vector<HostArray> inputs;
};

struct Finding {
  std::string device;
  enum class Kind { kError, kOperation, kBits, kAttention } kind = Kind::kError;
  std::string text;  // with the values
  // kOperation: that operation alone with its operands.
  Program single;
};
std::string_view kind_name(Finding::Kind kind);

// The form whose schedules are drawn from all that are right; CheckOptions::schedule_seed says
// which.
inline constexpr const char* kDrawnSchedules = "hekla_schedule_seed";

// The form with temporaries in several arenas, whose limit CheckOptions::schedule_seed says; every
// other one with all values stored, so that there are many.
inline constexpr const char* kSeveralArenas = "hekla_arena_limit_bytes";

// Forms of programs over partitions, as main.cc draws them.
inline constexpr const char* kRingProducts = "hekla_ring_products=true";
inline constexpr const char* kMergeCollectives = "hekla_merge_collectives=false";
inline constexpr const char* kHoistCollectives = "hekla_hoist_collectives=false";
inline constexpr const char* kCombineCollectives = "hekla_combine_collectives_bytes=0";

struct CheckOptions {
  // Which of the other forms run: "again", or a compiler option that is not as it mostly is.
  std::vector<std::string> forms = {"again",
                                    "hekla_fuse=false",
                                    "hekla_reuse_memory=false",
                                    "hekla_row_groups=true",
                                    "hekla_row_groups=led",
                                    "hekla_stored_transposes=true",
                                    "hekla_persistent_loops=true",
                                    kSeveralArenas,
                                    kDrawnSchedules};
  // Draws the schedules of kDrawnSchedules, and, when it is odd, those of the form with all values
  // stored too; and the limit of kSeveralArenas.
  uint64_t schedule_seed = 1;
  // What large arrays are needed for otherwise is done for these: the compiler option
  // hekla_small_limits, in all forms.
  bool small_limits = false;
  // How reductions are done in all forms, hekla_tree_reductions; empty: as the device prefers.
  std::optional<bool> tree_reductions;
  // hekla_matrix_pieces, in all forms.
  std::string matrix_pieces = "false";
  // Whether hekla_ring_products=true is in all forms.
  bool ring_products = false;
  // hekla_recompute_parts, in all forms.
  bool recompute_parts = true;
};

// The first thing that is wrong on the device. An error: the evaluator's, or of the program.
// `digest`, where given, takes in the bits of all results.
Result<std::optional<Finding>> check(const Program& program, Device& device,
                                     const CheckOptions& options = {}, uint64_t* digest = nullptr);

// A program as small as possible that has a finding of the same kind.
Program shrink(const Program& program, const Finding& finding, Device& device,
               const CheckOptions& options = {});

// One text: the program and a private function @inputs whose constants are the inputs.
std::string to_text(const Program& program);
Result<Program> from_text(const std::string& text);

// What of the options decides how a program is planned, as a comment for its text: a finding comes
// back from the text alone. All forms run for a text, so `forms` is not in it.
std::string to_comment(const CheckOptions& options);
// Those of such a comment in a text, `options` where there is none. Refuses what is not an option.
Result<CheckOptions> options_in(const std::string& text, CheckOptions options);

}  // namespace hekla::testing
