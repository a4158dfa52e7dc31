// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/sort_keys.h"

#include <string>
#include <utility>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

namespace {

class Recognizer {
 public:
  explicit Recognizer(const ir::Block& comparator) : block_(comparator) {}

  std::vector<SortKey> run() {
    const ir::Operation* end = block_.terminator();
    if (end == nullptr || end->operand_count() != 1) return {};
    std::vector<SortKey> keys;
    if (!is_less(*end->operand(0), keys)) return {};
    return keys;
  }

 private:
  // Keys of a deep comparator cost more passes than merges.
  static constexpr size_t kMostKeys = 8;

  static const ir::Operation* op_of(const ir::Value& value, OpCode code) {
    const ir::Operation* op = value.defining_op();
    return op != nullptr && op->code() == code ? op : nullptr;
  }

  // x < y, or x < y | (x == y & the same of the other keys).
  bool is_less(const ir::Value& value, std::vector<SortKey>& keys) {
    if (keys.size() == kMostKeys) return false;
    if (const auto key = compared(value)) {
      keys.push_back(*key);
      return true;
    }
    const ir::Operation* either = op_of(value, OpCode::kOr);
    if (either == nullptr) return false;
    for (const size_t first : {size_t{0}, size_t{1}}) {
      const auto key = compared(*either->operand(first));
      const ir::Operation* both = op_of(*either->operand(1 - first), OpCode::kAnd);
      if (!key || both == nullptr) continue;
      for (const size_t equal : {size_t{0}, size_t{1}}) {
        if (!is_equality(*both->operand(equal), *key)) continue;
        keys.push_back(*key);
        return is_less(*both->operand(1 - equal), keys);
      }
    }
    return false;
  }

  // The sides of a comparison, that of even arguments first; whether they were exchanged.
  struct Sides {
    const ir::Value* even = nullptr;
    bool is_swapped = false;
  };
  std::optional<Sides> sides(const ir::Operation& compare) {
    const ir::Value& a = *compare.operand(0);
    const ir::Value& b = *compare.operand(1);
    const DType dtype = a.type().dtype();
    if (!is_float(dtype) && !is_integer(dtype) && dtype != DType::kI1) return std::nullopt;
    // Their one NaN, which has the sign bit, stands in front of all numbers.
    if (is_float(dtype) && float_format(dtype).specials == FloatFormat::Specials::kUnsignedZero) {
      return std::nullopt;
    }
    if (is_float(dtype) && ir::text_value(compare, "compare_type") != "TOTALORDER") {
      return std::nullopt;
    }
    if (are_alike(a, b)) return Sides{&a, false};
    if (are_alike(b, a)) return Sides{&b, true};
    return std::nullopt;
  }

  std::optional<SortKey> compared(const ir::Value& value) {
    const ir::Operation* compare = op_of(value, OpCode::kCompare);
    if (compare == nullptr) return std::nullopt;
    const std::string direction = ir::text_value(*compare, "comparison_direction");
    if (direction != "LT" && direction != "GT") return std::nullopt;
    const auto found = sides(*compare);
    if (!found || !is_of_block(*found->even)) return std::nullopt;
    // Floats of 8 bits and fewer have NaNs of their own; as f32 they are in order.
    DType dtype = found->even->type().dtype();
    if (is_float(dtype) && dtype_bits(dtype) < 16) dtype = DType::kF32;
    return SortKey{found->even, dtype, (direction == "GT") != found->is_swapped};
  }

  bool is_equality(const ir::Value& value, const SortKey& key) {
    const ir::Operation* compare = op_of(value, OpCode::kCompare);
    if (compare == nullptr || ir::text_value(*compare, "comparison_direction") != "EQ")
      return false;
    const auto found = sides(*compare);
    return found && is_same(*found->even, *key.value);
  }

  bool is_of_block(const ir::Value& value) const {
    return argument(value) >= 0 ||
           (value.defining_op() != nullptr && value.defining_op()->block() == &block_);
  }

  // The number of an argument; -1: it is none.
  int64_t argument(const ir::Value& value) const {
    for (size_t i = 0; i < block_.argument_count(); ++i) {
      if (block_.argument(i) == &value) return static_cast<int64_t>(i);
    }
    return -1;
  }

  // Whether `b` is to the odd arguments what `a` is to the even ones.
  bool are_alike(const ir::Value& a, const ir::Value& b) { return match(a, b, 1); }
  bool is_same(const ir::Value& a, const ir::Value& b) { return match(a, b, 0); }
  bool match(const ir::Value& a, const ir::Value& b, int64_t shift) {
    int64_t budget = 64;
    return match(a, b, shift, budget);
  }
  bool match(const ir::Value& a, const ir::Value& b, int64_t shift, int64_t& budget) {
    if (--budget < 0) return false;
    if (const int64_t number = argument(a); number >= 0) {
      return number % 2 == 0 && argument(b) == number + shift;
    }
    const ir::Operation *x = a.defining_op(), *y = b.defining_op();
    if (x == nullptr || x->block() != &block_) return &a == &b;  // from around the region
    if (y == nullptr || y->block() != &block_ || x->code() != y->code() || x->region_count() != 0 ||
        y->region_count() != 0 || x->result_count() != 1 || y->result_count() != 1 ||
        x->operand_count() != y->operand_count() || !(x->result_types() == y->result_types()) ||
        !(x->attributes() == y->attributes())) {
      return false;
    }
    for (size_t i = 0; i < x->operand_count(); ++i) {
      if (!match(*x->operand(i), *y->operand(i), shift, budget)) return false;
    }
    return true;
  }

  const ir::Block& block_;
};

}  // namespace

std::vector<SortKey> sort_keys(const ir::Block& comparator) { return Recognizer(comparator).run(); }

std::optional<Value> ordered_key(Emitter& emitter, const ir::Block& comparator, const SortKey& key,
                                 const Elements& element) {
  Elements arguments;
  for (const Element& e : element) {
    arguments.push_back(e);
    arguments.push_back(e);
  }
  const std::optional<Element> x = emitter.value_in_region(comparator, arguments, *key.value);
  if (!x.has_value()) return std::nullopt;
  Builder& b = emitter.builder();
  Value bits = key.dtype == DType::kI1 ? b.convert(Op::kBoolToInt, ScalarType::kI32, x->re)
                                       : kernel::element_bits(b, key.dtype, *x);
  const ScalarType type = b.type(bits);
  const int width = dtype_bits(key.dtype);
  const uint64_t all = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  const uint64_t sign = uint64_t{1} << (width - 1);
  const auto number = [&](uint64_t value) { return b.constant_bits(type, value); };
  if (is_float(key.dtype)) {
    // Larger magnitudes of negative numbers are less.
    const Value is_negative = b.binary(Op::kNe, b.bit_and(bits, number(sign)), number(0));
    bits = b.bit_xor(bits, b.select(is_negative, number(all), number(sign)));
  } else if (is_signed_integer(key.dtype)) {
    bits = b.bit_and(b.bit_xor(bits, number(sign)), number(all));
  }
  return key.is_descending ? b.bit_xor(bits, number(all)) : bits;
}

}  // namespace hekla::lower
