// SPDX-License-Identifier: Apache-2.0
// rng_bit_generator: the generators of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", 2011, with the counters and the order of outputs that XLA uses. Every point
// makes the words of one counter. States and 64-bit outputs are pairs of 32-bit words here, so no
// device needs 64-bit integers.
#include <array>
#include <span>

#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using kernel::Op;
using kernel::ScalarType;

namespace {

constexpr ScalarType kWord = ScalarType::kI32;

// Words of 64-bit numbers, low ones first.
struct Pair {
  Value low, high;
};

class RandomLowering {
 public:
  RandomLowering(const ir::Operation& op, const Outputs& outputs, const InMemory& in_memory,
                 const LowerOptions& options)
      : op_(op),
        outputs_(outputs),
        in_memory_(in_memory),
        options_(options),
        state_(*op.operand(0)),
        is_philox_(ir::text_value(op, "rng_algorithm") != "THREE_FRY"),
        words_(element_count(state_.type().dims()) * dtype_bytes(state_.type().dtype()) / 4) {}

  Result<LoweredSequence> run() {
    const DType dtype = op_.result(1)->type().dtype();
    const DType state = state_.type().dtype();
    if ((state != DType::kUI32 && state != DType::kUI64) ||
        (words_ != 4 && !(is_philox_ && words_ == 6)) || dtype_bits(dtype) < 8 ||
        is_complex(dtype) || dtype == DType::kTF32) {
      return unimplemented("stablehlo.rng_bit_generator: no bits of {} from a state {}",
                           dtype_name(dtype), state_.type().to_string());
    }
    const int64_t used = is_philox_ ? plan_philox() : plan_threefry();
    for (const ir::Value* output : outputs_) {
      if (output->index() == 0) HEKLA_RETURN_IF_ERROR(add_state(used));
      if (output->index() == 1 && used > 0) HEKLA_RETURN_IF_ERROR(add_bits());
    }
    return std::move(sequence_);
  }

 private:
  int64_t size() const { return element_count(op_.result(1)->type().dims()); }
  int64_t bytes() const { return dtype_bytes(op_.result(1)->type().dtype()); }

  // Two words of each counter follow each other along the first even dimension of the output, or
  // along its largest one where all are odd; elements of 64 bits take both. Returns the counters.
  int64_t plan_threefry() {
    const Dims& dims = op_.result(1)->type().dims();
    if (size() == 0) return 0;
    if (bytes() == 8) {
      grid_ = {1, size(), 1};
      return size();
    }
    size_t split = 0;
    bool is_even = false;
    for (size_t d = 0; d < dims.size() && !is_even; ++d) {
      is_even = dims[d] % 2 == 0;
      if (is_even || dims[d] > dims[split]) split = d;
    }
    line_ = dims.empty() ? 1 : dims[split];
    const int64_t inner = dims.empty() ? 1 : element_count(std::span(dims).subspan(split + 1));
    grid_ = {size() / (line_ * inner), (line_ + 1) / 2, inner};
    return element_count(grid_);
  }

  // Four words of each counter follow each other in row-major order.
  int64_t plan_philox() {
    const int64_t each = bytes() == 8 ? 2 : 4;
    grid_ = {1, (size() + each - 1) / each, 1};
    return grid_[1];
  }

  Value word(KernelMaker& k, uint32_t value) { return k.b().constant_bits(kWord, value); }

  // Word i of the state.
  Value state_word(KernelMaker& k, int64_t i) {
    if (state_.defining_op() == nullptr || in_memory_(state_)) {
      return k.load_word(state_, k.index(i));
    }
    const bool is_wide = state_.type().dtype() == DType::kUI64;
    const Point point{{}, k.index(is_wide ? i / 2 : i)};
    Value value = k.emitter().emit(state_, point).re;
    if (!is_wide) return value;
    if (i % 2 != 0) {
      value = k.b().binary(Op::kShrU, value, k.b().integer(ScalarType::kI64, 32));
    }
    return k.b().convert(Op::kTruncate, kWord, value);
  }
  Pair state_pair(KernelMaker& k, int64_t i) {
    return {state_word(k, 2 * i), state_word(k, 2 * i + 1)};
  }

  // x + y, and whether that went over.
  std::pair<Pair, Value> add(KernelMaker& k, const Pair& x, const Pair& y) {
    Builder& b = k.b();
    const Value low = b.add(x.low, y.low);
    const Value carry = b.convert(Op::kBoolToInt, kWord, b.binary(Op::kLtU, low, y.low));
    const Value sum = b.add(x.high, y.high);
    const Value high = b.add(sum, carry);
    const Value over = b.bit_or(b.binary(Op::kLtU, sum, y.high), b.binary(Op::kLtU, high, sum));
    return {{low, high}, over};
  }
  Pair as_pair(KernelMaker& k, Value index) {
    Builder& b = k.b();
    if (b.index_type() == kWord) return {index, word(k, 0)};
    const Value high = b.binary(Op::kShrU, index, k.index(32));
    return {b.convert(Op::kTruncate, kWord, index), b.convert(Op::kTruncate, kWord, high)};
  }

  std::vector<Value> threefry(KernelMaker& k, const Pair& counter) {
    Builder& b = k.b();
    constexpr std::array<int, 8> kRotations = {13, 15, 26, 6, 17, 29, 16, 24};
    const Pair key = state_pair(k, 0);
    const Value parity = b.bit_xor(b.bit_xor(key.low, key.high), word(k, 0x1bd11bda));
    const std::array<Value, 3> keys = {key.low, key.high, parity};
    Value x = b.add(counter.low, keys[0]);
    Value y = b.add(counter.high, keys[1]);
    for (uint32_t group = 0; group < 5; ++group) {
      for (uint32_t i = 0; i < 4; ++i) {
        const auto by = static_cast<uint32_t>(kRotations[group % 2 * 4 + i]);
        x = b.add(x, y);
        y = b.bit_or(b.binary(Op::kShl, y, word(k, by)), b.binary(Op::kShrU, y, word(k, 32 - by)));
        y = b.bit_xor(y, x);
      }
      x = b.add(x, keys[(group + 1) % 3]);
      y = b.add(y, b.add(keys[(group + 2) % 3], word(k, group + 1)));
    }
    return {x, y};
  }

  std::vector<Value> philox(KernelMaker& k, const Pair& low, const Pair& high) {
    Builder& b = k.b();
    std::array<Value, 4> x = {low.low, low.high, high.low, high.high};
    Pair key = state_pair(k, 0);
    for (int round = 0; round < 10; ++round) {
      const Value f0 = word(k, 0xd2511f53), f1 = word(k, 0xcd9e8d57);
      const Value high0 = b.binary(Op::kMulHighU, x[0], f0), low0 = b.mul(x[0], f0);
      const Value high1 = b.binary(Op::kMulHighU, x[2], f1), low1 = b.mul(x[2], f1);
      x = {b.bit_xor(b.bit_xor(high1, x[1]), key.low), low1,
           b.bit_xor(b.bit_xor(high0, x[3]), key.high), low0};
      key = {b.add(key.low, word(k, 0x9e3779b9)), b.add(key.high, word(k, 0xbb67ae85))};
    }
    return {x[0], x[1], x[2], x[3]};
  }

  // With two words of state the key is also the counter's upper half.
  Pair upper(KernelMaker& k) { return state_pair(k, words_ == 6 ? 2 : 0); }

  Status add_bits() {
    KernelMaker k("random_bits", grid_, 4 * element_count(grid_), in_memory_);
    Builder& b = k.b();
    const ir::Value& to = *op_.result(1);
    const Value row = b.add(b.mul(k.at(0), k.index(grid_[1])), k.at(1));
    const Value number = b.add(b.mul(row, k.index(grid_[2])), k.at(2));
    const auto [counter, over] = add(k, state_pair(k, 1), as_pair(k, number));
    if (is_philox_) {
      const Value carry = b.convert(Op::kBoolToInt, kWord, over);
      const Pair high = add(k, upper(k), {carry, word(k, 0)}).first;
      const std::vector<Value> words = philox(k, counter, high);
      const int64_t total = bytes() == 8 ? 2 * size() : size();
      for (int64_t i = 3; i >= 0; --i) {
        const Value at = b.add(b.mul(number, k.index(4)), k.index(i));
        const Value value = words[static_cast<size_t>(i)];
        const auto write = [&] { k.store_word(to, at, value, bytes()); };
        if (total % 4 == 0 || i < total % 4) {
          write();
        } else {
          k.when(b.binary(Op::kLtS, at, k.index(total)), write);
        }
      }
    } else {
      const std::vector<Value> words = threefry(k, counter);
      if (bytes() == 8) {
        k.store_word(to, b.mul(number, k.index(2)), words[0], 8);
        k.store_word(to, b.add(b.mul(number, k.index(2)), k.index(1)), words[1], 8);
      } else {
        const Value i = b.mul(k.at(1), k.index(2));
        const Value place = b.add(b.mul(k.at(0), k.index(line_)), i);
        const Value at = b.add(b.mul(place, k.index(grid_[2])), k.at(2));
        k.store_word(to, at, words[0], bytes());
        const auto write = [&] {
          k.store_word(to, b.add(at, k.index(grid_[2])), words[1], bytes());
        };
        if (line_ % 2 == 0) {
          write();
        } else if (line_ > 1) {
          k.when(b.binary(Op::kLtS, b.add(i, k.index(1)), k.index(line_)), write);
        }
      }
    }
    return finish(k);
  }

  Status add_state(int64_t used) {
    KernelMaker k("random_state", {}, 0, in_memory_);
    const auto count = static_cast<uint64_t>(used);
    const Pair by{word(k, static_cast<uint32_t>(count)),
                  word(k, static_cast<uint32_t>(count >> 32))};
    const Pair key = state_pair(k, 0);
    const auto [counter, over] = add(k, state_pair(k, 1), by);
    std::vector<Value> words{key.low, key.high, counter.low, counter.high};
    if (words_ == 6) {
      const Value carry = k.b().convert(Op::kBoolToInt, kWord, over);
      const Pair high = add(k, state_pair(k, 2), {carry, word(k, 0)}).first;
      words.insert(words.end(), {high.low, high.high});
    }
    for (size_t i = 0; i < words.size(); ++i) {
      k.store_word(*op_.result(0), k.index(static_cast<int64_t>(i)), words[i], 4);
    }
    return finish(k);
  }

  Status finish(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  const ir::Operation& op_;
  const Outputs& outputs_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const ir::Value& state_;
  const bool is_philox_;
  const int64_t words_;  // of the state
  Dims grid_;            // counters: outer, along the line, inner
  int64_t line_ = 1;     // elements along the dimension that words follow each other in
  LoweredSequence sequence_;
};

}  // namespace

Result<LoweredSequence> lower_random(const ir::Operation& op, const Outputs& outputs,
                                     const InMemory& in_memory, const LowerOptions& options) {
  return RandomLowering(op, outputs, in_memory, options).run();
}

}  // namespace hekla::lower
