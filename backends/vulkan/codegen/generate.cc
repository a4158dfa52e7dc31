// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backends/vulkan/codegen/lower.h"
#include "backends/vulkan/codegen/memory.h"
#include "backends/vulkan/codegen/schedule.h"
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
        ids_(f_.size(), 0) {
    if (target.splits_store_chains) guarded_ = codegen::chain_stores(f_);
    if (target.folds_zeros) foldable_ = codegen::foldable_values(f_);
  }

  Shader run() {
    spv::Function* main = b_.makeEntryPoint("main");
    spv::Instruction* entry = b_.addEntryPoint(spv::ExecutionModelGLCompute, main, "main");
    b_.addExecutionMode(main, spv::ExecutionModeLocalSize,
                        static_cast<int>(schedule_.workgroup_size), 1, 1);
    memory_.declare(entry);
    const Bits group_id = built_in(entry, spv::BuiltInWorkgroupId, "workgroup");
    const Bits groups = built_in(entry, spv::BuiltInNumWorkgroups, "workgroups");
    const Bits local = component(built_in(entry, spv::BuiltInLocalInvocationId, "invocation"), 0);
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
    emit_points(group, local);
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
  Bits built_in(spv::Instruction* entry, spv::BuiltIn which, const char* name) {
    const spv::Id type = m_.vector_type(m_.uint_type(32), 3);
    const spv::Id variable =
        b_.createVariable(spv::NoPrecision, spv::StorageClassInput, type, name);
    b_.addDecoration(variable, spv::DecorationBuiltIn, which);
    entry->addIdOperand(variable);
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
    const int index_width = kernel::bit_width(kernel_.index_type);
    for (size_t d = kernel_.grid.size(); d-- > 0;) {
      Bits index = point;
      if (d > 0) {
        const auto size = static_cast<uint64_t>(std::max<int64_t>(1, kernel_.grid[d]));
        const Bits rest = point / size;
        index = point - rest * size;
        point = rest;
      }
      ids_[static_cast<size_t>(f_.body().parameters[d])] = index.resized(index_width).id();
    }
    emit_region(0);
  }

  spv::Id id(Value v) {
    const Instruction& inst = f_[v];
    if (inst.op == Op::kConstant) return m_.constant(inst.type, inst.immediate);
    return ids_[static_cast<size_t>(v)];
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
    spv::Id& result = ids_[static_cast<size_t>(v)];
    switch (inst.op) {
      case Op::kLoad:
        result = memory_.load(kernel::unpack_access(inst.immediate), inst.type,
                              integer(inst.arguments[0]));
        return;
      case Op::kStore:
        return emit_store(v, inst);
      case Op::kFor:
        return emit_loop(inst);
      case Op::kForResult: {
        const auto region = static_cast<int32_t>(f_[inst.arguments[0]].immediate);
        result = id(f_.region(region).parameters[inst.immediate + 1]);
        return;
      }
      default: {
        spv::Id arguments[3] = {};
        bool is_known = !foldable_.empty() && is_float(inst.type);
        for (size_t i = 0; i < inst.arguments.size(); ++i) {
          arguments[i] = is_float(inst.type) ? operand(inst.arguments[i]) : id(inst.arguments[i]);
          is_known = is_known && is_foldable(inst.arguments[i]);
        }
        const ScalarType from = f_.type(inst.arguments[inst.op == Op::kSelect ? 1 : 0]);
        result = codegen::lower(m_, inst.op, inst.type, from, {arguments, inst.arguments.size()});
        if (is_known) result = hide(inst.type, result);
      }
    }
  }

  void emit_store(Value v, const Instruction& inst) {
    const Access access = kernel::unpack_access(inst.immediate);
    const Value stored = inst.arguments[1];
    const ScalarType type = f_.type(stored);
    const Bits element = integer(inst.arguments[0]);
    if (guarded_.empty() || !guarded_[static_cast<size_t>(v)]) {
      return memory_.store(access, type, element, id(stored));
    }
    // Always true, and no compiler can know it.
    const Flag is_zero = (codegen::low_word(m_, type, id(stored)) & unknown_zero_) == 0;
    spv::Builder::If guard(is_zero.id, spv::SelectionControlMaskNone, b_);
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

  void emit_loop(const Instruction& inst) {
    const auto number = static_cast<int32_t>(inst.immediate);
    const kernel::RegionBody& region = f_.region(number);
    std::vector<std::pair<spv::Id, ScalarType>> initial;
    for (size_t i = 1; i < inst.arguments.size(); ++i) {
      initial.emplace_back(carried(inst.arguments[i]), f_.type(inst.arguments[i]));
    }
    const Loop loop = begin_loop(integer(inst.arguments[0]), spv::LoopControlMaskNone, initial);
    ids_[static_cast<size_t>(region.parameters[0])] = loop.iteration.id();
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      ids_[static_cast<size_t>(region.parameters[i + 1])] = loop.carried[i];
    }
    emit_region(number);
    std::vector<spv::Id> next;
    for (Value v : region.yields) next.push_back(carried(v));
    end_loop(loop, next);
  }

  const kernel::Kernel& kernel_;
  const Function& f_;
  const Target& target_;
  const Schedule schedule_;
  Module m_;
  spv::Builder& b_;
  Memory memory_;
  std::vector<spv::Id> ids_;
  std::vector<bool> guarded_;   // stores, by Value; empty: none
  std::vector<bool> foldable_;  // by Value; empty: no matter
  Bits unknown_zero_;           // 0, which no compiler can know
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
