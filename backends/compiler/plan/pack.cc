// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/pack.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace hekla::plan {
namespace {

// What is written and what is read are said once: `code` of each type goes through its fields with
// a Writer or a Reader. Numbers are LEB128, signed ones with the sign in the lowest bit.

class Writer {
 public:
  static constexpr bool kWrites = true;

  template <typename T>
  void number(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      unsigned_number(static_cast<uint64_t>(value));
    } else if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      unsigned_number((static_cast<uint64_t>(wide) << 1) ^ static_cast<uint64_t>(wide >> 63));
    } else {
      unsigned_number(static_cast<uint64_t>(value));
    }
  }
  void bytes(const void* data, size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), first, first + size);
  }
  void fail() { is_ok_ = false; }
  bool is_ok() const { return is_ok_; }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void unsigned_number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<std::byte>(value | 0x80));
    out_.push_back(static_cast<std::byte>(value));
  }

  std::vector<std::byte> out_;
  bool is_ok_ = true;
};

// After the first mistake everything reads as nothing.
class Reader {
 public:
  static constexpr bool kWrites = false;

  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <typename T>
  void number(T& value) {
    const uint64_t bits = unsigned_number();
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(bits);
      if (static_cast<uint64_t>(value) != bits) fail();
    } else if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>((bits >> 1) ^ (~(bits & 1) + 1));
      value = static_cast<T>(wide);
      if (value != wide) fail();
    } else {
      value = static_cast<T>(bits);
      if (static_cast<uint64_t>(value) != bits) fail();
    }
  }
  void bytes(void* data, size_t size) {
    if (size > left_.size()) return fail();
    if (size > 0) std::memcpy(data, left_.data(), size);
    left_ = left_.subspan(size);
  }
  // A number of things that take a byte each at least.
  size_t count() {
    const uint64_t count = unsigned_number();
    if (count > left_.size()) fail();
    return is_ok_ ? static_cast<size_t>(count) : 0;
  }
  void fail() {
    is_ok_ = false;
    left_ = {};
  }
  bool is_ok() const { return is_ok_; }
  size_t left() const { return left_.size(); }
  // Steps stand inside of steps.
  int depth = 0;

 private:
  uint64_t unsigned_number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto next = static_cast<uint64_t>(left_.front());
      left_ = left_.subspan(1);
      value |= (next & 0x7f) << shift;
      if (next < 0x80) return value;
    }
    fail();
    return 0;
  }

  std::span<const std::byte> left_;
  bool is_ok_ = true;
};

// A T to write, or to read into.
template <typename Archive, typename T>
using Ref = std::conditional_t<Archive::kWrites, const T&, T&>;

template <typename Archive, typename List, typename Each>
void code_list(Archive& a, List& list, const Each& each) {
  if constexpr (Archive::kWrites) {
    a.number(list.size());
  } else {
    list.resize(a.count());
  }
  for (auto& element : list) each(element);
}

template <typename Archive, typename List>
void code_numbers(Archive& a, List& list) {
  code_list(a, list, [&](auto& value) { a.number(value); });
}

template <typename Archive>
void code_text(Archive& a, Ref<Archive, std::string> text) {
  if constexpr (Archive::kWrites) {
    a.number(text.size());
  } else {
    text.resize(a.count());
  }
  a.bytes(text.data(), text.size());
}

// Structures are taken apart by structured bindings, so that none gets a field that is forgotten
// here.

template <typename Archive>
void code(Archive& a, Ref<Archive, Slice> slice) {
  auto& [space, index, offset, bytes] = slice;
  a.number(space);
  a.number(index);
  a.number(offset);
  a.number(bytes);
  if (space > Slice::Space::kConstant) a.fail();
}

template <typename Archive>
void code(Archive& a, Ref<Archive, kernel::Instruction> inst) {
  auto& [op, type, region, immediate, arguments] = inst;
  a.number(op);
  a.number(type);
  a.number(region);
  a.number(immediate);
  code_numbers(a, arguments);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, kernel::RegionBody> region) {
  auto& [parent, parameters, instructions, yields] = region;
  a.number(parent);
  code_numbers(a, parameters);
  code_numbers(a, instructions);
  code_numbers(a, yields);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, kernel::KernelOperand> operand) {
  auto& [bytes, is_read, is_written, is_pointwise] = operand;
  a.number(bytes);
  a.number(is_read);
  a.number(is_written);
  a.number(is_pointwise);
}

// What kernel::verify takes for granted: numbers name something.
bool is_in_range(const kernel::Kernel& kernel, const std::vector<kernel::Instruction>& instructions,
                 const std::vector<kernel::RegionBody>& regions) {
  const auto is_type = [](kernel::ScalarType type) { return type <= kernel::ScalarType::kF64; };
  const auto are_values = [&](const std::vector<kernel::Value>& values) {
    return std::all_of(values.begin(), values.end(), [&](kernel::Value v) {
      return v >= 0 && static_cast<size_t>(v) < instructions.size();
    });
  };
  for (const kernel::Instruction& inst : instructions) {
    if (inst.op > kernel::Op::kForResult || !is_type(inst.type) || !are_values(inst.arguments) ||
        inst.region < 0 || static_cast<size_t>(inst.region) >= regions.size()) {
      return false;
    }
    // A loop's region comes after the one that it stands in.
    if (inst.op == kernel::Op::kFor && (inst.immediate >= regions.size() ||
                                        inst.immediate <= static_cast<uint64_t>(inst.region))) {
      return false;
    }
    if (inst.op == kernel::Op::kLoad || inst.op == kernel::Op::kStore) {
      const int32_t operand = kernel::unpack_access(inst.immediate).operand;
      if (operand < 0 || static_cast<size_t>(operand) >= kernel.operands.size()) return false;
    }
  }
  for (const kernel::RegionBody& region : regions) {
    if (region.parent < -1 || region.parent >= static_cast<int32_t>(regions.size()) ||
        !are_values(region.parameters) || !are_values(region.instructions) ||
        !are_values(region.yields)) {
      return false;
    }
  }
  return !regions.empty() && is_type(kernel.index_type);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, kernel::Kernel> kernel) {
  auto& [name, grid, index_type, operands, body] = kernel;
  code_text(a, name);
  code_numbers(a, grid);
  a.number(index_type);
  code_list(a, operands, [&](auto& operand) { code(a, operand); });
  if constexpr (Archive::kWrites) {
    code_list(a, body.instructions(), [&](auto& inst) { code(a, inst); });
    code_list(a, body.regions(), [&](auto& region) { code(a, region); });
  } else {
    std::vector<kernel::Instruction> instructions;
    std::vector<kernel::RegionBody> regions;
    code_list(a, instructions, [&](auto& inst) { code(a, inst); });
    code_list(a, regions, [&](auto& region) { code(a, region); });
    if (!a.is_ok() || !is_in_range(kernel, instructions, regions)) return a.fail();
    body = kernel::Function(std::move(instructions), std::move(regions));
    if (!kernel::verify(body).ok()) a.fail();
  }
}

template <typename Archive>
void code(Archive& a, Ref<Archive, kernel::Contraction> contraction) {
  auto& [lhs_dtype, rhs_dtype, lhs_elements, rhs_elements, out_elements, lhs_offset, rhs_offset,
         out_offset, batch, rows, columns, depth, windows, chains] = contraction;
  a.number(lhs_dtype);
  a.number(rhs_dtype);
  for (auto* number :
       {&lhs_elements, &rhs_elements, &out_elements, &lhs_offset, &rhs_offset, &out_offset}) {
    a.number(*number);
  }
  for (auto* axes : {&batch, &rows, &columns, &depth}) {
    code_list(a, *axes, [&](auto& axis) {
      auto& [size, lhs, rhs, out] = axis;
      for (auto* number : {&size, &lhs, &rhs, &out}) a.number(*number);
    });
  }
  code_list(a, windows, [&](auto& window) {
    auto& [row, tap, stride, dilation, low, extent, base_dilation, lhs] = window;
    a.number(row);
    a.number(tap);
    for (auto* number : {&stride, &dilation, &low, &extent, &base_dilation, &lhs}) {
      a.number(*number);
    }
  });
  a.number(chains);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, HostArray> array) {
  if constexpr (Archive::kWrites) {
    a.number(array.dtype());
    code_numbers(a, array.dims());
    a.bytes(array.data(), static_cast<size_t>(array.size_bytes()));
  } else {
    DType dtype = DType::kInvalid;
    Dims dims;
    a.number(dtype);
    code_numbers(a, dims);
    const bool is_dtype = dtype != DType::kInvalid && static_cast<int>(dtype) < kDTypeCount;
    if (!a.is_ok() || !is_dtype) return a.fail();
    const Result<int64_t> bytes = checked_bytes(dtype, dims);
    if (!bytes.ok() || static_cast<uint64_t>(*bytes) > a.left()) return a.fail();
    Result<HostArray> made = HostArray::allocate(dtype, std::move(dims), false);
    if (!made.ok()) return a.fail();
    array = *std::move(made);
    a.bytes(array.mutable_data(), static_cast<size_t>(*bytes));
  }
}

template <typename Archive>
void code(Archive& a, Ref<Archive, Steps> steps);

template <typename Archive>
void code(Archive& a, Ref<Archive, KernelStep> step) {
  auto& [kernel, operands] = step;
  a.number(kernel);
  code_list(a, operands, [&](auto& slice) { code(a, slice); });
}

template <typename Archive>
void code(Archive& a, Ref<Archive, ContractionStep> step) {
  auto& [contraction, lhs, rhs, out] = step;
  a.number(contraction);
  for (auto* slice : {&lhs, &rhs, &out}) code(a, *slice);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, CopyStep> step) {
  auto& [from, to] = step;
  code(a, from);
  code(a, to);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, LoopStep> step) {
  auto& [condition, predicate, body, trip_count] = step;
  code(a, condition);
  code(a, predicate);
  code(a, body);
  a.number(trip_count);
}

template <typename Archive>
void code(Archive& a, Ref<Archive, BranchStep> step) {
  auto& [selector, branches] = step;
  code(a, selector);
  code_list(a, branches, [&](auto& steps) { code(a, steps); });
}

template <typename Archive>
void code(Archive& a, Ref<Archive, RowsStep> step) {
  auto& [rows, steps, row_bytes, scratch] = step;
  a.number(rows);
  code(a, steps);
  a.number(row_bytes);
  code_list(a, scratch, [&](auto& slice) { code(a, slice); });
}

// What stands behind a pointer in a step.
template <typename What>
struct Pointed {
  using Type = void;
};
template <typename What>
struct Pointed<std::shared_ptr<const What>> {
  using Type = What;
};

// Reads the alternative number `kind` of a step.
template <size_t kAlternative = 0>
void read_alternative(Reader& a, size_t kind, Step& step) {
  if constexpr (kAlternative == std::variant_size_v<decltype(step.what)>) {
    a.fail();
  } else if (kind != kAlternative) {
    read_alternative<kAlternative + 1>(a, kind, step);
  } else {
    using What = std::variant_alternative_t<kAlternative, decltype(step.what)>;
    using Inner = typename Pointed<What>::Type;
    if constexpr (std::is_same_v<What, HostStep>) {
      a.fail();
    } else if constexpr (std::is_void_v<Inner>) {
      code(a, step.what.template emplace<kAlternative>());
    } else {
      auto inner = std::make_shared<Inner>();
      code(a, *inner);
      step.what = std::shared_ptr<const Inner>(std::move(inner));
    }
  }
}

template <typename Archive>
void code(Archive& a, Ref<Archive, Step> step) {
  size_t kind = step.what.index();
  a.number(kind);
  if constexpr (!Archive::kWrites) {
    read_alternative(a, kind, step);
  } else {
    std::visit(
        [&](const auto& what) {
          using What = std::decay_t<decltype(what)>;
          if constexpr (std::is_same_v<What, HostStep>) {
            a.fail();
          } else if constexpr (std::is_void_v<typename Pointed<What>::Type>) {
            code(a, what);
          } else {
            code(a, *what);
          }
        },
        step.what);
  }
}

template <typename Archive>
void code(Archive& a, Ref<Archive, Steps> steps) {
  if constexpr (!Archive::kWrites) {
    constexpr int kDeepest = 256;
    if (++a.depth > kDeepest) return a.fail();
  }
  code_list(a, steps, [&](auto& step) { code(a, step); });
  if constexpr (!Archive::kWrites) --a.depth;
}

template <typename Archive>
void code(Archive& a, Ref<Archive, LaunchPlan> plan) {
  auto& [kernels, contractions, constants, input_bytes, output_bytes, output_input, arena_bytes,
         steps] = plan;
  code_list(a, kernels, [&](auto& kernel) { code(a, kernel); });
  code_list(a, contractions, [&](auto& contraction) { code(a, contraction); });
  code_list(a, constants, [&](auto& array) { code(a, array); });
  for (auto* numbers : {&input_bytes, &output_bytes}) code_numbers(a, *numbers);
  code_numbers(a, output_input);
  a.number(arena_bytes);
  code(a, steps);
}

}  // namespace

std::optional<std::vector<std::byte>> pack(const LaunchPlan& plan) {
  Writer writer;
  code(writer, plan);
  if (!writer.is_ok()) return std::nullopt;
  return writer.take();
}

Result<LaunchPlan> unpack(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  LaunchPlan plan;
  code(reader, plan);
  if (!reader.is_ok() || reader.left() != 0) {
    return data_loss("{} bytes are no launch plan of this build", bytes.size());
  }
  return plan;
}

}  // namespace hekla::plan
