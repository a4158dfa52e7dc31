// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/math/testing/lanes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "backends/compiler/kernel/evaluate.h"

namespace hekla::kernel {

Lanes::Lanes(const Function& function, Fma fma) : function_(function), fma_(fma) {
  size_t bytes = 0;
  for (size_t v = 0; v < function.size(); ++v) {
    offset_.push_back(bytes);
    const bool is_wide = bit_width(function.type(static_cast<Value>(v))) == 64;
    bytes += kWidth * (is_wide ? 8 : 4);
  }
  storage_words_.resize(bytes / 8);
  storage_ = std::as_writable_bytes(std::span<uint64_t>(storage_words_));
  for (size_t v = 0; v < function.size(); ++v) {
    const Instruction& inst = function[static_cast<Value>(v)];
    if (inst.op != Op::kConstant) continue;
    for (int i = 0; i < kWidth; ++i) set(static_cast<Value>(v), i, inst.immediate);
  }
}

uint64_t Lanes::get(Value v, int lane) {
  return bit_width(function_.type(v)) == 64 ? lanes<uint64_t>(v)[lane] : lanes<uint32_t>(v)[lane];
}

void Lanes::set(Value v, int lane, uint64_t bits) {
  if (bit_width(function_.type(v)) == 64) {
    lanes<uint64_t>(v)[lane] = bits;
  } else {
    lanes<uint32_t>(v)[lane] = static_cast<uint32_t>(bits);
  }
}

Status Lanes::run(int64_t count, std::span<const std::span<std::byte>> operands) {
  operands_ = operands;
  for (int64_t start = 0; start < count; start += kWidth) {
    active_ = static_cast<int>(std::min<int64_t>(kWidth, count - start));
    // Lanes beyond the end repeat the last point and do not store.
    for (int i = 0; i < kWidth; ++i) {
      const int64_t point = start + std::min(i, active_ - 1);
      set(function_.body().parameters[0], i, static_cast<uint64_t>(point));
    }
    HEKLA_RETURN_IF_ERROR(run_region(0));
  }
  return Status();
}

Status Lanes::run_region(int32_t region) {
  for (Value v : function_.region(region).instructions) {
    const Instruction& inst = function_[v];
    switch (inst.op) {
      case Op::kLoad:
      case Op::kStore:
        HEKLA_RETURN_IF_ERROR(access(v, inst));
        break;
      case Op::kFor:
        HEKLA_RETURN_IF_ERROR(run_loop(inst));
        break;
      case Op::kForResult: {
        const Instruction& loop = function_[inst.arguments[0]];
        // The loop left its last values in its region's parameters.
        const Value from =
            function_.region(static_cast<int32_t>(loop.immediate)).parameters[inst.immediate + 1];
        for (int i = 0; i < kWidth; ++i) set(v, i, get(from, i));
        break;
      }
      default:
        compute(v, inst);
    }
  }
  return Status();
}

Status Lanes::run_loop(const Instruction& inst) {
  const auto number = static_cast<int32_t>(inst.immediate);
  const RegionBody& region = function_.region(number);
  const size_t carried = region.yields.size();
  for (size_t k = 0; k < carried; ++k) {
    for (int i = 0; i < kWidth; ++i) {
      set(region.parameters[k + 1], i, get(inst.arguments[k + 1], i));
    }
  }
  const bool is_wide = bit_width(function_.type(inst.arguments[0])) == 64;
  const auto count = [&](int lane) {
    const uint64_t bits = get(inst.arguments[0], lane);
    return is_wide ? static_cast<int64_t>(bits) : static_cast<int32_t>(bits);
  };
  int64_t most = 0;
  std::vector<int64_t> counts;
  for (int i = 0; i < kWidth; ++i) {
    counts.push_back(count(i));
    most = std::max(most, counts.back());
  }
  std::vector<std::vector<uint64_t>> next(carried, std::vector<uint64_t>(kWidth));
  for (int64_t iteration = 0; iteration < most; ++iteration) {
    for (int i = 0; i < kWidth; ++i) {
      set(region.parameters[0], i, static_cast<uint64_t>(iteration));
    }
    HEKLA_RETURN_IF_ERROR(run_region(number));
    // A yield may be another carried value: read all before any is written. Lanes that are done
    // keep theirs.
    for (size_t k = 0; k < carried; ++k) {
      for (int i = 0; i < kWidth; ++i) next[k][static_cast<size_t>(i)] = get(region.yields[k], i);
    }
    for (size_t k = 0; k < carried; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        if (iteration >= counts[static_cast<size_t>(i)]) continue;
        set(region.parameters[k + 1], i, next[k][static_cast<size_t>(i)]);
      }
    }
  }
  return Status();
}

Status Lanes::access(Value v, const Instruction& inst) {
  const Access access = unpack_access(inst.immediate);
  const std::span<std::byte> bytes = operands_[static_cast<size_t>(access.operand)];
  const bool is_store = inst.op == Op::kStore;
  for (int i = 0; i < active_; ++i) {
    const uint64_t element = get(inst.arguments[0], i);
    if (element >= bytes.size() / access.bytes) {
      return out_of_range("lanes: element {} of operand {}, which has {} bytes", element,
                          access.operand, bytes.size());
    }
    std::byte* at = bytes.data() + element * access.bytes;
    if (is_store) {
      const uint64_t value = get(inst.arguments[1], i);
      std::memcpy(at, &value, access.bytes);
      continue;
    }
    uint64_t value = 0;
    std::memcpy(&value, at, access.bytes);
    if (access.is_signed && access.bytes < 4) {
      const int unused = 32 - 8 * access.bytes;
      value = static_cast<uint32_t>(static_cast<int32_t>(static_cast<uint32_t>(value) << unused) >>
                                    unused);
    }
    set(v, i, value);
  }
  if (!is_store) {
    for (int i = active_; i < kWidth; ++i) set(v, i, get(v, active_ - 1));
  }
  return Status();
}

// The common ops on typed lanes; false for all others.
template <typename T>
bool Lanes::arithmetic(const Instruction& inst, T* out) {
  const auto& args = inst.arguments;
  const T* a = lanes<T>(args[0]);
  const T* b = args.size() > 1 ? lanes<T>(args[1]) : a;
  const auto run = [&](auto f) {
    for (int i = 0; i < kWidth; ++i) out[i] = f(a[i], b[i]);
    return true;
  };
  using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  if constexpr (std::is_floating_point_v<T>) {
    switch (inst.op) {
      case Op::kAdd:
        return run([](T x, T y) { return x + y; });
      case Op::kSub:
        return run([](T x, T y) { return x - y; });
      case Op::kMul:
        return run([](T x, T y) { return x * y; });
      case Op::kDiv:
        return run([](T x, T y) { return x / y; });
      case Op::kNeg:
        return run([](T x, T) { return -x; });
      case Op::kAbs:
        return run([](T x, T) { return std::fabs(x); });
      case Op::kSqrt:
        return run([](T x, T) { return std::sqrt(x); });
      case Op::kFma: {
        const T* c = lanes<T>(args[2]);
        for (int i = 0; i < kWidth; ++i) {
          out[i] = fma_ == Fma::kFused ? std::fma(a[i], b[i], c[i]) : a[i] * b[i] + c[i];
        }
        return true;
      }
      default:
        return false;
    }
  } else {
    constexpr U kTop = sizeof(T) * 8;
    switch (inst.op) {
      case Op::kAdd:
        return run([](U x, U y) { return x + y; });
      case Op::kSub:
        return run([](U x, U y) { return x - y; });
      case Op::kMul:
        return run([](U x, U y) { return x * y; });
      case Op::kAnd:
        return run([](U x, U y) { return x & y; });
      case Op::kOr:
        return run([](U x, U y) { return x | y; });
      case Op::kXor:
        return run([](U x, U y) { return x ^ y; });
      case Op::kShl:
        return run([](U x, U y) { return y < kTop ? x << (y & (kTop - 1)) : 0; });
      case Op::kShrU:
        return run([](U x, U y) { return y < kTop ? x >> (y & (kTop - 1)) : 0; });
      default:
        return false;
    }
  }
}

template <typename T>
bool Lanes::compare(const Instruction& inst, uint32_t* out) {
  const T* a = lanes<T>(inst.arguments[0]);
  const T* b = lanes<T>(inst.arguments[1]);
  const auto run = [&](auto f) {
    for (int i = 0; i < kWidth; ++i) out[i] = f(a[i], b[i]) ? 1 : 0;
    return true;
  };
  switch (inst.op) {
    case Op::kEq:
      return run([](T x, T y) { return x == y; });
    case Op::kNe:
      return run([](T x, T y) { return x != y; });
    case Op::kLt:
    case Op::kLtS:
      return run([](T x, T y) { return x < y; });
    case Op::kLe:
    case Op::kLeS:
      return run([](T x, T y) { return x <= y; });
    default:
      return false;
  }
}

void Lanes::compute(Value v, const Instruction& inst) {
  const auto& args = inst.arguments;
  const ScalarType from = function_.type(inst.op == Op::kSelect ? args[1] : args[0]);
  if (inst.op == Op::kSelect) {
    const uint32_t* condition = lanes<uint32_t>(args[0]);
    const auto run = [&](auto* out, const auto* x, const auto* y) {
      for (int i = 0; i < kWidth; ++i) out[i] = condition[i] != 0 ? x[i] : y[i];
    };
    if (bit_width(from) == 64) {
      run(lanes<uint64_t>(v), lanes<uint64_t>(args[1]), lanes<uint64_t>(args[2]));
    } else {
      run(lanes<uint32_t>(v), lanes<uint32_t>(args[1]), lanes<uint32_t>(args[2]));
    }
    return;
  }
  if (inst.op == Op::kBitcast) {
    std::memcpy(lanes<std::byte>(v), lanes<std::byte>(args[0]),
                static_cast<size_t>(kWidth * bit_width(from) / 8));
    return;
  }
  if (inst.op >= Op::kEq && inst.op <= Op::kLeS) {
    uint32_t* out = lanes<uint32_t>(v);
    bool done = false;
    if (from == ScalarType::kF32) done = compare<float>(inst, out);
    if (from == ScalarType::kF64) done = compare<double>(inst, out);
    if (from == ScalarType::kI32) done = compare<int32_t>(inst, out);
    if (from == ScalarType::kI64) done = compare<int64_t>(inst, out);
    if (done) return;
  }
  if (from == inst.type) {
    bool done = false;
    if (from == ScalarType::kF32) done = arithmetic<float>(inst, lanes<float>(v));
    if (from == ScalarType::kF64) done = arithmetic<double>(inst, lanes<double>(v));
    if (from == ScalarType::kI32) done = arithmetic<uint32_t>(inst, lanes<uint32_t>(v));
    if (from == ScalarType::kI64) done = arithmetic<uint64_t>(inst, lanes<uint64_t>(v));
    if (done) return;
  }
  for (int i = 0; i < kWidth; ++i) {
    set(v, i,
        evaluate(inst.op, inst.type, from, get(args[0], i), args.size() > 1 ? get(args[1], i) : 0,
                 args.size() > 2 ? get(args[2], i) : 0));
  }
}

}  // namespace hekla::kernel
