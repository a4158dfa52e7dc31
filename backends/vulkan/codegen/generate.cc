// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "backends/vulkan/codegen/lower.h"
#include "backends/vulkan/codegen/memory.h"
#include "backends/vulkan/codegen/schedule.h"
#include "backends/vulkan/codegen/tile.h"
#include "backends/vulkan/launch/kernel_abi.h"

namespace hekla::vulkan {
namespace {

using codegen::Bits;
using codegen::Flag;
using codegen::Memory;
using codegen::Module;
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
      if (inst.op == Op::kStore && access.bytes == 1 && !target.storage_8) {
        missing.insert("storageBuffer8BitAccess (for stores)");
      }
      if (inst.op == Op::kStore && access.bytes == 2 && !target.storage_16) {
        missing.insert("storageBuffer16BitAccess (for stores)");
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

class Generator {
 public:
  Generator(const kernel::Kernel& kernel, const Target& target, const Schedule& schedule)
      : kernel_(kernel),
        f_(kernel.body),
        target_(target),
        schedule_(schedule),
        m_(target),
        b_(m_.builder()),
        memory_(m_, kernel),
        side_by_side_(size_t{schedule.columns} * schedule.rows),
        depends_(f_.size(), 0),
        ids_(f_.size() * side_by_side_, 0),
        inside_(side_by_side_) {
    if (schedule.is_tiled) depends_ = codegen::analyse_tile(kernel).depends;
    if (target.splits_store_chains) guarded_ = codegen::chain_stores(f_);
    if (target.folds_zeros) foldable_ = codegen::foldable_values(f_);
  }

  Shader run() {
    spv::Function* main = b_.makeEntryPoint("main");
    entry_ = b_.addEntryPoint(spv::ExecutionModelGLCompute, main, "main");
    b_.addExecutionMode(main, spv::ExecutionModeLocalSize,
                        static_cast<int>(schedule_.workgroup_size), 1, 1);
    memory_.declare(entry_);
    const Bits group_id = built_in(spv::BuiltInWorkgroupId, "workgroup");
    const Bits groups = built_in(spv::BuiltInNumWorkgroups, "workgroups");
    const Bits local = component(built_in(spv::BuiltInLocalInvocationId, "invocation"), 0);
    if (schedule_.broadcasts) {
      b_.addCapability(spv::CapabilityGroupNonUniform);
      b_.addCapability(spv::CapabilityGroupNonUniformBallot);
      subgroup_lane_ = built_in(spv::BuiltInSubgroupLocalInvocationId, "lane", 1);
    }
    const Bits first = memory_.first_group();
    // Numbers of groups stay below 2^31, and no compiler knows that.
    if (!guarded_.empty() || !foldable_.empty()) unknown_zero_ = first >> 31;
    const Bits group = first + component(group_id, 0) +
                       component(groups, 0) *
                           (component(group_id, 1) + component(groups, 1) * component(group_id, 2));
    // Folded grids have more groups than there is work for.
    const Flag has_work = group < static_cast<uint64_t>(schedule_.group_count);
    spv::Builder::If outer(has_work.id, spv::SelectionControlMaskNone, b_);
    memory_.load_table();
    if (schedule_.is_tiled) {
      emit_tile(group, local);
    } else {
      emit_points(group, local);
    }
    outer.makeEndIf();
    b_.makeReturn(/*implicit=*/true);
    m_.add_float_modes(main);

    Shader shader;
    shader.words = m_.words();
    shader.workgroup_size = schedule_.workgroup_size;
    shader.group_count = schedule_.group_count;
    shader.required_features = m_.features();
    return shader;
  }

 private:
  // A vector of three, whose id is wrapped as if it were one number.
  Bits built_in(spv::BuiltIn which, const char* name, int size = 3) {
    const spv::Id type = size == 1 ? m_.uint_type(32) : m_.vector_type(m_.uint_type(32), size);
    const spv::Id variable =
        b_.createVariable(spv::NoPrecision, spv::StorageClassInput, type, name);
    b_.addDecoration(variable, spv::DecorationBuiltIn, which);
    entry_->addIdOperand(variable);
    return {&m_, 32, b_.createLoad(variable, spv::NoPrecision)};
  }
  Bits component(Bits vector, unsigned index) {
    return {&m_, 32, b_.createCompositeExtract(vector.id(), m_.uint_type(32), index)};
  }

  void emit_points(Bits group, Bits local) {
    const int64_t points = kernel_.points();
    const int width = points > m_.target().max_narrow_points ? 64 : 32;
    const auto per_group = uint64_t{schedule_.workgroup_size} * schedule_.points_per_invocation;
    const Bits start = group.resized(width) * per_group + local.resized(width);
    const bool has_tail = points % static_cast<int64_t>(per_group) != 0;
    if (schedule_.points_per_invocation == 1) return emit_point(start, has_tail);

    const bool is_small = f_.size() <= kSmallBody && f_.region_count() == 1 &&
                          schedule_.points_per_invocation <= kFewPoints;
    const Loop loop =
        begin_loop(Bits::constant(m_, 32, schedule_.points_per_invocation),
                   is_small ? spv::LoopControlUnrollMask : spv::LoopControlDontUnrollMask, {});
    emit_point(start + loop.iteration.resized(width) * uint64_t{schedule_.workgroup_size},
               has_tail);
    end_loop(loop, {});
  }

  void emit_point(Bits point, bool has_tail) {
    if (!has_tail) return emit_body(point);
    const Flag is_inside = point < static_cast<uint64_t>(kernel_.points());
    spv::Builder::If inside(is_inside.id, spv::SelectionControlMaskNone, b_);
    emit_body(point);
    inside.makeEndIf();
  }

  void emit_body(Bits point) {
    for (size_t d = kernel_.grid.size(); d-- > 0;) {
      Bits index = point;
      if (d > 0) {
        const auto size = static_cast<uint64_t>(std::max<int64_t>(1, kernel_.grid[d]));
        const Bits rest = point / size;
        index = point - rest * size;
        point = rest;
      }
      set_index(d, 0, index);
    }
    emit_region(0);
  }

  void set_index(size_t dim, size_t point, Bits index) {
    const int index_width = kernel::bit_width(kernel_.index_type);
    ids_[place(f_.body().parameters[dim], point)] = index.resized(index_width).id();
  }

  // A dimension of the tile: the indices of its points. Behind the end the last one is done again,
  // and not stored.
  struct Side {
    std::vector<Bits> indices;
    std::vector<Flag> inside;  // empty: all are
  };
  Side side(int64_t size, Bits first, Bits lane, uint32_t lanes, uint32_t count) {
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

  // The columns where those of an invocation are neighbours: all of them are there, or none.
  Side neighbours(int64_t size, Bits lane) {
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

  // The quotient; `number` becomes the remainder.
  Bits divide(Bits& number, uint64_t by) {
    if (by == 1) return std::exchange(number, number.like(0));
    const Bits quotient = number / by;
    number = number - quotient * by;
    return quotient;
  }

  void emit_tile(Bits group, Bits local) {
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
    const Side columns = schedule_.is_adjacent ? neighbours(kernel_.grid[rank - 1], x)
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

  size_t place(Value v, size_t point) const {
    return static_cast<size_t>(v) * side_by_side_ + point;
  }
  // Of the points of the tile that have the same value, the first.
  size_t leader(Value v, size_t point) const {
    const uint8_t on = depends_[static_cast<size_t>(v)];
    const size_t r = (on & codegen::kOnRow) != 0 ? point / schedule_.columns : 0;
    const size_t c = (on & codegen::kOnColumn) != 0 ? point % schedule_.columns : 0;
    return r * schedule_.columns + c;
  }
  // For each point that leads others, with the point done while it runs.
  template <typename Do>
  void for_leaders(Value v, const Do& what) {
    for (point_ = 0; point_ < side_by_side_; ++point_) {
      if (leader(v, point_) == point_) what();
    }
    point_ = 0;
  }
  void spread(Value v) {
    for (size_t p = 0; p < side_by_side_; ++p) ids_[place(v, p)] = ids_[place(v, leader(v, p))];
  }

  spv::Id id(Value v) {
    const Instruction& inst = f_[v];
    if (inst.op == Op::kConstant) return m_.constant(inst.type, inst.immediate);
    return ids_[place(v, point_)];
  }
  // Where a driver that sees a zero draws wrong conclusions, it sees none: constant zeros,
  // constants that enter loops, and floats that come of constants and indices pass through `hide`.
  bool is_foldable(Value v) const {
    return !foldable_.empty() && foldable_[static_cast<size_t>(v)];
  }
  spv::Id hide(ScalarType type, spv::Id value) {
    return codegen::or_low_word(m_, type, value, unknown_zero_);
  }
  // What enters a loop or goes to its next iteration.
  spv::Id carried(Value v) {
    return is_foldable(v) && is_float(f_.type(v)) ? hide(f_.type(v), id(v)) : id(v);
  }
  spv::Id operand(Value v) {
    const Instruction& inst = f_[v];
    if (!is_foldable(v) || !is_float(inst.type)) return id(v);
    const uint64_t sign = uint64_t{1} << (kernel::bit_width(inst.type) - 1);
    return (inst.immediate & (sign - 1)) == 0 ? hide(inst.type, id(v)) : id(v);
  }
  Bits integer(Value v) { return {&m_, kernel::bit_width(f_.type(v)), id(v)}; }

  void emit_region(int32_t number) {
    for (Value v : f_.region(number).instructions) emit(v);
  }

  void emit(Value v) {
    const Instruction& inst = f_[v];
    if (inst.op == Op::kFor) return emit_loop(inst);
    if (inst.op == Op::kStore) {
      for (point_ = 0; point_ < side_by_side_; ++point_) emit_store(v, inst);
      point_ = 0;
      return;
    }
    if (inst.op != Op::kLoad || !load_neighbours(v, inst)) {
      for_leaders(v, [&] { ids_[place(v, point_)] = value(v, inst); });
    }
    spread(v);
  }

  // Where a load of neighbouring columns is one of neighbours in memory: all columns at once.
  bool load_neighbours(Value v, const Instruction& inst) {
    const Access access = kernel::unpack_access(inst.immediate);
    if (!schedule_.is_adjacent || access.bytes != 4 || !memory_.is_narrow(access) ||
        codegen::slope(f_, inst.arguments[0], f_.body().parameters.back()) != int64_t{1}) {
      return false;
    }
    const uint32_t at_once = std::min(schedule_.columns, 4u);
    for_leaders(v, [&] {
      if (point_ % at_once != 0) return;
      const std::vector<spv::Id> values = memory_.load_neighbours(
          access, inst.type, integer(inst.arguments[0]), static_cast<int>(at_once));
      for (uint32_t i = 0; i < at_once; ++i) ids_[place(v, point_ + i)] = values[i];
    });
    return true;
  }

  spv::Id value(Value v, const Instruction& inst) {
    switch (inst.op) {
      case Op::kLoad:
        if (const auto it = staged_.find(v); it != staged_.end()) return load_staged(it->second);
        if (const auto it = passed_.find(place(v, point_)); it != passed_.end()) {
          return m_.op(spv::OpGroupNonUniformBroadcast, m_.type(inst.type),
                       {m_.uint_constant(32, spv::ScopeSubgroup), it->second, passed_turn_.id()});
        }
        return memory_.load(kernel::unpack_access(inst.immediate), inst.type,
                            integer(inst.arguments[0]));
      case Op::kForResult: {
        const auto region = static_cast<int32_t>(f_[inst.arguments[0]].immediate);
        return id(f_.region(region).parameters[inst.immediate + 1]);
      }
      default: {
        spv::Id arguments[3] = {};
        bool is_known = !foldable_.empty() && is_float(inst.type);
        for (size_t i = 0; i < inst.arguments.size(); ++i) {
          arguments[i] = is_float(inst.type) ? operand(inst.arguments[i]) : id(inst.arguments[i]);
          is_known = is_known && is_foldable(inst.arguments[i]);
        }
        const ScalarType from = f_.type(inst.arguments[inst.op == Op::kSelect ? 1 : 0]);
        const spv::Id result =
            codegen::lower(m_, inst.op, inst.type, from, {arguments, inst.arguments.size()});
        return is_known ? hide(inst.type, result) : result;
      }
    }
  }

  void emit_store(Value v, const Instruction& inst) {
    const Access access = kernel::unpack_access(inst.immediate);
    const Value stored = inst.arguments[1];
    const ScalarType type = f_.type(stored);
    const Bits element = integer(inst.arguments[0]);
    Flag condition = inside_[point_];
    if (!guarded_.empty() && guarded_[static_cast<size_t>(v)]) {
      // Always true, and no compiler can know it.
      const Flag is_zero = (codegen::low_word(m_, type, id(stored)) & unknown_zero_) == 0;
      condition = condition.id != 0 ? condition & is_zero : is_zero;
    }
    if (condition.id == 0) return memory_.store(access, type, element, id(stored));
    spv::Builder::If guard(condition.id, spv::SelectionControlMaskNone, b_);
    memory_.store(access, type, element, id(stored));
    guard.makeEndIf();
  }

  struct Loop {
    Bits iteration;
    std::vector<spv::Id> carried;
    std::vector<spv::Instruction*> phis;  // the iteration's, then those of the carried values
    spv::Block* head = nullptr;
    spv::Block* merge = nullptr;
    spv::Block* next = nullptr;
  };

  // Afterwards the build point is in the loop's body. Carried values after the loop are its phis.
  Loop begin_loop(Bits count, unsigned control,
                  const std::vector<std::pair<spv::Id, ScalarType>>& initial) {
    Loop loop;
    spv::Block* before = b_.getBuildPoint();
    loop.head = &b_.makeNewBlock();
    spv::Block& body = b_.makeNewBlock();
    loop.next = &b_.makeNewBlock();
    loop.merge = &b_.makeNewBlock();
    b_.createBranch(loop.head);
    b_.setBuildPoint(loop.head);
    loop.phis.push_back(m_.phi(m_.uint_type(count.width())));
    Module::add_incoming(loop.phis[0], m_.uint_constant(count.width(), 0), before);
    loop.iteration = {&m_, count.width(), loop.phis[0]->getResultId()};
    for (const auto& [value, type] : initial) {
      loop.phis.push_back(m_.phi(m_.type(type)));
      Module::add_incoming(loop.phis.back(), value, before);
      loop.carried.push_back(loop.phis.back()->getResultId());
    }
    const Flag goes_on = less_signed(loop.iteration, count);
    b_.createLoopMerge(loop.merge, loop.next, control, {});
    b_.createConditionalBranch(goes_on.id, &body, loop.merge);
    b_.setBuildPoint(&body);
    return loop;
  }

  void end_loop(const Loop& loop, const std::vector<spv::Id>& next) {
    b_.createBranch(loop.next);
    b_.setBuildPoint(loop.next);
    const Bits following = loop.iteration + 1;
    Module::add_incoming(loop.phis[0], following.id(), loop.next);
    for (size_t i = 0; i < next.size(); ++i) {
      Module::add_incoming(loop.phis[i + 1], next[i], loop.next);
    }
    b_.createBranch(loop.head);
    b_.setBuildPoint(loop.merge);
  }

  // Carried values with their types: of each value, once for each point that leads others.
  using Carried = std::vector<std::pair<spv::Id, ScalarType>>;

  void set_carried(const kernel::RegionBody& region, const Carried& values) {
    size_t next = 0;
    for (size_t i = 1; i < region.parameters.size(); ++i) {
      const Value v = region.parameters[i];
      for_leaders(v, [&] { ids_[place(v, point_)] = values[next++].first; });
      spread(v);
    }
  }
  template <typename ValueOf>
  Carried get_carried(const kernel::RegionBody& region, const ValueOf& value_of) {
    Carried values;
    for (size_t i = 1; i < region.parameters.size(); ++i) {
      const Value v = value_of(i);
      for_leaders(region.parameters[i], [&] { values.emplace_back(carried(v), f_.type(v)); });
    }
    return values;
  }
  static Carried with_types(const std::vector<spv::Id>& ids, const Carried& like) {
    Carried values = like;
    for (size_t i = 0; i < ids.size(); ++i) values[i].first = ids[i];
    return values;
  }

  // `count` turns, the first of which is turn `first`.
  Carried emit_turns(int32_t number, Bits first, Bits count, unsigned control,
                     const Carried& initial) {
    const kernel::RegionBody& region = f_.region(number);
    const Loop loop = begin_loop(count, control, initial);
    const Value iteration = region.parameters[0];
    const Bits turn = first.id() != 0 ? first + loop.iteration : loop.iteration;
    for (size_t p = 0; p < side_by_side_; ++p) ids_[place(iteration, p)] = turn.id();
    set_carried(region, with_types(loop.carried, initial));
    emit_region(number);
    const Carried next = get_carried(region, [&](size_t i) { return region.yields[i - 1]; });
    std::vector<spv::Id> ids;
    for (const auto& [id, type] : next) ids.push_back(id);
    end_loop(loop, ids);
    return with_types(loop.carried, initial);
  }

  void emit_loop(const Instruction& inst) {
    const auto number = static_cast<int32_t>(inst.immediate);
    const kernel::RegionBody& region = f_.region(number);
    Carried values = get_carried(region, [&](size_t i) { return inst.arguments[i]; });
    const Bits count = integer(inst.arguments[0]);
    const Instruction& turns = f_[inst.arguments[0]];
    const int64_t trip_count =
        turns.op == Op::kConstant ? static_cast<int64_t>(turns.immediate) : -1;
    int64_t depth = 0;
    if (schedule_.staged_depth > 0 && trip_count >= 2) {
      depth = std::min<int64_t>(schedule_.staged_depth, trip_count);
      if (!stage(number, trip_count, depth)) depth = 0;
    }
    if (schedule_.broadcasts && !codegen::uniform_loads(f_, number, depends_).empty()) {
      values = emit_passed_turns(number, count, trip_count, values);
    } else if (depth == 0) {
      values = emit_turns(number, Bits(), count, spv::LoopControlMaskNone, values);
    } else {
      values = emit_staged_turns(number, count.like(static_cast<uint64_t>(trip_count / depth)),
                                 static_cast<uint64_t>(depth), values);
      staged_.clear();
      if (trip_count % depth != 0) {
        values = emit_turns(number, count.like(static_cast<uint64_t>(trip_count / depth * depth)),
                            count.like(static_cast<uint64_t>(trip_count % depth)),
                            spv::LoopControlMaskNone, values);
      }
    }
    set_carried(region, values);
  }

  // Shared memory for one load: [iteration][row or column], with one more of these, so that lanes
  // that differ in the iteration meet different banks.
  struct Staged {
    codegen::StagedLoad load;
    spv::Id array = 0;
    uint32_t extent = 0;
    uint32_t lanes = 0;
    Bits turn;  // within the block
  };

  // Whether loads of this loop go through shared memory; staged_ says which.
  bool stage(int32_t region, int64_t trip_count, int64_t depth) {
    const auto& parameters = f_.body().parameters;
    const size_t rank = parameters.size();
    if (rank < 2) return false;
    for (const codegen::StagedLoad& load : codegen::staged_loads(
             f_, region, trip_count, depends_, parameters[rank - 2], parameters[rank - 1])) {
      Staged staged;
      staged.load = load;
      staged.lanes = load.is_by_row ? schedule_.lanes_y : schedule_.lanes_x;
      if (staged.lanes == schedule_.workgroup_size) continue;  // each lane loads its own
      staged.extent = staged.lanes * (load.is_by_row ? schedule_.rows : schedule_.columns);
      const ScalarType type = f_.type(load.load);
      const auto elements = (staged.extent + 1) * static_cast<uint32_t>(depth);
      const uint32_t bytes = elements * static_cast<uint32_t>(kernel::bit_width(type) / 8);
      if (shared_bytes_ + bytes > target_.max_shared_memory_bytes) continue;
      shared_bytes_ += bytes;
      const spv::Id array =
          b_.makeArrayType(m_.type(type), b_.makeUintConstant(elements), /*stride=*/0);
      staged.array =
          b_.createVariable(spv::NoPrecision, spv::StorageClassWorkgroup, array, "shared");
      entry_->addIdOperand(staged.array);
      staged_.emplace(load.load, staged);
    }
    return !staged_.empty();
  }

  spv::Id shared_element(const Staged& staged, Bits turn, Bits index) {
    const Bits at = turn.resized(32) * uint64_t{staged.extent + 1} + index;
    return m_.op(spv::OpAccessChain,
                 b_.makePointer(spv::StorageClassWorkgroup, m_.type(f_.type(staged.load.load))),
                 {staged.array, at.id()});
  }

  spv::Id load_staged(const Staged& staged) {
    const Bits lane = staged.load.is_by_row ? lane_y_ : lane_x_;
    const size_t i =
        staged.load.is_by_row ? point_ / schedule_.columns : point_ % schedule_.columns;
    return b_.createLoad(shared_element(staged, staged.turn, lane + uint64_t{i} * staged.lanes),
                         spv::NoPrecision);
  }

  // What a load's address is made of, for another row or column and iteration.
  struct Replay {
    int32_t region = 0;
    std::optional<size_t> point;  // what is outside of the region is that of this point
    std::map<Value, spv::Id> known;
  };
  spv::Id replay(Value v, Replay& r) {
    const Instruction& inst = f_[v];
    if (inst.op == Op::kConstant) return m_.constant(inst.type, inst.immediate);
    if (const auto it = r.known.find(v); it != r.known.end()) return it->second;
    if (r.point && inst.region != r.region) return ids_[place(v, *r.point)];
    if (inst.op == Op::kParameter ||
        (inst.region != r.region && depends_[static_cast<size_t>(v)] == 0)) {
      return ids_[place(v, 0)];
    }
    spv::Id arguments[3] = {};
    for (size_t i = 0; i < inst.arguments.size(); ++i) arguments[i] = replay(inst.arguments[i], r);
    spv::Id& result = r.known[v];
    if (inst.op == Op::kLoad) {
      result = memory_.load(kernel::unpack_access(inst.immediate), inst.type,
                            {&m_, kernel::bit_width(f_.type(inst.arguments[0])), arguments[0]});
    } else {
      const ScalarType from = f_.type(inst.arguments[inst.op == Op::kSelect ? 1 : 0]);
      result = codegen::lower(m_, inst.op, inst.type, from, {arguments, inst.arguments.size()});
    }
    return result;
  }

  // As many turns at a time as there are lanes; each lane loads for one of them.
  Carried emit_passed_turns(int32_t region, Bits count, int64_t trip_count,
                            const Carried& initial) {
    const kernel::RegionBody& body = f_.region(region);
    const uint64_t lanes = schedule_.workgroup_size;
    const bool is_whole = trip_count > 0 && trip_count % static_cast<int64_t>(lanes) == 0;
    const Bits blocks = (count + (lanes - 1)) / lanes;
    const Loop loop = begin_loop(blocks, spv::LoopControlDontUnrollMask, initial);
    const Bits first = loop.iteration * lanes;
    Bits mine = first + subgroup_lane_.resized(first.width());
    if (!is_whole) mine = select(mine < count, mine, count - 1);
    for (Value v : codegen::uniform_loads(f_, region, depends_)) {
      for_leaders(v, [&] {
        Replay r;
        r.region = region;
        r.point = point_;
        r.known[body.parameters[0]] = mine.id();
        passed_[place(v, point_)] = replay(v, r);
      });
      for (size_t p = 0; p < side_by_side_; ++p) {
        passed_[place(v, p)] = passed_[place(v, leader(v, p))];
      }
    }
    const Carried before = with_types(loop.carried, initial);
    Bits turns = count.like(lanes);
    if (!is_whole) {
      const Bits left = count - first;
      turns = select(left < lanes, left, turns);
    }
    const Loop inner = begin_loop(turns, spv::LoopControlDontUnrollMask, before);
    passed_turn_ = inner.iteration.resized(32);
    const spv::Id turn = (first + inner.iteration).id();
    for (size_t p = 0; p < side_by_side_; ++p) ids_[place(body.parameters[0], p)] = turn;
    set_carried(body, with_types(inner.carried, initial));
    emit_region(region);
    std::vector<spv::Id> ids;
    for (const auto& [id, type] : get_carried(body, [&](size_t i) { return body.yields[i - 1]; })) {
      ids.push_back(id);
    }
    end_loop(inner, ids);
    passed_.clear();
    end_loop(loop, inner.carried);
    return with_types(loop.carried, initial);
  }

  // All lanes of the workgroup together load what the next `depth` turns need.
  void fill(int32_t region, const Staged& staged, Bits first_turn, uint64_t depth) {
    const int index_width = kernel::bit_width(kernel_.index_type);
    const auto& parameters = f_.body().parameters;
    const size_t dim = parameters.size() - (staged.load.is_by_row ? 2 : 1);
    const auto size = static_cast<uint64_t>(kernel_.grid[dim]);
    const uint64_t elements = staged.extent * depth;
    for (uint64_t done = 0; done < elements; done += schedule_.workgroup_size) {
      Bits across = local_ + done;
      Bits turn = across;
      const Flag is_needed = across < elements;
      if (staged.load.is_along_iteration) {
        across = divide(turn, depth);
      } else {
        turn = divide(across, staged.extent);
      }
      std::optional<spv::Builder::If> guard;
      if (elements - done < schedule_.workgroup_size) {
        guard.emplace(is_needed.id, spv::SelectionControlMaskNone, b_);
      }
      Bits index = (staged.load.is_by_row ? first_row_ : first_column_) + across;
      index = select(index < size, index, size - 1);
      Replay r;
      r.region = region;
      r.known[parameters[dim]] = index.resized(index_width).id();
      r.known[f_.region(region).parameters[0]] =
          (first_turn + turn.resized(first_turn.width())).id();
      const spv::Id value = replay(staged.load.load, r);
      b_.createStore(value, shared_element(staged, turn, across));
      if (guard) guard->makeEndIf();
    }
  }

  void barrier() {
    b_.createControlBarrier(
        spv::ScopeWorkgroup, spv::ScopeWorkgroup,
        static_cast<spv::MemorySemanticsMask>(spv::MemorySemanticsAcquireReleaseMask |
                                              spv::MemorySemanticsWorkgroupMemoryMask));
  }

  Carried emit_staged_turns(int32_t region, Bits blocks, uint64_t depth, const Carried& initial) {
    const Loop loop = begin_loop(blocks, spv::LoopControlDontUnrollMask, initial);
    const Bits first = loop.iteration * depth;
    for (const auto& [load, staged] : staged_) fill(region, staged, first, depth);
    barrier();
    const Carried before = with_types(loop.carried, initial);
    const Loop turns = begin_loop(blocks.like(depth), spv::LoopControlUnrollMask, before);
    const kernel::RegionBody& body = f_.region(region);
    const spv::Id turn = (first + turns.iteration).id();
    for (size_t p = 0; p < side_by_side_; ++p) ids_[place(body.parameters[0], p)] = turn;
    for (auto& [load, staged] : staged_) staged.turn = turns.iteration;
    set_carried(body, with_types(turns.carried, initial));
    emit_region(region);
    std::vector<spv::Id> ids;
    for (const auto& [id, type] : get_carried(body, [&](size_t i) { return body.yields[i - 1]; })) {
      ids.push_back(id);
    }
    end_loop(turns, ids);
    barrier();
    end_loop(loop, turns.carried);
    return with_types(loop.carried, initial);
  }

  const kernel::Kernel& kernel_;
  const Function& f_;
  const Target& target_;
  const Schedule schedule_;
  Module m_;
  spv::Builder& b_;
  Memory memory_;
  spv::Instruction* entry_ = nullptr;
  const size_t side_by_side_;     // points of an invocation
  std::vector<uint8_t> depends_;  // by Value: on what of the tile
  std::vector<spv::Id> ids_;      // by place()
  std::vector<Flag> inside_;      // of each point: whether it is one; id 0: it is
  size_t point_ = 0;              // that is emitted
  // Of a tile.
  Bits first_column_, first_row_, lane_x_, lane_y_, local_;
  std::map<Value, Staged> staged_;
  uint32_t shared_bytes_ = 0;
  Bits subgroup_lane_;
  std::map<size_t, spv::Id> passed_;  // loads that lanes did for each other, by place()
  Bits passed_turn_;                  // of these, which one
  std::vector<bool> guarded_;         // stores, by Value; empty: none
  std::vector<bool> foldable_;        // by Value; empty: no matter
  Bits unknown_zero_;                 // 0, which no compiler can know
};

}  // namespace

Result<Shader> generate(const kernel::Kernel& kernel, const Target& target) {
  if (kernel.body.body().parameters.size() != kernel.grid.size()) {
    return internal_error("kernel {}: a grid of rank {} and a body with {} parameters", kernel.name,
                          kernel.grid.size(), kernel.body.body().parameters.size());
  }
#ifdef HEKLA_VALIDATE_SHADERS
  HEKLA_RETURN_IF_ERROR(kernel::verify(kernel.body).with_context(kernel.name));
#endif
  HEKLA_RETURN_IF_ERROR(check_features(kernel, target));
  const Schedule schedule = codegen::choose_schedule(kernel, target);
  if (schedule.group_count > static_cast<int64_t>(kMaxGroups)) {
    return unimplemented("kernel {}: {} points are {} workgroups, more than {}", kernel.name,
                         kernel.points(), schedule.group_count, kMaxGroups);
  }
  Shader shader = Generator(kernel, target, schedule).run();
#ifdef HEKLA_VALIDATE_SHADERS
  HEKLA_RETURN_IF_ERROR(validate(shader.words).with_context(kernel.name));
#endif
  return shader;
}

}  // namespace hekla::vulkan
