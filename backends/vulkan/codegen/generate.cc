// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "backends/compiler/kernel/math/emulate.h"
#include "backends/vulkan/codegen/generator.h"
#include "backends/vulkan/codegen/schedule_rules.h"
#include "backends/vulkan/launch/kernel_abi.h"

namespace hekla::vulkan {
namespace {

using codegen::Schedule;
using kernel::Access;
using kernel::Function;
using kernel::Instruction;
using kernel::is_float;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

// A few points of a few instructions are repeated by the driver instead of looped over.
constexpr size_t kSmallBody = 64;
constexpr uint32_t kFewPoints = 4;

bool is_float_division(const Instruction& inst) {
  return inst.op == Op::kDiv || inst.op == Op::kSqrt || inst.op == Op::kFloor ||
         inst.op == Op::kCeil || inst.op == Op::kTrunc || inst.op == Op::kRoundEven;
}

bool is_exact(const FloatTarget& f, Op op) {
  return op == Op::kDiv    ? f.exact_division
         : op == Op::kSqrt ? f.exact_square_root
                           : f.exact_rounding;
}

Status check_features(const kernel::Kernel& kernel, const Target& target) {
  std::set<std::string> missing;
  const Function& f = kernel.body;
  auto need_type = [&](ScalarType type) {
    if (type == ScalarType::kI64 && !target.int64) missing.insert("shaderInt64");
    if (type == ScalarType::kF64 && !target.float64) missing.insert("shaderFloat64");
  };
  for (size_t i = 0; i < f.size(); ++i) {
    const Instruction& inst = f[static_cast<Value>(i)];
    need_type(inst.type);
    if (inst.type == ScalarType::kF64 && !target.int64 && is_float_division(inst) &&
        !is_exact(target.f64, inst.op)) {
      missing.insert(fmt::format("shaderInt64 (for {} of f64)", kernel::op_name(inst.op)));
    }
    if (inst.op == Op::kLoad || inst.op == Op::kStore) {
      const Access access = kernel::unpack_access(inst.immediate);
      if (static_cast<size_t>(access.operand) >= kernel.operands.size()) {
        return internal_error("kernel {}: access to operand {} of {}", kernel.name, access.operand,
                              kernel.operands.size());
      }
      const int64_t bytes = kernel.operands[static_cast<size_t>(access.operand)].bytes;
      if (bytes > target.max_narrow_bytes && !target.int64) {
        missing.insert(fmt::format("shaderInt64 (for an operand of {} bytes)", bytes));
      }
    }
  }
  if (kernel.points() > target.max_narrow_points && !target.int64) {
    missing.insert(fmt::format("shaderInt64 (for a grid of {} points)", kernel.points()));
  }
  if (missing.empty()) return Status();
  return unimplemented("kernel {} needs {}, which {} lacks", kernel.name, fmt::join(missing, ", "),
                       target.device);
}

}  // namespace

namespace codegen {

Generator::Generator(const kernel::IndexAnalysis& index, const Target& target,
                     const Schedule& schedule, ShaderParts& parts, const OperandPlaces* places)
    : index_(index),
      kernel_(index.kernel()),
      f_(kernel_.body),
      target_(target),
      schedule_(schedule),
      m_(parts.module),
      b_(m_.builder()),
      memory_(m_, parts.blocks, kernel_, schedule.is_adjacent || schedule.transposed_loads > 0,
              schedule.long_accesses, places),
      entry_(parts.entry),
      side_by_side_(size_t{schedule.columns} * schedule.rows),
      stores_come_last_(stores_after_loops(f_)),
      depends_(f_.size(), 0),
      ids_(f_.size() * side_by_side_, 0),
      inside_(side_by_side_),
      exchanges_in_(kernel::regions_with_exchanges(f_)),
      has_sums_(kernel::has_sums(f_)),
      matrix_types_(m_) {
  for (const kernel::TeamMemory& memory : kernel::team_memories(f_)) {
    team_memories_[memory.array] = memory;
  }
  for (const Instruction& inst : f_.instructions()) {
    if (inst.op == Op::kTeamStoreWide) {
      wide_arrays_.insert(kernel::unpack_team_memory(inst.immediate).array);
    } else if (kernel::is_sums_op(inst.op) && inst.op != Op::kSumsClear) {
      const kernel::SumsAccess access = kernel::unpack_sums(inst.immediate);
      wide_arrays_.insert(access.left);
      if (inst.op == Op::kSumsMultiply) wide_arrays_.insert(access.right);
    }
  }
  if (schedule.transposed_loads > 0) {
    transposed_ = transposed_tile(index);
    transposed_.loads.resize(schedule.transposed_loads);
    depends_ = transposed_.depends;
  } else if (schedule.is_tiled || side_by_side_ > 1) {
    depends_ = schedule.is_tiled ? analyse_tile(index).depends : analyse_units(index);
  }
  if (schedule.long_accesses) {
    groups_ = target.is_cpu ? adjacent_loads(index, kLongAccessBytes, 4)
                            : adjacent_loads(index, kLongestRunBytes, 1);
    if (!target.is_cpu && !schedule.is_adjacent && may_be_adjacent(kernel_, target)) {
      stores_ = adjacent_stores(index, kLongestRunBytes);
      for (const auto& [last, all] : stores_) {
        for (const Value v : all) {
          if (v != last) waiting_stores_.insert(v);
        }
      }
    }
  }
  if (target.splits_store_chains) guarded_ = chain_stores(f_);
  if (target.folds_zeros) foldable_ = foldable_values(f_);
}

Shader Generator::run() {
  if (has_sums_) matrix_types_.declare();
  entry_.begin(schedule_.workgroup_size, memory_.table_members());
  const Bits local =
      entry_.component(entry_.built_in(spv::BuiltInLocalInvocationId, "invocation"), 0);
  if (schedule_.broadcasts || schedule_.shuffles) {
    m_.keep_lanes_together();
    b_.addCapability(spv::CapabilityGroupNonUniformShuffle);
    subgroup_lane_ = entry_.built_in(spv::BuiltInSubgroupLocalInvocationId, "lane", 1);
  }
  if (has_sums_) begin_sums();
  find_unknown_zero();
  const Bits group = entry_.group();
  // Folded grids have more groups than there is work for.
  const Flag has_work = group < static_cast<uint64_t>(schedule_.group_count);
  spv::Builder::If outer(has_work.id, spv::SelectionControlMaskNone, b_);
  memory_.load_table(entry_);
  if (schedule_.transposed_loads > 0) {
    emit_transposes(group, local);
  } else if (schedule_.is_tiled) {
    emit_tile(group, local);
  } else if (schedule_.team_points > 0) {
    emit_teams(group, local);
  } else {
    emit_points(group, local);
  }
  outer.makeEndIf();
  entry_.end();

  Shader shader;
  shader.words = m_.words();
  shader.workgroup_size = schedule_.workgroup_size;
  shader.group_count = schedule_.group_count;
  if (has_sums_) shader.subgroup_size = target_.subgroup_size;
  shader.schedule = schedule_name(schedule_);
  shader.required_features = m_.features();
  return shader;
}

// Numbers of groups stay below 2^31, and no compiler knows that.
void Generator::find_unknown_zero() {
  if (guarded_.empty() && foldable_.empty() && !m_.target().masks_bits_wrongly) return;
  unknown_zero_ = entry_.first_group() >> 31;
}

void Generator::prepare() {
  find_unknown_zero();
  memory_.load_table(entry_);
}

void Generator::emit_all_groups(Bits local) {
  const bool has_teams = schedule_.team_points > 0;
  const auto emit_group = [&](Bits group) {
    if (has_teams) {
      emit_teams(group, local);
    } else {
      emit_points(group, local);
    }
  };
  if (schedule_.group_count == 1) return emit_group(local.like(0));
  Loop loop = begin_loop(Bits::constant(m_, 32, static_cast<uint64_t>(schedule_.group_count)),
                         spv::LoopControlDontUnrollMask, {});
  emit_group(loop.iteration);
  // The next group's teams write what these have read.
  if (has_teams) team_barrier();
  end_loop(loop, {});
}

void Generator::emit_points(Bits group, Bits local) {
  if (schedule_.shares_point) {
    inside_[0] = subgroup_lane_ == 0;
    return emit_body(group);
  }
  const int64_t units = kernel_.points() / schedule_.columns;
  const int width = kernel_.points() > m_.target().max_narrow_points ? 64 : 32;
  const auto per_group =
      uint64_t{schedule_.workgroup_size} * schedule_.points_per_invocation * schedule_.rows;
  const Bits start = group.resized(width) * per_group + local.resized(width);
  const bool has_tail = units % static_cast<int64_t>(per_group) != 0;
  if (schedule_.points_per_invocation == 1) return emit_unit(start, has_tail);

  const bool is_small = f_.size() <= kSmallBody && f_.region_count() == 1 &&
                        schedule_.points_per_invocation <= kFewPoints;
  Loop loop =
      begin_loop(Bits::constant(m_, 32, schedule_.points_per_invocation),
                 is_small ? spv::LoopControlUnrollMask : spv::LoopControlDontUnrollMask, {});
  emit_unit(
      start + loop.iteration.resized(width) * (uint64_t{schedule_.workgroup_size} * schedule_.rows),
      has_tail);
  end_loop(loop, {});
}

// All invocations go the same way, as barriers and shuffles want it: those behind the end do the
// last team again, and do not store.
void Generator::emit_teams(Bits group, Bits local) {
  if (schedule_.shuffles) {
    // By what the lanes of subgroups are, which Vulkan does not say of local invocations.
    if (subgroup_.id() == 0) subgroup_ = entry_.built_in(spv::BuiltInSubgroupId, "subgroup", 1);
    local = subgroup_ * uint64_t{target_.subgroup_size} + subgroup_lane_;
  }
  local_ = local;
  const uint64_t points = schedule_.team_points;
  const uint64_t per_group = schedule_.workgroup_size / points;
  const bool is_adjacent = schedule_.team_step == 1;
  Bits inner = local;
  const Bits outer = divide(inner, is_adjacent ? points : per_group);
  const int width = kernel_.points() > m_.target().max_narrow_points ? 64 : 32;
  const Bits point = (is_adjacent ? inner : outer).resized(width);
  team_slot_ = is_adjacent ? outer : inner;
  Bits team = group.resized(width) * per_group + team_slot_.resized(width);
  const auto count = static_cast<uint64_t>(kernel_.points()) / points;
  if (count % per_group != 0) {
    inside_[0] = team < count;
    team = select(inside_[0], team, count - 1);
  }
  const auto stride = static_cast<uint64_t>(team_stride(kernel_));
  const Bits before = divide(team, stride);
  emit_body((before * points + point) * stride + team);
}

spv::Id Generator::exchanged(const Instruction& inst) {
  const uint64_t distance =
      uint64_t{kernel::unpack_exchange(inst.immediate).distance} * schedule_.team_step;
  const spv::Id value = id(inst.arguments[0]);
  if (schedule_.shuffles && distance < target_.subgroup_size) {
    return shuffle(m_, inst.type, value, subgroup_lane_ ^ distance);
  }
  // Whoever writes an array again has met all others at the barrier of the exchange between.
  const bool is_bool = inst.type == ScalarType::kBool;
  const ScalarType type = is_bool ? ScalarType::kI32 : inst.type;
  spv::Id& array = exchange_arrays_[{type, exchanges_++ % 2}];
  if (array == 0) {
    const spv::Id all = b_.makeArrayType(
        m_.type(type), b_.makeUintConstant(schedule_.workgroup_size), /*stride=*/0);
    array = b_.createVariable(spv::NoPrecision, spv::StorageClassWorkgroup, all, "exchanged");
    entry_.add(array);
  }
  const auto element = [&](Bits at) {
    return m_.op(spv::OpAccessChain, b_.makePointer(spv::StorageClassWorkgroup, m_.type(type)),
                 {array, at.id()});
  };
  b_.createStore(is_bool ? number({&m_, value}, 32).id() : value, element(local_), shared_access());
  team_barrier();
  const spv::Id other =
      b_.createLoad(element(local_ ^ distance), spv::NoPrecision, shared_access());
  return is_bool ? (Bits{&m_, 32, other} != 0).id : other;
}

spv::Id Generator::team_array(const kernel::TeamMemory& memory) {
  spv::Id& array = team_arrays_[memory.array];
  if (array != 0) return array;
  const uint32_t words = memory.words * (schedule_.workgroup_size / schedule_.team_points);
  const bool is_wide = wide_arrays_.contains(memory.array);
  const spv::Id element = is_wide ? m_.vector_type(m_.uint_type(32), 4) : m_.uint_type(32);
  const spv::Id all = b_.makeArrayType(
      element, b_.makeUintConstant(is_wide ? (words + 3) / 4 : words), /*stride=*/0);
  array = b_.createVariable(spv::NoPrecision, spv::StorageClassWorkgroup, all, "team");
  entry_.add(array);
  return array;
}

spv::Id Generator::team_unit(const kernel::TeamMemory& memory, Bits place) {
  const spv::Id array = team_array(memory);
  if (schedule_.workgroup_size > schedule_.team_points) {
    place = team_slot_ * uint64_t{memory.words} + place;
  }
  return m_.op(spv::OpAccessChain,
               b_.makePointer(spv::StorageClassWorkgroup, m_.vector_type(m_.uint_type(32), 4)),
               {array, (place >> 2).id()});
}

spv::Id Generator::team_word(const kernel::TeamMemory& memory, Bits place) {
  const spv::Id array = team_array(memory);
  if (schedule_.workgroup_size > schedule_.team_points) {
    place = team_slot_ * uint64_t{memory.words} + place;
  }
  const spv::Id type = b_.makePointer(spv::StorageClassWorkgroup, m_.uint_type(32));
  if (!wide_arrays_.contains(memory.array)) {
    return m_.op(spv::OpAccessChain, type, {array, place.id()});
  }
  return m_.op(spv::OpAccessChain, type, {array, (place >> 2).id(), (place & 3).id()});
}

void Generator::meet(std::initializer_list<std::pair<uint32_t, Op>> accesses) {
  const bool may_join =
      std::all_of(accesses.begin(), accesses.end(), [&](const std::pair<uint32_t, Op>& access) {
        const std::set<Op>& done = accesses_[access.first];
        return done.empty() || (done.size() == 1 && done.contains(access.second));
      });
  if (!may_join) team_barrier();
  for (const auto& [array, op] : accesses) accesses_[array].insert(op);
}

spv::Id Generator::access_team(const Instruction& inst) {
  const kernel::TeamMemory memory = kernel::unpack_team_memory(inst.immediate);
  const bool is_wide = inst.op == Op::kTeamStoreWide;
  meet({{memory.array, is_wide ? Op::kTeamStore : inst.op}});
  const Bits at = integer(inst.arguments[0]);
  if (is_wide) {
    std::vector<spv::Id> words;
    for (size_t i = 1; i < inst.arguments.size(); ++i) words.push_back(id(inst.arguments[i]));
    const spv::Id unit = b_.createCompositeConstruct(m_.vector_type(m_.uint_type(32), 4), words);
    b_.createStore(unit, team_unit(memory, at), shared_access());
    return 0;
  }
  const spv::Id word = team_word(memory, at);
  if (inst.op == Op::kTeamLoad) {
    return b_.createLoad(word, spv::NoPrecision, shared_access());
  }
  const spv::Id value = id(inst.arguments[1]);
  if (inst.op == Op::kTeamStore) {
    b_.createStore(value, word, shared_access());
  } else {
    m_.op(spv::OpAtomicIAdd, m_.uint_type(32),
          {word, b_.makeUintConstant(spv::ScopeWorkgroup),
           b_.makeUintConstant(spv::MemorySemanticsMaskNone), value});
  }
  return 0;
}

// Of several units side by side those behind the end do the last one again, and do not store.
void Generator::emit_unit(Bits unit, bool has_tail) {
  if (!has_tail) return emit_body(unit);
  const auto units = static_cast<uint64_t>(kernel_.points() / schedule_.columns);
  spv::Builder::If inside((unit < units).id, spv::SelectionControlMaskNone, b_);
  emit_body(unit, units);
  inside.makeEndIf();
}

// The points of a unit, as many columns as are done side by side, and of those that are done beside
// it. `units`: how many there are; 0: there is none behind the end.
void Generator::emit_body(Bits unit, uint64_t units) {
  for (uint32_t r = 0; r < schedule_.rows; ++r) {
    Bits one = r == 0 ? unit : unit + uint64_t{r} * schedule_.workgroup_size;
    const size_t first = size_t{r} * schedule_.columns;
    if (r > 0 && units > 0) {
      const Flag is_inside = one < units;
      for (size_t c = 0; c < schedule_.columns; ++c) inside_[first + c] = is_inside;
      one = select(is_inside, one, units - 1);
    }
    set_unit(one, first);
  }
  emit_region(0);
}

void Generator::set_unit(Bits unit, size_t first) {
  const size_t rank = kernel_.grid.size();
  for (size_t d = rank; d-- > 0;) {
    Bits index = unit;
    const int64_t columns = d + 1 == rank ? schedule_.columns : 1;
    if (d > 0) {
      const auto size = static_cast<uint64_t>(std::max<int64_t>(1, kernel_.grid[d] / columns));
      const Bits rest = unit / size;
      index = unit - rest * size;
      unit = rest;
    }
    if (columns > 1) index = index * static_cast<uint64_t>(columns);
    for (size_t c = 0; c < schedule_.columns; ++c) {
      set_index(d, first + c, columns > 1 && c > 0 ? index + uint64_t{c} : index);
    }
  }
}

void Generator::set_index(size_t dim, size_t point, Bits index) {
  const int index_width = kernel::bit_width(kernel_.index_type);
  ids_[id_index(f_.body().parameters[dim], point)] = index.resized(index_width).id();
}

Generator::Side Generator::side(int64_t size, Bits first, Bits lane, uint32_t lanes,
                                uint32_t count) {
  Side result;
  const bool has_tail = size % (int64_t{lanes} * count) != 0;
  for (uint32_t i = 0; i < count; ++i) {
    Bits index = first + lane + uint64_t{i} * lanes;
    if (has_tail) {
      result.inside.push_back(index < static_cast<uint64_t>(size));
      index = select(result.inside.back(), index, static_cast<uint64_t>(size - 1));
    }
    result.indices.push_back(index);
  }
  return result;
}

// The columns where those of an invocation are adjacent: all of them are there, or none.
Generator::Side Generator::adjacent(int64_t size, Bits lane) {
  Side result;
  const auto count = uint64_t{schedule_.columns};
  Bits start = first_column_ + lane * count;
  if (size % (int64_t{schedule_.lanes_x} * schedule_.columns) != 0) {
    result.inside.assign(schedule_.columns, start < static_cast<uint64_t>(size));
    start = select(result.inside[0], start, static_cast<uint64_t>(size) - count);
  }
  for (uint64_t i = 0; i < count; ++i) result.indices.push_back(start + i);
  return result;
}

Bits Generator::divide(Bits& number, uint64_t by) {
  if (by == 1) return std::exchange(number, number.like(0));
  const Bits quotient = number / by;
  number = number - quotient * by;
  return quotient;
}

void Generator::emit_tile(Bits group, Bits local) {
  const size_t rank = kernel_.grid.size();
  Bits x = local;
  const Bits y = divide(x, schedule_.lanes_x);
  // Groups that follow each other share their columns: a column's operand of a contraction is the
  // one that lies scattered.
  Bits gy = group;
  Bits gx = divide(gy, static_cast<uint64_t>(schedule_.groups_y));
  Bits rest = divide(gx, static_cast<uint64_t>(schedule_.groups_x));
  for (size_t d = rank - std::min<size_t>(rank, 2); d-- > 0;) {
    Bits index = rest;
    rest = divide(index, static_cast<uint64_t>(kernel_.grid[d]));
    for (size_t p = 0; p < side_by_side_; ++p) set_index(d, p, index);
  }
  first_column_ = gx * (uint64_t{schedule_.lanes_x} * schedule_.columns);
  first_row_ = gy * (uint64_t{schedule_.lanes_y} * schedule_.rows);
  lane_x_ = x;
  lane_y_ = y;
  local_ = local;
  const Side columns = schedule_.is_adjacent ? adjacent(kernel_.grid[rank - 1], x)
                                             : side(kernel_.grid[rank - 1], first_column_, x,
                                                    schedule_.lanes_x, schedule_.columns);
  Side rows;
  if (rank > 1) {
    rows = side(kernel_.grid[rank - 2], first_row_, y, schedule_.lanes_y, schedule_.rows);
  }
  for (size_t p = 0; p < side_by_side_; ++p) {
    const size_t r = p / schedule_.columns, c = p % schedule_.columns;
    set_index(rank - 1, p, columns.indices[c]);
    if (rank > 1) set_index(rank - 2, p, rows.indices[r]);
    if (!columns.inside.empty()) inside_[p] = columns.inside[c];
    if (!rows.inside.empty()) {
      inside_[p] = inside_[p].id != 0 ? inside_[p] & rows.inside[r] : rows.inside[r];
    }
  }
  emit_region(0);
}

size_t Generator::leader(Value v, size_t point) const {
  const uint8_t on = depends_[static_cast<size_t>(v)];
  const size_t r = (on & kOnRow) != 0 ? point / schedule_.columns : 0;
  const size_t c = (on & kOnColumn) != 0 ? point % schedule_.columns : 0;
  return r * schedule_.columns + c;
}

spv::Id Generator::operand(Value v, spv::Id value) {
  const Instruction& inst = f_[v];
  if (!is_foldable(v) || !is_float(inst.type)) return value;
  const uint64_t magnitude =
      inst.immediate & ((uint64_t{1} << (kernel::bit_width(inst.type) - 1)) - 1);
  const uint64_t infinity = inst.type == ScalarType::kF64 ? 0x7ff0000000000000 : 0x7f800000;
  return magnitude == 0 || magnitude == infinity ? hide(inst.type, value) : value;
}

bool Generator::is_made_by_bits(Value v) const {
  while (f_[v].op == Op::kBitcast) v = f_[v].arguments[0];
  const Op op = f_[v].op;
  return op == Op::kAnd || op == Op::kOr || op == Op::kXor || op == Op::kNeg || op == Op::kAbs;
}

void Generator::emit(Value v) {
  const Instruction& inst = f_[v];
  if (inst.op == Op::kFor) return emit_loop(inst);
  if (inst.op == Op::kStore) return emit_store(v, inst);
  if (kernel::is_sums_op(inst.op)) return emit_sums(inst);
  if (!kernel::has_result(inst.op)) {
    access_team(inst);
    return;
  }
  if (!needed_.empty() && !needed_[static_cast<size_t>(v)]) return;
  if (loaded_.erase(v) > 0) return spread(v);
  if (inst.op != Op::kLoad || !(load_run(v, inst) || load_group(v, inst))) {
    for_leaders(v, [&] { ids_[id_index(v, point_)] = value(v, inst); });
  }
  spread(v);
}

uint32_t Generator::run_length(const Instruction& inst) {
  const Access access = kernel::unpack_access(inst.immediate);
  if (!schedule_.is_adjacent || access.bytes == 8 || !memory_.is_narrow(access) ||
      index_.slope(inst.arguments[0], column()) != int64_t{1}) {
    return 1;
  }
  const uint32_t columns = schedule_.columns & ~(schedule_.columns - 1);  // a power of two
  return std::min(columns, kLongestRunBytes / access.bytes);
}

// What divides the first index of each run of so many columns.
uint64_t Generator::run_factor(const Instruction& inst, uint32_t length) const {
  if (length == 1) return 1;
  return static_cast<uint64_t>(index_.factor(inst.arguments[0], column(), length));
}

// Where a load of adjacent columns is contiguous in memory: several columns at once.
bool Generator::load_run(Value v, const Instruction& inst) {
  const uint32_t length = run_length(inst);
  if (length == 1 || staged_.contains(v)) return false;
  const uint64_t aligned_to = run_factor(inst, length);
  for_leaders(v, [&] {
    if (point_ % length != 0) return;
    const std::vector<spv::Id> values =
        memory_.load_run(kernel::unpack_access(inst.immediate), inst.type,
                         integer(inst.arguments[0]), length, aligned_to);
    for (uint32_t i = 0; i < length; ++i) ids_[id_index(v, point_ + i)] = values[i];
  });
  return true;
}

// Where other loads read the next elements: all at once.
bool Generator::load_group(Value v, const Instruction& inst) {
  const auto group = groups_.find(v);
  const Access access = kernel::unpack_access(inst.immediate);
  if (group == groups_.end() || staged_.contains(v) || passed_.contains(id_index(v, 0)) ||
      (unroll_ > 1 && long_loads_.contains(v)) || !memory_.is_narrow(access)) {
    return false;
  }
  for_leaders(v, [&] {
    const auto count = static_cast<uint32_t>(1 + group->second.size());
    const std::vector<spv::Id> values =
        memory_.load_run(access, inst.type, integer(inst.arguments[0]), count, count);
    ids_[id_index(v, point_)] = values[0];
    for (size_t i = 1; i < count; ++i) ids_[id_index(group->second[i - 1], point_)] = values[i];
  });
  loaded_.insert(group->second.begin(), group->second.end());
  return true;
}

spv::Id Generator::value(Value v, const Instruction& inst) {
  if (const auto it = passed_.find(id_index(v, point_)); it != passed_.end()) {
    return shuffle(m_, inst.type, it->second[unrolled_], passing_lane_);
  }
  switch (inst.op) {
    case Op::kLoad:
      if (const auto it = staged_.find(v); it != staged_.end()) {
        return load_staged(v, it->second);
      }
      if (transposed_arrays_.contains(v)) return load_transposed(v);
      if (unroll_ > 1 && long_loads_.contains(v)) {
        std::vector<spv::Id>& loaded = ahead_[id_index(v, point_)];
        if (unrolled_ == 0) loaded = load_iterations(v, id(inst.arguments[0]), unroll_);
        return loaded[unrolled_];
      }
      return memory_.load(kernel::unpack_access(inst.immediate), inst.type,
                          integer(inst.arguments[0]));
    case Op::kForResult: {
      const auto region = static_cast<int32_t>(f_[inst.arguments[0]].immediate);
      return id(f_.region(region).parameters[inst.immediate + 1]);
    }
    case Op::kShuffleXor:
      return exchanged(inst);
    case Op::kTeamLoad:
      return access_team(inst);
    default:
      return computed(inst, [&](Value a) { return id(a); });
  }
}

// Of a store of point_; id 0: always. `is_chain`: its value alone, as the driver computes it.
Flag Generator::store_condition(Value v, bool is_chain) {
  const Flag condition = inside_[point_];
  if (!is_chain || guarded_.empty() || !guarded_[static_cast<size_t>(v)]) return condition;
  // Always true, and no compiler can know it.
  const Value stored = f_[v].arguments[1];
  const Flag is_zero = (low_word(m_, f_.type(stored), id(stored)) & unknown_zero_) == 0;
  return condition.id != 0 ? condition & is_zero : is_zero;
}

// Where stores write contiguous elements one after the other: the last of them writes all.
bool Generator::store_group(Value v, const Instruction& inst) {
  const Access access = kernel::unpack_access(inst.immediate);
  if (!memory_.is_narrow(access)) return false;
  if (waiting_stores_.contains(v)) return true;
  const auto group = stores_.find(v);
  if (group == stores_.end()) return false;
  const auto count = static_cast<uint32_t>(group->second.size());
  for (point_ = 0; point_ < side_by_side_; ++point_) {
    const Flag condition = store_condition(v, !memory_.is_packed(access, count, count));
    std::optional<spv::Builder::If> guard;
    if (condition.id != 0) guard.emplace(condition.id, spv::SelectionControlMaskNone, b_);
    std::vector<spv::Id> values;
    for (const Value one : group->second) values.push_back(id(f_[one].arguments[1]));
    const Value first = group->second.front();
    memory_.store_run(access, f_.type(inst.arguments[1]), integer(f_[first].arguments[0]), values,
                      count);
    if (guard) guard->makeEndIf();
  }
  point_ = 0;
  return true;
}

void Generator::emit_store(Value v, const Instruction& inst) {
  if (store_group(v, inst)) return;
  const Access access = kernel::unpack_access(inst.immediate);
  const Value stored = inst.arguments[1];
  const ScalarType type = f_.type(stored);
  const uint32_t length = run_length(inst);
  const uint64_t aligned_to = run_factor(inst, length);
  const bool is_packed = memory_.is_packed(access, length, aligned_to);
  for (point_ = 0; point_ < side_by_side_; point_ += length) {
    const Flag condition = store_condition(v, !is_packed);
    std::optional<spv::Builder::If> guard;
    if (condition.id != 0) guard.emplace(condition.id, spv::SelectionControlMaskNone, b_);
    const Bits element = integer(inst.arguments[0]);
    std::vector<spv::Id> values;
    const size_t first = point_;
    for (; point_ < first + length; ++point_) values.push_back(id(stored));
    point_ = first;
    memory_.store_run(access, type, element, values, aligned_to);
    if (guard) guard->makeEndIf();
  }
  point_ = 0;
}

}  // namespace codegen

namespace {

// Kernels with sums of products ask for the subgroups that matrices want.
Target with_matrix_subgroups(Target target) {
  target.subgroup_size = target.matrix_subgroup_size;
  target.subgroup_shuffle = target.matrix_subgroup_shuffle;
  return target;
}

// As short as a kernel's module can be: one point at a time, nothing unrolled.
Target without_repetition(Target target) {
  constexpr uint32_t kWorkgroup = 64;
  target.schedule_seed = 0;
  target.workgroup_size = kWorkgroup;
  target.points_per_invocation = 1;
  return target;
}

Result<Shader> generate_scheduled(const kernel::IndexAnalysis& index, const Target& target) {
  const kernel::Kernel& kernel = index.kernel();
  kernel::Implementations asked;
  const Schedule schedule = codegen::choose_schedule(index, target, &asked);
  if (asked.taken().empty()) {
    return unimplemented("kernel {} cannot run on {}: {}", kernel.name, target.device,
                         codegen::why_no_teams(kernel, target));
  }
  if (schedule.group_count > static_cast<int64_t>(kMaxGroups)) {
    return unimplemented("kernel {}: {} points are {} workgroups, more than {}", kernel.name,
                         kernel.points(), schedule.group_count, kMaxGroups);
  }
  if (schedule.has_too_many_iterations) {
    return unimplemented(
        "kernel {}: its loops have more iterations than the {} after which {} ends them",
        kernel.name, target.max_loop_iterations, target.device);
  }
  codegen::ShaderParts parts(target);
  Shader shader = codegen::Generator(index, target, schedule, parts).run();
  shader.implementations = asked.take();
  return shader;
}

Result<Shader> generate_for(const kernel::Kernel& kernel, const Target& target) {
  const kernel::IndexAnalysis index(kernel);
  HEKLA_ASSIGN_OR_RETURN(Shader shader, generate_scheduled(index, target));
  const auto bytes = [&] { return static_cast<int64_t>(shader.words.size() * sizeof(uint32_t)); };
  const auto is_too_long = [&] {
    return target.max_module_bytes > 0 && bytes() > target.max_module_bytes;
  };
  const auto refusal = [&] {
    return fmt::format("{} bytes of SPIR-V, and {} compiles {}", bytes(), target.device,
                       target.max_module_bytes);
  };
  if (is_too_long()) {
    kernel::Implementation longer{fmt::format("{}, as chosen at first", shader.schedule),
                                  refusal()};
    HEKLA_ASSIGN_OR_RETURN(shader, generate_scheduled(index, without_repetition(target)));
    if (is_too_long()) return unimplemented("kernel {}: {}", kernel.name, refusal());
    shader.implementations.insert(shader.implementations.begin(), std::move(longer));
  }
#ifdef HEKLA_VALIDATE_SHADERS
  // Matrix units' instructions are newer than Debian 12's validator: their modules are kept for
  // another one (matrix_layout_test.cc).
  if (!kernel::has_sums(kernel.body)) {
    HEKLA_RETURN_IF_ERROR(validate(shader.words).with_context(kernel.name));
  }
#endif
  return shader;
}

Result<Shader> generate_native(const kernel::Kernel& kernel, const Target& target) {
  if (!kernel::has_sums(kernel.body)) return generate_for(kernel, target);
  return generate_for(kernel, with_matrix_subgroups(target));
}

}  // namespace

namespace codegen {

Result<kernel::Kernel> native_form(const kernel::Kernel& kernel, const Target& target) {
  if (kernel.body.body().parameters.size() != kernel.grid.size()) {
    return internal_error("kernel {}: a grid of rank {} and a body with {} parameters", kernel.name,
                          kernel.grid.size(), kernel.body.body().parameters.size());
  }
#ifdef HEKLA_VALIDATE_SHADERS
  HEKLA_RETURN_IF_ERROR(kernel::verify(kernel.body).with_context(kernel.name));
#endif
  const Status native = check_features(kernel, target);
  const bool is_native = native.ok();
  if (!is_native && native.code() != StatusCode::kUnimplemented) return native;
  // SPIR-V leaves the rounding of its own conversions of f16 to the driver. f64 goes with i64,
  // whose bits it may be cast to.
  const kernel::Emulation emulation = {.f16 = true,
                                       .i64 = !is_native && !target.int64,
                                       .f64 = !is_native && (!target.int64 || !target.float64)};
  const Result<kernel::Kernel> emulated = kernel::emulate(kernel, emulation);
  if (!emulated.ok() && !is_native) {
    return unimplemented("{}; without: {}", native.message(), emulated.status().message());
  }
  HEKLA_RETURN_IF_ERROR(emulated.status());
  if (!is_native) HEKLA_RETURN_IF_ERROR(check_features(*emulated, target));
  return emulated;
}

}  // namespace codegen

Result<Shader> generate(const kernel::Kernel& kernel, const Target& target) {
  HEKLA_ASSIGN_OR_RETURN(const kernel::Kernel native, codegen::native_form(kernel, target));
  return generate_native(native, target);
}

}  // namespace hekla::vulkan
