// SPDX-License-Identifier: Apache-2.0
// Loops: one iteration after the other, unrolled, and with loads that lanes do for each other.
#include <algorithm>

#include "backends/vulkan/codegen/generator.h"

namespace hekla::vulkan::codegen {

using kernel::Instruction;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

// How a value goes round a loop: truth values as 0 and 1. NVIDIA's compiler (580.159) ends the
// process over some loops that carry an OpTypeBool.
spv::Id Generator::to_carry(spv::Id value, ScalarType type) {
  return type == ScalarType::kBool ? number({&m_, value}, 32).id() : value;
}

Generator::Loop Generator::begin_loop(Bits count, unsigned control, const Carried& initial) {
  std::vector<spv::Id> incoming;
  for (const auto& [value, type] : initial) incoming.push_back(to_carry(value, type));
  CountedLoop blocks(count.like(0));
  for (size_t i = 0; i < initial.size(); ++i) {
    const ScalarType type = initial[i].second;
    blocks.carry(type == ScalarType::kBool ? m_.uint_type(32) : m_.type(type), incoming[i]);
  }
  Loop loop{blocks, blocks.iteration(), carried_by(blocks, initial)};
  loop.blocks.begin_body(less_signed(loop.iteration, count), control);
  return loop;
}

// What goes round, as values of their types.
std::vector<spv::Id> Generator::carried_by(const CountedLoop& blocks, const Carried& like) {
  std::vector<spv::Id> ids;
  for (size_t i = 0; i < like.size(); ++i) {
    const spv::Id id = blocks.carried(i);
    ids.push_back(like[i].second == ScalarType::kBool ? (Bits{&m_, 32, id} != 0).id : id);
  }
  return ids;
}

// SwiftShader unrolls loops whose values behind them, other than phis, are then those of the first
// iteration: so truth values are made of the phis again.
void Generator::end_loop(Loop& loop, const Carried& next) {
  std::vector<spv::Id> incoming;
  for (const auto& [value, type] : next) incoming.push_back(to_carry(value, type));
  loop.blocks.end(incoming);
  loop.carried = carried_by(loop.blocks, next);
}

void Generator::set_carried(const kernel::RegionBody& region, const Carried& values) {
  size_t next = 0;
  for (size_t i = 1; i < region.parameters.size(); ++i) {
    const Value v = region.parameters[i];
    for_leaders(v, [&] { ids_[id_index(v, point_)] = values[next++].first; });
    spread(v);
  }
}

Generator::Carried Generator::with_types(const std::vector<spv::Id>& ids, const Carried& like) {
  Carried values = like;
  for (size_t i = 0; i < ids.size(); ++i) values[i].first = ids[i];
  return values;
}

// `count` unrolled iterations, the first of which is `iteration`; gives what they carry on.
Generator::Carried Generator::emit_unrolled(int32_t region, Bits iteration, uint32_t count,
                                            Carried values) {
  const kernel::RegionBody& body = f_.region(region);
  unroll_ = count;
  for (uint32_t u = 0; u < count; ++u) {
    unrolled_ = u;
    const spv::Id number = u == 0 ? iteration.id() : (iteration + uint64_t{u}).id();
    for (size_t p = 0; p < side_by_side_; ++p) ids_[id_index(body.parameters[0], p)] = number;
    words_.clear();
    set_carried(body, values);
    emit_region(region);
    values = yields(body);
  }
  unrolled_ = 0;
  unroll_ = 1;
  ahead_.clear();
  return values;
}

Generator::Carried Generator::emit_iterations(const Iterations& range, unsigned control,
                                              const Carried& initial) {
  Loop loop = begin_loop(range.count / uint64_t{range.unroll}, control, initial);
  Bits iteration = loop.iteration;
  if (range.unroll > 1) iteration = iteration * uint64_t{range.unroll};
  if (range.first.id() != 0) iteration = range.first + iteration;
  end_loop(loop,
           emit_unrolled(range.region, iteration, range.unroll, with_types(loop.carried, initial)));
  return with_types(loop.carried, initial);
}

// Whether a loop runs once or not at all, with nothing in it that lanes do together.
bool Generator::is_condition(const Instruction& loop) const {
  const auto& inside = f_.region(static_cast<int32_t>(loop.immediate)).instructions;
  return f_[loop.arguments[0]].op == Op::kBoolToInt && !exchanges_in_[loop.immediate] &&
         std::none_of(inside.begin(), inside.end(), [&](Value v) {
           return f_[v].op == Op::kFor || f_[v].op == Op::kLoad || f_[v].op == Op::kStore;
         });
}

// A branch and not a loop: LLVM 15 takes time with the cube of a shader's loops, since llvmpipe
// counts the iterations of all of them in one variable (32 sines in a row: 5 s, as branches 0.2).
Generator::Carried Generator::emit_condition(int32_t region, Bits count, const Carried& initial) {
  std::vector<spv::Id> otherwise;
  for (const auto& [value, type] : initial) otherwise.push_back(to_carry(value, type));
  const Flag runs = count != 0;
  spv::Block* before = b_.getBuildPoint();
  spv::Builder::If branch(runs.id, spv::SelectionControlMaskNone, b_);
  const Carried then = emit_unrolled(region, count.like(0), 1, initial);
  std::vector<spv::Id> results;
  for (const auto& [value, type] : then) results.push_back(to_carry(value, type));
  spv::Block* last = b_.getBuildPoint();
  branch.makeEndIf();
  std::vector<spv::Instruction*> phis;
  for (size_t i = 0; i < initial.size(); ++i) {
    const ScalarType type = initial[i].second;
    phis.push_back(m_.phi(type == ScalarType::kBool ? m_.uint_type(32) : m_.type(type)));
    Module::add_incoming(phis[i], otherwise[i], before);
    Module::add_incoming(phis[i], results[i], last);
  }
  Carried values = initial;
  for (size_t i = 0; i < initial.size(); ++i) {
    const spv::Id id = phis[i]->getResultId();
    values[i].first = initial[i].second == ScalarType::kBool ? (Bits{&m_, 32, id} != 0).id : id;
  }
  return values;
}

void Generator::emit_loop(const Instruction& inst) {
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  if (exchanges_in_[inst.immediate] && !accesses_.empty()) team_barrier();
  Carried values = get_carried(region, [&](size_t i) { return inst.arguments[i]; });
  const Bits count = integer(inst.arguments[0]);
  if (is_condition(inst)) {
    set_carried(region, emit_condition(number, count, values));
    return;
  }
  const Instruction& count_of = f_[inst.arguments[0]];
  const int64_t trip_count =
      count_of.op == Op::kConstant ? static_cast<int64_t>(count_of.immediate) : -1;
  int64_t depth = 0;
  if (schedule_.staged_depth > 0 && trip_count >= 2) {
    depth = std::min<int64_t>(schedule_.staged_depth, trip_count);
    if (!stage(number, trip_count, depth)) depth = 0;
  }
  Iterations all;
  all.region = number;
  all.count = count;
  all.known_count = trip_count;
  if (depth > 0) {
    values = emit_staged_iterations(number, count.like(static_cast<uint64_t>(trip_count / depth)),
                                    static_cast<uint64_t>(depth), values);
    staged_.clear();
    shared_.clear();
    if (trip_count % depth != 0) {
      all.first = count.like(static_cast<uint64_t>(trip_count / depth * depth));
      all.count = count.like(static_cast<uint64_t>(trip_count % depth));
      values = emit_iterations(all, spv::LoopControlMaskNone, values);
    }
  } else {
    const bool passes = schedule_.broadcasts && !passed_by_lanes(number).empty();
    values = emit_all_iterations(all, passes, values);
  }
  set_carried(region, values);
  // Arrays of exchanges alternate, which a loop that need not run does not keep up.
  if (exchanges_in_[inst.immediate] && trip_count < 1) team_barrier();
}

// As many iterations as possible unrolled, then the others.
Generator::Carried Generator::emit_all_iterations(const Iterations& range, bool passes,
                                                  const Carried& initial) {
  // Barriers inside leave little to gain, and code that is copied takes registers.
  const bool has_exchanges = exchanges_in_[static_cast<size_t>(range.region)];
  const unsigned control =
      has_exchanges ? spv::LoopControlDontUnrollMask : spv::LoopControlMaskNone;
  const auto emit_some = [&](const Iterations& some, const Carried& values) {
    return passes ? emit_passed_iterations(some, values) : emit_iterations(some, control, values);
  };
  const uint32_t unroll = choose_unroll(range.region, range.known_count);
  const int64_t block = int64_t{unroll} * (passes ? schedule_.workgroup_size : 1);
  if (unroll == 1 || range.known_count < block) {
    long_loads_.clear();
    return emit_some(range, initial);
  }
  Iterations whole = range;
  whole.unroll = unroll;
  whole.known_count = range.known_count / block * block;
  whole.count = range.count.like(static_cast<uint64_t>(whole.known_count));
  Carried values = emit_some(whole, initial);
  long_loads_.clear();
  Iterations rest = range;
  rest.known_count = range.known_count - whole.known_count;
  if (rest.known_count == 0) return values;
  rest.first = whole.count;
  rest.count = range.count.like(static_cast<uint64_t>(rest.known_count));
  return emit_some(rest, values);
}

// Where a load costs the same whatever its width, one of 64 bits is better than two of 32: loads of
// an innermost loop that is contiguous along its iterations load for several iterations at once.
// long_loads_ says which.
uint32_t Generator::choose_unroll(int32_t region, int64_t trip_count) {
  long_loads_.clear();
  if (trip_count < 2) return 1;
  const kernel::RegionBody& body = f_.region(region);
  const auto& instructions = body.instructions;
  const auto has = [&](Op op) {
    return std::any_of(instructions.begin(), instructions.end(),
                       [&](Value v) { return f_[v].op == op; });
  };
  if (has(Op::kFor)) return 1;
  uint32_t least = schedule_.least_unroll;
  // Where teams meet in an iteration, it is long as it is.
  if (exchanges_in_[static_cast<size_t>(region)]) return least;
  while (least < schedule_.most_unroll && 2 * int64_t{least} <= trip_count &&
         static_cast<int64_t>(instructions.size() * side_by_side_) * 2 * least <=
             kMostUnrolledInstructions) {
    least *= 2;
  }
  if (!schedule_.long_accesses || has(Op::kStore)) return least;
  uint32_t unroll = 1;
  const auto iteration = index_.iteration(region);
  for (Value v : instructions) {
    const Instruction& inst = f_[v];
    if (inst.op != Op::kLoad || run_length(inst) > 1) continue;
    const kernel::Access access = kernel::unpack_access(inst.immediate);
    if (!memory_.is_narrow(access) || index_.slope(inst.arguments[0], iteration) != int64_t{1}) {
      continue;
    }
    const uint32_t count = kLongAccessBytes / access.bytes;
    if (count < 2 || index_.factor(inst.arguments[0], iteration, count) < count) continue;
    long_loads_.insert(v);
    unroll = std::max(unroll, count);
  }
  // Unrolled iterations make the code longer.
  int64_t size = 0;
  for (Value v : instructions) {
    const uint8_t on = depends_[static_cast<size_t>(v)];
    size += ((on & kOnColumn) != 0 ? schedule_.columns : 1) *
            int64_t{(on & kOnRow) != 0 ? schedule_.rows : 1};
  }
  while (unroll > 1 && size * unroll > kMostUnrolledInstructions) unroll /= 2;
  unroll = std::max(unroll, least);
  // Runs shorter than the unrolled iterations fit; longer ones are cut.
  return unroll;
}

std::vector<spv::Id> Generator::load_iterations(Value v, spv::Id first_index, uint32_t count) {
  const Instruction& inst = f_[v];
  const Bits index{&m_, kernel::bit_width(f_.type(inst.arguments[0])), first_index};
  const kernel::Access access = kernel::unpack_access(inst.immediate);
  std::vector<spv::Id> values;
  const uint32_t most = std::min(count, kLongAccessBytes / access.bytes);
  for (uint32_t done = 0; done < count; done += most) {
    for (spv::Id one : memory_.load_run(access, inst.type,
                                        done == 0 ? index : index + uint64_t{done}, most, most)) {
      values.push_back(one);
    }
  }
  return values;
}

spv::Id Generator::replay(Value v, Replay& r) {
  const Instruction& inst = f_[v];
  if (inst.op == Op::kConstant) return m_.constant(inst.type, inst.immediate);
  if (const auto it = r.known.find(v); it != r.known.end()) return it->second;
  if (r.point && inst.region != r.region) return ids_[id_index(v, *r.point)];
  if (inst.op == Op::kParameter ||
      (inst.region != r.region && depends_[static_cast<size_t>(v)] == 0)) {
    return ids_[id_index(v, 0)];
  }
  spv::Id result = 0;
  if (inst.op == Op::kLoad) {
    const Value index = inst.arguments[0];
    result = memory_.load(kernel::unpack_access(inst.immediate), inst.type,
                          {&m_, kernel::bit_width(f_.type(index)), replay(index, r)});
  } else {
    result = computed(inst, [&](Value a) { return replay(a, r); });
  }
  return r.known[v] = result;
}

std::vector<Value> Generator::passed_by_lanes(int32_t region) const {
  if (schedule_.shares_point) return passed_values(f_, region).passed;
  std::vector<Value> loads = uniform_loads(f_, region, depends_);
  std::erase_if(loads, [&](Value v) { return !may_be_loaded_early(v); });
  return loads;
}

// Whether another lane may do this load before the point's own lane comes to it.
bool Generator::may_be_loaded_early(Value load) const {
  const kernel::Access access = kernel::unpack_access(f_[load].immediate);
  return stores_come_last_ || memory_.is_read_only(static_cast<size_t>(access.operand));
}

// As many iterations at a time as there are lanes, times the unrolled ones; each lane loads for its
// own.
Generator::Carried Generator::emit_passed_iterations(const Iterations& range,
                                                     const Carried& initial) {
  const kernel::RegionBody& body = f_.region(range.region);
  const uint64_t lanes = schedule_.workgroup_size;
  const uint64_t block = lanes * range.unroll;
  const bool is_whole =
      range.known_count > 0 && range.known_count % static_cast<int64_t>(block) == 0;
  const Bits blocks = (range.count + (block - 1)) / block;
  Loop loop = begin_loop(blocks, spv::LoopControlDontUnrollMask, initial);
  const Bits done = loop.iteration * block;
  Bits mine = done + subgroup_lane_.resized(done.width()) * uint64_t{range.unroll};
  // Only where nothing is unrolled there may be lanes without an iteration.
  if (!is_whole) mine = select(mine < range.count, mine, range.count - 1);
  const auto of_all = [&](Bits iteration) {
    return range.first.id() != 0 ? range.first + iteration : iteration;
  };
  mine = of_all(mine);
  // What values are made of together is computed once.
  std::vector<Replay> replays(range.unroll);
  for (Value v : passed_by_lanes(range.region)) {
    for_leaders(v, [&] {
      std::vector<spv::Id>& loaded = passed_[id_index(v, point_)];
      for (uint32_t u = 0; u < range.unroll; ++u) {
        Replay& r = replays[u];
        if (!schedule_.shares_point) r.known.clear();
        r.region = range.region;
        r.point = point_;
        r.known[body.parameters[0]] = (u == 0 ? mine : mine + uint64_t{u}).id();
        if (range.unroll > 1 && long_loads_.contains(v)) {
          loaded = load_iterations(v, replay(f_[v].arguments[0], r), range.unroll);
          break;
        }
        loaded.push_back(replay(v, r));
      }
    });
    for (size_t p = 0; p < side_by_side_; ++p) {
      passed_[id_index(v, p)] = passed_[id_index(v, leader(v, p))];
    }
  }
  const Carried before = with_types(loop.carried, initial);
  Bits count_now = range.count.like(lanes);
  if (!is_whole) {
    const Bits left = range.count - done;
    count_now = select(left < lanes, left, count_now);
  }
  Loop inner = begin_loop(count_now, spv::LoopControlDontUnrollMask, before);
  passing_lane_ = inner.iteration.resized(32);
  const Bits iteration = of_all(done + inner.iteration * uint64_t{range.unroll});
  if (schedule_.shares_point) needed_ = passed_values(f_, range.region).needed;
  end_loop(inner, emit_unrolled(range.region, iteration, range.unroll,
                                with_types(inner.carried, initial)));
  needed_.clear();
  passed_.clear();
  end_loop(loop, with_types(inner.carried, initial));
  return with_types(loop.carried, initial);
}

}  // namespace hekla::vulkan::codegen
