// SPDX-License-Identifier: Apache-2.0
// Generator: one kernel on its way to SPIR-V. generate.cc deals out points and does loads, values
// and stores; loops.cc does loops, staged.cc those through shared memory, sums.cc sums on matrix
// units, transposes.cc tiles that are transposed in shared memory. Of this folder alone. One
// thread, one run.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "backends/vulkan/codegen/cooperative.h"
#include "backends/vulkan/codegen/counted_loop.h"
#include "backends/vulkan/codegen/entry.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/codegen/lower.h"
#include "backends/vulkan/codegen/memory.h"
#include "backends/vulkan/codegen/schedule.h"
#include "backends/vulkan/codegen/tile.h"
#include "backends/vulkan/codegen/transposes.h"

namespace hekla::vulkan::codegen {

// The kernel with what the device lacks emulated: what generate() makes a shader of, with its
// errors.
Result<kernel::Kernel> native_form(const kernel::Kernel& kernel, const Target& target);

// What the kernels of a shader share.
struct ShaderParts {
  explicit ShaderParts(const Target& target) : module(target), blocks(module), entry(module) {}

  Module module;
  BlockTypes blocks;
  Entry entry;
};

class Generator {
 public:
  // `parts` and `places`, null for the only kernel of a shader, outlive it.
  Generator(const kernel::IndexAnalysis& index, const Target& target, const Schedule& schedule,
            ShaderParts& parts, const OperandPlaces* places = nullptr);
  // A shader of this kernel.
  Shader run();
  // Of one of several kernels of a shader, for a schedule of points or of teams without shuffles:
  // what stands in front of them all; then code for one workgroup, whose invocations are `local`,
  // that does the work of all.
  void prepare();
  void emit_all_groups(Bits local);

 private:
  void find_unknown_zero();
  // Points.
  void emit_points(Bits group, Bits local);
  void emit_teams(Bits group, Bits local);
  // What another point of the team has.
  spv::Id exchanged(const kernel::Instruction& inst);
  // A load, store or addition in memory of the team; a load gives its value.
  spv::Id access_team(const kernel::Instruction& inst);
  // Where one of them in that array, or several, do not join what was done since the last barrier,
  // there is one; then they are noted.
  void meet(std::initializer_list<std::pair<uint32_t, kernel::Op>> accesses);
  // The array of a team's memory, and a pointer to a word of it or to four.
  spv::Id team_array(const kernel::TeamMemory& memory);
  spv::Id team_word(const kernel::TeamMemory& memory, Bits place);
  spv::Id team_unit(const kernel::TeamMemory& memory, Bits place);

  // Sums of products on matrix units (sums.cc).
  void begin_sums();
  void emit_sums(const kernel::Instruction& inst);
  // The variables of a team's sums, those of this subgroup: row by row.
  std::vector<spv::Id>& sums_of(const kernel::SumsAccess& access, const MatrixShape& shape);
  spv::Id load_sums(const kernel::SumsAccess& access, uint32_t array, Bits place, spv::Id type,
                    uint32_t order, uint32_t pitch);
  spv::MemoryAccessMask shared_access() const {
    return has_sums_ ? spv::MemoryAccessNonPrivatePointerKHRMask : spv::MemoryAccessMaskNone;
  }

  void emit_unit(Bits unit, bool has_tail);
  void emit_body(Bits unit, uint64_t units = 0);
  void set_unit(Bits unit, size_t first);
  void set_index(size_t dim, size_t point, Bits index);
  // A dimension of the tile: the indices of its points. Behind the end the last one is done again,
  // and not stored.
  struct Side {
    std::vector<Bits> indices;
    std::vector<Flag> inside;  // empty: all are
  };
  Side side(int64_t size, Bits first, Bits lane, uint32_t lanes, uint32_t count);
  Side adjacent(int64_t size, Bits lane);
  // The quotient; `number` becomes the remainder.
  static Bits divide(Bits& number, uint64_t by);
  void emit_tile(Bits group, Bits local);

  // Tiles whose loads are transposed through shared memory.
  void emit_transposes(Bits group, Bits local);
  void set_indices(const std::vector<size_t>& dimensions, size_t point, Bits number);
  void fill_transposed();
  spv::Id transposed_element(kernel::Value load, Bits column, Bits row);
  spv::Id load_transposed(kernel::Value load);

  // Values. Each is known by its place: which value, of which point of those done side by side.
  size_t id_index(kernel::Value v, size_t point) const {
    return static_cast<size_t>(v) * side_by_side_ + point;
  }
  // Of the points that have the same value, the first.
  size_t leader(kernel::Value v, size_t point) const;
  // For each point that leads others, with the point done while it runs.
  template <typename Do>
  void for_leaders(kernel::Value v, const Do& what) {
    for (point_ = 0; point_ < side_by_side_; ++point_) {
      if (leader(v, point_) == point_) what();
    }
    point_ = 0;
  }
  void spread(kernel::Value v) {
    for (size_t p = 0; p < side_by_side_; ++p)
      ids_[id_index(v, p)] = ids_[id_index(v, leader(v, p))];
  }
  spv::Id id(kernel::Value v) {
    const kernel::Instruction& inst = f_[v];
    if (inst.op == kernel::Op::kConstant) return m_.constant(inst.type, inst.immediate);
    return ids_[id_index(v, point_)];
  }
  Bits integer(kernel::Value v) { return {&m_, kernel::bit_width(f_.type(v)), id(v)}; }
  // Where a driver that sees a zero or an infinity draws wrong conclusions, it sees none: such
  // constants, constants that enter loops, and floats that come of constants and indices pass
  // through `hide`.
  bool is_foldable(kernel::Value v) const {
    return !foldable_.empty() && foldable_[static_cast<size_t>(v)];
  }
  spv::Id hide(kernel::ScalarType type, spv::Id value) {
    return or_low_word(m_, type, value, unknown_zero_);
  }
  // In another way, for what may be hidden already: (0 ^ z) ^ z is 0 to every compiler, (0 | z) + z
  // to none.
  spv::Id hide_otherwise(kernel::ScalarType type, spv::Id value) {
    return add_low_word(m_, type, value, unknown_zero_);
  }
  spv::Id operand(kernel::Value v, spv::Id value);
  bool is_made_by_bits(kernel::Value v) const;
  // What an instruction without memory and control flow gives; `argument_of` says of what.
  template <typename ArgumentOf>
  spv::Id computed(const kernel::Instruction& inst, const ArgumentOf& argument_of);
  void emit_region(int32_t number) {
    for (kernel::Value v : f_.region(number).instructions) emit(v);
    // The next iteration writes what this one has read.
    if (number != 0 && exchanges_in_[static_cast<size_t>(number)]) team_barrier();
  }
  void emit(kernel::Value v);
  spv::Id value(kernel::Value v, const kernel::Instruction& inst);

  // Memory.
  // How many columns of an invocation one access can take at once, since they are contiguous in
  // memory; 1: no more than one.
  uint32_t run_length(const kernel::Instruction& inst);
  uint64_t run_factor(const kernel::Instruction& inst, uint32_t length) const;
  // The last index of the grid, which there is.
  kernel::IndexAnalysis::Variable column() const {
    return index_.dimension(static_cast<int>(kernel_.grid.size()) - 1);
  }
  bool load_run(kernel::Value v, const kernel::Instruction& inst);
  bool load_group(kernel::Value v, const kernel::Instruction& inst);
  Flag store_condition(kernel::Value v, bool is_chain);
  bool store_group(kernel::Value v, const kernel::Instruction& inst);
  void emit_store(kernel::Value v, const kernel::Instruction& inst);

  // Loops.
  struct Loop {
    CountedLoop blocks;
    Bits iteration;
    std::vector<spv::Id> carried;
  };
  // Carried values with their types: of each value, once for each point that leads others.
  using Carried = std::vector<std::pair<spv::Id, kernel::ScalarType>>;
  // Iterations of an innermost loop.
  struct Iterations {
    int32_t region = 0;
    Bits first;  // id 0: 0
    Bits count;
    int64_t known_count = -1;  // -1: only the device knows
    uint32_t unroll = 1;       // the count is a multiple
  };
  spv::Id to_carry(spv::Id value, kernel::ScalarType type);
  std::vector<spv::Id> carried_by(const CountedLoop& blocks, const Carried& like);
  // Afterwards the build point is in the loop's body.
  Loop begin_loop(Bits count, unsigned control, const Carried& initial);
  // Values after the loop are those that `carried` then has.
  void end_loop(Loop& loop, const Carried& next);
  // What enters a loop or goes to its next iteration.
  spv::Id carried(kernel::Value v) {
    return is_foldable(v) && kernel::is_float(f_.type(v)) ? hide(f_.type(v), id(v)) : id(v);
  }
  void set_carried(const kernel::RegionBody& region, const Carried& values);
  template <typename ValueOf>
  Carried get_carried(const kernel::RegionBody& region, const ValueOf& value_of) {
    Carried values;
    for (size_t i = 1; i < region.parameters.size(); ++i) {
      const kernel::Value v = value_of(i);
      for_leaders(region.parameters[i], [&] { values.emplace_back(carried(v), f_.type(v)); });
    }
    return values;
  }
  Carried yields(const kernel::RegionBody& region) {
    return get_carried(region, [&](size_t i) { return region.yields[i - 1]; });
  }
  static Carried with_types(const std::vector<spv::Id>& ids, const Carried& like);
  void emit_loop(const kernel::Instruction& inst);
  bool is_condition(const kernel::Instruction& loop) const;
  Carried emit_condition(int32_t region, Bits count, const Carried& initial);
  Carried emit_unrolled(int32_t region, Bits iteration, uint32_t count, Carried values);
  Carried emit_iterations(const Iterations& range, unsigned control, const Carried& initial);
  Carried emit_all_iterations(const Iterations& range, bool passes, const Carried& initial);

  // What a load's address is made of, for another row or column and iteration.
  struct Replay {
    int32_t region = 0;
    std::optional<size_t> point;  // what is outside of the region is that of this point
    std::map<kernel::Value, spv::Id> known;
  };
  spv::Id replay(kernel::Value v, Replay& r);

  // Loads for several iterations at once.
  uint32_t choose_unroll(int32_t region, int64_t trip_count);
  std::vector<spv::Id> load_iterations(kernel::Value v, spv::Id first_index, uint32_t count);

  // Loads that lanes do for each other, or whatever comes of loads where all do the same point.
  std::vector<kernel::Value> passed_by_lanes(int32_t region) const;
  bool may_be_loaded_early(kernel::Value load) const;
  Carried emit_passed_iterations(const Iterations& range, const Carried& initial);

  // An array in shared memory of words: [iteration][word of a lane][lane]. The parts of a word are
  // what a lane needs together: several loads of one row, or several columns of one load.
  struct SharedArray {
    std::vector<StagedLoad> loads;  // of the parts; a single one: of all of them
    bool is_by_row = false;
    spv::Id array = 0;
    uint32_t parts = 1;
    uint32_t lanes = 1;
    uint32_t words = 1;       // of a lane
    uint32_t word_pitch = 1;  // from one word of a lane to the next
    // From iteration to iteration: odd, so that lanes that differ in it meet different banks.
    uint32_t pitch = 1;
    kernel::ScalarType type = kernel::ScalarType::kF32;
  };
  // Where a load finds its values.
  struct Staged {
    size_t array = 0;
    uint32_t part = 0;  // of a word of several loads
  };
  bool stage(int32_t region, int64_t trip_count, int64_t depth);
  // Whether there was room.
  bool share(std::span<const StagedLoad> loads, uint32_t parts, int64_t depth);
  spv::Id shared_word(const SharedArray& shared, Bits iteration, Bits word, Bits lane);
  spv::Id load_staged(kernel::Value v, const Staged& staged);
  // The words that an invocation fetches from memory for a block of iterations: which they are,
  // what is in them, part by part, and how they get into shared memory.
  struct SharedPlace {
    Bits iteration, word, lane;
    Flag inside;  // id 0: there is one for every invocation
  };
  std::vector<SharedPlace> shared_places(const SharedArray& shared, uint64_t depth);
  void fetch_word(int32_t region, const SharedArray& shared, const SharedPlace& place,
                  Bits first_iteration, Carried& values);
  void fetch(int32_t region, const SharedArray& shared, Bits first_iteration, uint64_t depth,
             Carried& values);
  // Gives the values behind those of this array.
  std::span<const Carried::value_type> put(const SharedArray& shared,
                                           std::span<const Carried::value_type> values,
                                           uint64_t depth);
  void barrier();
  void team_barrier() {
    accesses_.clear();
    barrier();
  }
  Carried emit_staged_iterations(int32_t region, Bits blocks, uint64_t depth,
                                 const Carried& initial);

  const kernel::IndexAnalysis& index_;
  const kernel::Kernel& kernel_;
  const kernel::Function& f_;
  const Target& target_;
  const Schedule schedule_;
  Module& m_;
  spv::Builder& b_;
  Memory memory_;
  Entry& entry_;
  const size_t side_by_side_;     // points of an invocation
  const bool stores_come_last_;   // behind all loops
  std::vector<uint8_t> depends_;  // by Value: on what of the tile
  std::vector<spv::Id> ids_;      // by id_index()
  std::vector<Flag> inside_;      // of each point: whether it is one; id 0: it is
  size_t point_ = 0;              // that is emitted
  // Of a tile.
  Bits first_column_, first_row_, lane_x_, lane_y_, local_;
  std::vector<SharedArray> shared_;
  std::map<kernel::Value, Staged> staged_;
  Bits shared_iteration_;  // within the block
  // Words that this iteration has loaded, by array and the lane's word.
  std::map<std::pair<size_t, size_t>, spv::Id> words_;
  TransposedTile transposed_;
  std::map<kernel::Value, spv::Id> transposed_arrays_;
  // Of exchanges through shared memory: two arrays of a type, used alternately.
  std::map<std::pair<kernel::ScalarType, size_t>, spv::Id> exchange_arrays_;
  size_t exchanges_ = 0;
  const std::vector<bool> exchanges_in_;  // by region: whether points exchange values in it
  // Of memory of teams: the arrays, where this team's part begins, and what was done with each
  // since the last barrier.
  std::map<uint32_t, spv::Id> team_arrays_;
  std::map<uint32_t, kernel::TeamMemory> team_memories_;
  // Those of units of four words.
  std::set<uint32_t> wide_arrays_;
  Bits team_slot_;
  std::map<uint32_t, std::set<kernel::Op>> accesses_;
  uint32_t shared_bytes_ = 0;
  // Of sums of products: matrices' types, the sums by their number, and this subgroup.
  const bool has_sums_;
  MatrixTypes matrix_types_;
  std::map<uint32_t, std::vector<spv::Id>> sums_;
  Bits subgroup_;
  // Of unrolled iterations: which one is emitted, how many there are, which loads load for several,
  // and what they gave, by id_index() and iteration.
  uint32_t unrolled_ = 0;
  uint32_t unroll_ = 1;
  std::set<kernel::Value> long_loads_;
  std::map<size_t, std::vector<spv::Id>> ahead_;
  // Of loads that lanes did for each other: what this lane loaded, and which lane passes its own
  // now.
  Bits subgroup_lane_;
  std::map<size_t, std::vector<spv::Id>> passed_;
  Bits passing_lane_;
  std::vector<bool> needed_;  // what is left to emit where values were passed; empty: all
  // Loads of contiguous elements: the others of each first, and those that their firsts have
  // loaded.
  std::map<kernel::Value, std::vector<kernel::Value>> groups_;
  std::set<kernel::Value> loaded_;
  // Stores of contiguous elements: all of a group by its last, and those that wait for theirs.
  std::map<kernel::Value, std::vector<kernel::Value>> stores_;
  std::set<kernel::Value> waiting_stores_;
  std::vector<bool> guarded_;   // stores, by Value; empty: none
  std::vector<bool> foldable_;  // by Value; empty: no matter
  Bits unknown_zero_;           // 0, which no compiler can know
};

template <typename ArgumentOf>
spv::Id Generator::computed(const kernel::Instruction& inst, const ArgumentOf& argument_of) {
  spv::Id arguments[3] = {};
  bool is_known = !foldable_.empty() && kernel::is_float(inst.type);
  for (size_t i = 0; i < inst.arguments.size(); ++i) {
    const kernel::Value a = inst.arguments[i];
    arguments[i] = argument_of(a);
    if (kernel::is_float(inst.type)) arguments[i] = operand(a, arguments[i]);
    is_known = is_known && is_foldable(a);
  }
  if (m_.target().masks_bits_wrongly && inst.op == kernel::Op::kSelect &&
      inst.type != kernel::ScalarType::kBool) {
    // Of two that are hidden alike the compiler makes one selection of what they hide.
    if (is_made_by_bits(inst.arguments[2])) arguments[1] = hide(inst.type, arguments[1]);
    if (is_made_by_bits(inst.arguments[1])) arguments[2] = hide_otherwise(inst.type, arguments[2]);
  }
  const kernel::ScalarType from = f_.type(inst.arguments[inst.op == kernel::Op::kSelect ? 1 : 0]);
  const spv::Id result = lower(m_, inst.op, inst.type, from, {arguments, inst.arguments.size()});
  return is_known ? hide(inst.type, result) : result;
}

}  // namespace hekla::vulkan::codegen
