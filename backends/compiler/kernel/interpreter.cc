// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/interpreter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "backends/compiler/kernel/evaluate.h"
#include "runtime/base/dtype.h"

namespace hekla::kernel {
namespace {

// An instruction with what a step of it looks up, in one place.
struct Step {
  Op op;
  ScalarType type;
  ScalarType from;  // as evaluate takes it
  Access access;    // of loads and stores
  std::array<Value, 3> arguments;
  const Instruction* whole;
};

std::vector<Step> decode(const Function& f) {
  std::vector<Step> steps(f.size());
  for (size_t i = 0; i < f.size(); ++i) {
    const Instruction& inst = f[static_cast<Value>(i)];
    Step& step = steps[i];
    step = {inst.op, inst.type, inst.type, {}, {-1, -1, -1}, &inst};
    std::copy_n(inst.arguments.begin(), std::min(inst.arguments.size(), step.arguments.size()),
                step.arguments.begin());
    if (inst.op == Op::kLoad || inst.op == Op::kStore) step.access = unpack_access(inst.immediate);
    const size_t typed = inst.op == Op::kSelect ? 1 : 0;
    if (typed < inst.arguments.size()) step.from = f.type(inst.arguments[typed]);
  }
  return steps;
}

// Steps say whether they went well; error() has what did not.
class Interpreter {
 public:
  Interpreter(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
              const Observer* observer = nullptr, FmaRounding fma = {})
      : f_(kernel.body),
        steps_(std::make_shared<const std::vector<Step>>(decode(f_))),
        operands_(operands),
        observer_(observer),
        fma_(fma),
        values_(f_.size(), 0) {
    for (size_t i = 0; i < f_.size(); ++i) {
      const Instruction& inst = f_[static_cast<Value>(i)];
      if (inst.op == Op::kConstant) values_[i] = inst.immediate;
    }
  }

  Status run_point(std::span<const int64_t> index) {
    begin_point(index);
    return run(0) ? Status() : error_;
  }

 private:
  const Step& step_of(Value v) const { return (*steps_)[static_cast<size_t>(v)]; }
  uint64_t& at(Value v) { return values_[static_cast<size_t>(v)]; }
  void set(Value v, uint64_t bits) {
    at(v) = step_of(v).type == ScalarType::kI32 ? bits & 0xffffffff : bits;
  }
  void show(Value v) {
    if (observer_ != nullptr) (*observer_)(point_, iterations_, v, at(v));
  }
  int64_t index(Value v) {
    return step_of(v).type == ScalarType::kI32 ? static_cast<int32_t>(at(v))
                                               : static_cast<int64_t>(at(v));
  }

  // Null, with an error, outside of the operand.
  std::byte* address(Value v, const Access& access, int64_t element) {
    const std::span<std::byte> bytes = operands_[static_cast<size_t>(access.operand)];
    if (element >= 0 && element < static_cast<int64_t>(bytes.size()) / access.bytes) {
      return bytes.data() + element * access.bytes;
    }
    error_ = out_of_range("scalar IR: %{} {}: element {} of operand {}, which has {} bytes", v,
                          op_name(f_[v].op), element, access.operand, bytes.size());
    return nullptr;
  }

  bool run(int32_t region) {
    for (const Value v : f_.region(region).instructions) {
      if (!step(v)) return false;
    }
    return true;
  }

 public:
  const Status& error() const { return error_; }
  // Parts of a run of the body, for points that exchange values.
  void begin_point(std::span<const int64_t> index) {
    point_ = index;
    for (size_t i = 0; i < index.size(); ++i) {
      set(f_.body().parameters[i], static_cast<uint64_t>(index[i]));
      show(f_.body().parameters[i]);
    }
  }
  uint64_t bits(Value v) const { return values_[static_cast<size_t>(v)]; }
  void receive(Value v, uint64_t bits) {
    at(v) = bits;
    show(v);
  }
  bool step(Value v) {
    const Step& s = step_of(v);
    const auto& a = s.arguments;
    switch (s.op) {
      case Op::kLoad: {
        const std::byte* from = address(v, s.access, index(a[0]));
        if (from == nullptr) return false;
        uint64_t bits = 0;
        copy(reinterpret_cast<std::byte*>(&bits), from, s.access.bytes);
        if (s.access.is_signed && s.access.bytes == 1) bits = extend<int8_t>(bits);
        if (s.access.is_signed && s.access.bytes == 2) bits = extend<int16_t>(bits);
        at(v) = bits;
        break;
      }
      case Op::kStore: {
        std::byte* to = address(v, s.access, index(a[0]));
        if (to == nullptr) return false;
        copy(to, reinterpret_cast<const std::byte*>(&at(a[1])), s.access.bytes);
        return true;
      }
      case Op::kFor:
        return run_loop(*s.whole);
      case Op::kForResult:
        at(v) = results_[static_cast<size_t>(f_[a[0]].immediate)][s.whole->immediate];
        break;
      case Op::kFma:
        if ((s.type == ScalarType::kF64 ? fma_.f64 : fma_.f32) == Fma::kSplit) {
          const uint64_t product = evaluate(Op::kMul, s.type, s.from, at(a[0]), at(a[1]), 0);
          at(v) = evaluate(Op::kAdd, s.type, s.from, product, at(a[2]), 0);
          break;
        }
        [[fallthrough]];
      default:
        at(v) = evaluate(s.op, s.type, s.from, at(a[0]), a[1] < 0 ? 0 : at(a[1]),
                         a[2] < 0 ? 0 : at(a[2]));
    }
    show(v);
    return true;
  }
  // Iterations of a loop whose body this point does not run by itself.
  void begin_iteration(Value loop, int64_t iteration) {
    const Instruction& inst = f_[loop];
    const RegionBody& region = f_.region(static_cast<int32_t>(inst.immediate));
    std::vector<uint64_t> carried;
    for (size_t k = 1; k < inst.arguments.size(); ++k) {
      carried.push_back(at(iteration == 0 ? inst.arguments[k] : region.yields[k - 1]));
    }
    set(region.parameters[0], static_cast<uint64_t>(iteration));
    for (size_t k = 0; k < carried.size(); ++k) at(region.parameters[k + 1]) = carried[k];
    if (observer_ == nullptr) return;
    iterations_.push_back(iteration);
    for (const Value parameter : region.parameters) show(parameter);
  }
  void end_iteration() {
    if (observer_ != nullptr) iterations_.pop_back();
  }
  int64_t trips(Value loop) { return index(f_[loop].arguments[0]); }
  // A loop without a trip.
  void pass_loop(Value loop) {
    const Instruction& inst = f_[loop];
    if (results_.size() < f_.region_count()) results_.resize(f_.region_count());
    results_[inst.immediate].clear();
    for (size_t k = 1; k < inst.arguments.size(); ++k) {
      results_[inst.immediate].push_back(at(inst.arguments[k]));
    }
  }
  void end_loop(Value loop) {
    const auto region = f_[loop].immediate;
    if (results_.size() < f_.region_count()) results_.resize(f_.region_count());
    results_[region].clear();
    for (const Value v : f_.region(static_cast<int32_t>(region)).yields) {
      results_[region].push_back(at(v));
    }
  }

 private:
  template <typename Narrow>
  static uint64_t extend(uint64_t bits) {
    return static_cast<uint32_t>(static_cast<int32_t>(static_cast<Narrow>(bits)));
  }

  // Of the size of an element, which the compiler knows then.
  static void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    switch (bytes) {
      case 1:
        *to = *from;
        break;
      case 2:
        std::memcpy(to, from, 2);
        break;
      case 4:
        std::memcpy(to, from, 4);
        break;
      default:
        std::memcpy(to, from, 8);
    }
  }

  bool run_loop(const Instruction& inst) {
    const RegionBody& region = f_.region(static_cast<int32_t>(inst.immediate));
    std::vector<uint64_t> carried;
    for (size_t i = 1; i < inst.arguments.size(); ++i) carried.push_back(at(inst.arguments[i]));
    const int64_t count = index(inst.arguments[0]);
    for (int64_t i = 0; i < count; ++i) {
      set(region.parameters[0], static_cast<uint64_t>(i));
      for (size_t k = 0; k < carried.size(); ++k) at(region.parameters[k + 1]) = carried[k];
      if (observer_ != nullptr) {
        iterations_.push_back(i);
        for (const Value parameter : region.parameters) show(parameter);
      }
      if (!run(static_cast<int32_t>(inst.immediate))) return false;
      if (observer_ != nullptr) iterations_.pop_back();
      for (size_t k = 0; k < carried.size(); ++k) carried[k] = at(region.yields[k]);
    }
    if (results_.size() < f_.region_count()) results_.resize(f_.region_count());
    results_[inst.immediate] = std::move(carried);
    return true;
  }

  const Function& f_;
  std::shared_ptr<const std::vector<Step>> steps_;  // by value; of all points of a team
  std::span<const std::span<std::byte>> operands_;
  const Observer* observer_;
  const FmaRounding fma_;
  std::span<const int64_t> point_;
  std::vector<int64_t> iterations_;  // of the loops that run; kept for the observer alone
  std::vector<uint64_t> values_;
  std::vector<std::vector<uint64_t>> results_;  // of each loop, by region
  Status error_;
};

// The points of a team, instruction by instruction.
class Team {
 public:
  Team(const Kernel& kernel, const Interpreter& point, size_t dimension)
      : f_(kernel.body),
        dimension_(dimension),
        points_(static_cast<size_t>(kernel.grid[dimension]), point),
        indices_(points_.size()),
        exchanges_(regions_with_exchanges(f_)) {}

  // `index`: of the first point.
  Status run(const std::vector<int64_t>& index) {
    memories_.clear();
    for (const TeamMemory& memory : team_memories(f_)) {
      memories_[memory.array].assign(memory.words, kUndefined);
    }
    for (size_t i = 0; i < points_.size(); ++i) {
      indices_[i] = index;
      indices_[i][dimension_] = static_cast<int64_t>(i);
      points_[i].begin_point(indices_[i]);
    }
    return run_region(0);
  }

 private:
  static constexpr uint32_t kUndefined = 0xbadc0de5;

  Status run_region(int32_t region) {
    for (const Value v : f_.region(region).instructions) {
      const Instruction& inst = f_[v];
      if (inst.op == Op::kFor && exchanges_[inst.immediate]) {
        HEKLA_RETURN_IF_ERROR(run_loop(v));
      } else if (inst.op == Op::kShuffleXor) {
        HEKLA_RETURN_IF_ERROR(shuffle(v));
      } else if (is_sums_op(inst.op)) {
        HEKLA_RETURN_IF_ERROR(run_sums(v));
      } else if (is_team_op(inst.op)) {
        for (Interpreter& point : points_) HEKLA_RETURN_IF_ERROR(access(v, point));
      } else {
        for (Interpreter& point : points_) {
          if (!point.step(v)) return point.error();
        }
      }
    }
    return Status();
  }

  Status run_loop(Value v) {
    const Instruction& inst = f_[v];
    const int64_t count = points_.front().trips(v);
    for (Interpreter& point : points_) {
      if (point.trips(v) == count) continue;
      return out_of_range("scalar IR: %{}: {} trips for one point of a team, {} for another", v,
                          count, point.trips(v));
    }
    if (count <= 0) {
      for (Interpreter& point : points_) point.pass_loop(v);
      return Status();
    }
    for (int64_t i = 0; i < count; ++i) {
      for (Interpreter& point : points_) point.begin_iteration(v, i);
      HEKLA_RETURN_IF_ERROR(run_region(static_cast<int32_t>(inst.immediate)));
      for (Interpreter& point : points_) point.end_iteration();
    }
    for (Interpreter& point : points_) point.end_loop(v);
    return Status();
  }

  Status shuffle(Value v) {
    const Instruction& inst = f_[v];
    for (size_t i = 0; i < points_.size(); ++i) {
      const size_t other = i ^ unpack_exchange(inst.immediate).distance;
      if (other >= points_.size()) {
        return out_of_range("scalar IR: %{} {}: point {} of a team of {}", v, op_name(inst.op),
                            other, points_.size());
      }
      points_[i].receive(v, points_[other].bits(inst.arguments[0]));
    }
    return Status();
  }

  Status access(Value v, Interpreter& point) {
    const Instruction& inst = f_[v];
    std::vector<uint32_t>& words = memories_[unpack_team_memory(inst.immediate).array];
    const auto place = static_cast<uint32_t>(point.bits(inst.arguments[0]));
    if (place >= words.size()) {
      return out_of_range("scalar IR: %{} {}: word {} of {}", v, op_name(inst.op), place,
                          words.size());
    }
    if (inst.op == Op::kTeamLoad) {
      point.receive(v, words[place]);
      return Status();
    }
    if (inst.op == Op::kTeamStoreWide) {
      if (place % 4 != 0) {
        return out_of_range("scalar IR: %{} {}: word {}", v, op_name(inst.op), place);
      }
      // Arrays are of whole groups of four.
      for (uint32_t i = 0; i < 4; ++i) {
        words[place + i] = static_cast<uint32_t>(point.bits(inst.arguments[1 + i]));
      }
      return Status();
    }
    const auto value = static_cast<uint32_t>(point.bits(inst.arguments[1]));
    words[place] = inst.op == Op::kTeamAdd ? words[place] + value : value;
    return Status();
  }

  // An instruction of the whole team, with the places that its first point has.
  Status run_sums(Value v) {
    const Instruction& inst = f_[v];
    const SumsAccess a = unpack_sums(inst.immediate);
    std::vector<float>& sums = sums_[a.number];
    sums.resize(size_t{a.rows} * a.columns, 0);
    if (inst.op == Op::kSumsClear) {
      std::fill(sums.begin(), sums.end(), 0.0F);
      return Status();
    }
    std::vector<uint32_t>& left = memories_[a.left];
    std::vector<uint32_t>& right = memories_[a.right];
    std::vector<size_t> places;
    for (const Value place : inst.arguments) {
      places.push_back(static_cast<uint32_t>(points_.front().bits(place)));
    }
    // Words that a block of `lines` lines of `words` words takes.
    const auto reaches = [&](size_t place, size_t lines, size_t pitch, size_t words) {
      return place + (lines - 1) * pitch + words;
    };
    const auto check = [&](const std::vector<uint32_t>& array, size_t end) {
      if (end <= array.size()) return Status();
      return out_of_range("scalar IR: %{} {}: word {} of {}", v, op_name(inst.op), end - 1,
                          array.size());
    };
    const DType dtype = a.is_bf16 ? DType::kBF16 : DType::kF16;
    const auto half = [&](const std::vector<uint32_t>& array, size_t line, size_t at) {
      return static_cast<float>(
          hekla::float_from_bits(dtype, array[line + at / 2] >> at % 2 * 16 & 0xffff));
    };
    switch (inst.op) {
      case Op::kSumsMultiply: {
        HEKLA_RETURN_IF_ERROR(check(left, reaches(places[0], a.rows, a.left_pitch, a.depth / 2)));
        HEKLA_RETURN_IF_ERROR(check(
            right, a.is_by_column ? reaches(places[1], a.columns, a.right_pitch, a.depth / 2)
                                  : reaches(places[1], a.depth, a.right_pitch, a.columns / 2)));
        for (size_t r = 0; r < a.rows; ++r) {
          for (size_t c = 0; c < a.columns; ++c) {
            float& sum = sums[r * a.columns + c];
            for (size_t d = 0; d < a.depth; ++d) {
              sum += half(left, places[0] + r * a.left_pitch, d) *
                     (a.is_by_column ? half(right, places[1] + c * a.right_pitch, d)
                                     : half(right, places[1] + d * a.right_pitch, c));
            }
          }
        }
        return Status();
      }
      case Op::kSumsScale:
        HEKLA_RETURN_IF_ERROR(check(left, places[0] + a.rows));
        for (size_t i = 0; i < sums.size(); ++i) {
          sums[i] *= std::bit_cast<float>(left[places[0] + i / a.columns]);
        }
        return Status();
      default:
        HEKLA_RETURN_IF_ERROR(check(left, reaches(places[0], a.rows, a.left_pitch, a.depth)));
        for (size_t r = 0; r < a.rows; ++r) {
          for (size_t c = 0; c < a.depth; ++c) {
            left[places[0] + r * a.left_pitch + c] =
                std::bit_cast<uint32_t>(sums[r * a.columns + a.first + c]);
          }
        }
        return Status();
    }
  }

  const Function& f_;
  const size_t dimension_;
  std::vector<Interpreter> points_;
  std::vector<std::vector<int64_t>> indices_;
  const std::vector<bool> exchanges_;
  std::map<uint32_t, std::vector<uint32_t>> memories_;
  std::map<uint32_t, std::vector<float>> sums_;
};

Status run_points(const Kernel& kernel, Interpreter interpreter, int64_t begin, int64_t end) {
  if (begin >= end) return Status();
  const int dimension = team_dimension(kernel.body);
  std::optional<Team> team;
  if (dimension >= 0) team.emplace(kernel, interpreter, static_cast<size_t>(dimension));
  std::vector<int64_t> index(kernel.grid.size(), 0);
  int64_t rest = begin;
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = rest % kernel.grid[d];
    rest /= kernel.grid[d];
  }
  for (int64_t point = begin; point < end; ++point) {
    if (dimension < 0) {
      HEKLA_RETURN_IF_ERROR(interpreter.run_point(index));
    } else if (index[static_cast<size_t>(dimension)] == 0) {
      HEKLA_RETURN_IF_ERROR(team->run(index));
    }
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < kernel.grid[d]) break;
      index[d] = 0;
    }
  }
  return Status();
}

}  // namespace

Status interpret(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
                 FmaRounding fma) {
  return run_points(kernel, Interpreter(kernel, operands, nullptr, fma), 0, kernel.points());
}

Status interpret_points(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
                        int64_t begin, int64_t end) {
  return run_points(kernel, Interpreter(kernel, operands), begin, end);
}

Status interpret_observed(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
                          const Observer& observer) {
  return run_points(kernel, Interpreter(kernel, operands, &observer), 0, kernel.points());
}

}  // namespace hekla::kernel
