// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/kernel_maker.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

namespace hekla::lower {

using kernel::Op;
using kernel::ScalarType;

Temporary add_temporary(LoweredSequence& sequence, DType dtype, int64_t elements) {
  sequence.temporaries.push_back(elements * dtype_bytes(dtype));
  return {static_cast<int32_t>(sequence.temporaries.size() - 1), dtype, elements};
}

Table add_table(LoweredSequence& sequence, HostArray values) {
  const Table table{static_cast<int32_t>(sequence.constants.size()), values.dtype(), values.size()};
  sequence.constants.push_back(std::move(values));
  return table;
}

Table add_index_table(LoweredSequence& sequence, DType dtype, int64_t number) {
  const auto narrow = static_cast<int32_t>(number);
  return add_table(sequence, dtype == DType::kI64
                                 ? HostArray::from<int64_t>(dtype, {1}, std::span(&number, 1))
                                 : HostArray::from<int32_t>(dtype, {1}, std::span(&narrow, 1)));
}

int64_t largest_inlined(const std::vector<const ir::Value*>& values, const InMemory& in_memory) {
  int64_t largest = 1;
  std::unordered_set<const ir::Value*> seen;
  std::vector<const ir::Value*> open = values;
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    if (!seen.insert(&value).second) continue;
    if (value.type().is_static_tensor()) {
      largest = std::max(largest, element_count(value.type().dims()));
    }
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || in_memory(value)) continue;
    open.insert(open.end(), op->operands().begin(), op->operands().end());
  }
  return largest;
}

int64_t largest_inlined(const ir::Operation& op, const InMemory& in_memory) {
  return largest_inlined({op.operands().begin(), op.operands().end()}, in_memory);
}

bool is_wide_index(int64_t largest) { return largest >= std::numeric_limits<int32_t>::max() / 8; }

KernelMaker::KernelMaker(std::string name, const std::vector<int64_t>& grid, int64_t largest,
                         const InMemory& in_memory)
    : name_(std::move(name)),
      grid_(without_ones(grid)),
      in_memory_(in_memory),
      b_(static_cast<int>(grid_.size()),
         is_wide_index(largest) ? ScalarType::kI64 : ScalarType::kI32),
      emitter_(b_, [this](const ir::Value& value) { return operand_of(value); }) {
  int next = 0;
  for (int64_t size : grid) {
    if (size != 1) b_.set_grid_size(next, size);
    dimensions_.push_back(size == 1 ? -1 : next);
    indices_.push_back(size == 1 ? b_.index(0) : b_.grid_index(next++));
  }
}

std::vector<int64_t> KernelMaker::without_ones(const std::vector<int64_t>& grid) {
  std::vector<int64_t> sizes;
  for (int64_t size : grid) {
    if (size != 1) sizes.push_back(size);
  }
  return sizes;
}

DType KernelMaker::index_dtype() const {
  return b_.index_type() == ScalarType::kI32 ? DType::kI32 : DType::kI64;
}

int KernelMaker::operand(const BoundOperand& bound, int64_t bytes) {
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i] == bound) return static_cast<int>(i);
  }
  operands_.push_back(bound);
  bytes_.push_back(bytes);
  is_own_.push_back(false);
  is_read_back_.push_back(false);
  return static_cast<int>(operands_.size() - 1);
}

std::optional<int> KernelMaker::operand_of(const ir::Value& value) {
  if (value.defining_op() != nullptr && !in_memory_(value)) return std::nullopt;
  const ir::Type& type = value.type();
  return operand({&value, false}, element_count(type.dims()) * dtype_bytes(type.dtype()));
}

Element KernelMaker::from_team(const Element& e, size_t dim, int64_t distance) {
  const kernel::Exchange exchange{dimensions_[dim], static_cast<uint32_t>(distance)};
  return {b_.shuffle_xor(e.re, exchange),
          e.im == kernel::kNoValue ? e.im : b_.shuffle_xor(e.im, exchange)};
}

Value KernelMaker::smaller(Value x, Value y) {
  return b_.select(b_.binary(kernel::Op::kLtS, x, y), x, y);
}

Elements KernelMaker::choose(Value condition, const Elements& if_true, const Elements& if_false) {
  Elements chosen;
  for (size_t i = 0; i < if_true.size(); ++i) {
    chosen.push_back(kernel::select(b_, condition, if_true[i], if_false[i]));
  }
  return chosen;
}

Element KernelMaker::load(const Temporary& from, Value element) {
  const int number = operand({nullptr, false, from.index}, from.elements * dtype_bytes(from.dtype));
  return kernel::load_element(b_, from.dtype, number, element);
}

Element KernelMaker::load(const Table& from, Value element) {
  const int number =
      operand({nullptr, false, -1, from.index}, from.elements * dtype_bytes(from.dtype));
  return kernel::load_element(b_, from.dtype, number, element);
}

void KernelMaker::store(const Temporary& to, Value element, const Element& value) {
  const int number = operand({nullptr, true, to.index}, to.elements * dtype_bytes(to.dtype));
  kernel::store_element(b_, to.dtype, number, element, value);
}

void KernelMaker::store(const ir::Value& to, Value element, const Element& value) {
  const ir::Type& type = to.type();
  const int number = operand({&to, true}, element_count(type.dims()) * dtype_bytes(type.dtype()));
  kernel::store_element(b_, type.dtype(), number, element, value);
}

Element KernelMaker::load_own(const ir::Value& from, Value element) {
  const ir::Type& type = from.type();
  const int number =
      operand({&from, false}, element_count(type.dims()) * dtype_bytes(type.dtype()));
  is_own_[static_cast<size_t>(number)] = true;
  return kernel::load_element(b_, type.dtype(), number, element);
}

Element KernelMaker::load_back(const ir::Value& from, Value element) {
  const ir::Type& type = from.type();
  const int number = operand({&from, true}, element_count(type.dims()) * dtype_bytes(type.dtype()));
  is_read_back_[static_cast<size_t>(number)] = true;
  b_.set_updated(number);
  return kernel::load_element(b_, type.dtype(), number, element);
}

Value KernelMaker::load_word(const ir::Value& from, Value word) {
  const ir::Type& type = from.type();
  const int number = operand({&from}, element_count(type.dims()) * dtype_bytes(type.dtype()));
  return b_.load(ScalarType::kI32, {number, 4, false}, word);
}

void KernelMaker::store_word(const ir::Value& to, Value at, Value bits, int64_t bytes) {
  const ir::Type& type = to.type();
  const int number = operand({&to, true}, element_count(type.dims()) * dtype_bytes(type.dtype()));
  b_.store({number, static_cast<uint8_t>(bytes == 8 ? 4 : bytes), false}, at, bits);
}

void KernelMaker::when(Value condition, const std::function<void()>& body) {
  const Value count = b_.convert(Op::kBoolToInt, b_.index_type(), condition);
  loop(count, {}, {}, [&](Value, const Elements&) {
    body();
    return Elements();
  });
}

Result<LoweredKernel> KernelMaker::finish(const LowerOptions& options) {
  HEKLA_RETURN_IF_ERROR(emitter_.status());
  if (b_.size() > options.max_instructions) {
    return resource_exhausted("a kernel of {} would have {} scalar instructions; the limit is {}",
                              name_, b_.size(), options.max_instructions);
  }
  LoweredKernel lowered;
  lowered.kernel.name = std::move(name_);
  lowered.kernel.grid = std::move(grid_);
  lowered.kernel.index_type = b_.index_type();
  lowered.kernel.body = b_.finish();
  for (size_t i = 0; i < operands_.size(); ++i) {
    const bool is_output = operands_[i].is_output;
    lowered.kernel.operands.push_back(
        {bytes_[i], !is_output || is_read_back_[i], is_output, is_own_[i]});
  }
  lowered.operands = std::move(operands_);
  return lowered;
}

}  // namespace hekla::lower
