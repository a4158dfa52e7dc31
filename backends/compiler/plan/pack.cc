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

// ---- structures, by their fields, so that none gets a field that is forgotten here

struct Anything {
  template <typename T>
  operator T() const;
};

template <typename T, typename... Fields>
consteval size_t field_count() {
  if constexpr (requires { T{Fields{}..., Anything{}}; }) {
    return field_count<T, Fields..., Anything>();
  } else {
    return sizeof...(Fields);
  }
}

// each(field) for the fields of a plain structure in their order.
template <typename T>
void for_each_field(T& value, const auto& each) {
  constexpr size_t kCount = field_count<std::remove_const_t<T>>();
  const auto all = [&](auto&... fields) { (each(fields), ...); };
  if constexpr (kCount == 1) {
    auto& [a] = value;
    all(a);
  } else if constexpr (kCount == 2) {
    auto& [a, b] = value;
    all(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = value;
    all(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = value;
    all(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = value;
    all(a, b, c, d, e);
  } else if constexpr (kCount == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    all(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 6) {
    auto& [a, b, c, d, e, f] = value;
    all(a, b, c, d, e, f);
  } else if constexpr (kCount == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    all(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kCount == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    all(a, b, c, d, e, f, g, h, i, j);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = value;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  }
}

// ---- what is to be right of some values, and types that are more than their fields

void check_read(Reader&, const auto&) {}

void check_read(Reader& a, const Slice& slice) {
  if (slice.space > Slice::Space::kLaunch) a.fail();
}

void check_read(Reader& a, const DType& dtype) {
  if (dtype == DType::kInvalid || static_cast<int>(dtype) >= kDTypeCount) a.fail();
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
    if (inst.op > kernel::kLastOp || !is_type(inst.type) || !are_values(inst.arguments) ||
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
    // Parents come first, so no region is inside of itself.
    if (region.parent < -1 || region.parent >= static_cast<int32_t>(&region - regions.data()) ||
        !are_values(region.parameters) || !are_values(region.instructions) ||
        !are_values(region.yields)) {
      return false;
    }
  }
  return !regions.empty() && is_type(kernel.index_type);
}

void check_read(Reader& a, const kernel::Kernel& kernel) {
  if (!a.is_ok() || !is_in_range(kernel, kernel.body.instructions(), kernel.body.regions()) ||
      !kernel::verify(kernel.body).ok()) {
    a.fail();
  }
}

// The value is written, or read.
template <typename Archive, typename T>
void code(Archive& a, T& value);

template <typename Archive, typename List>
void code_list(Archive& a, List& list) {
  if constexpr (Archive::kWrites) {
    a.number(list.size());
  } else {
    list.resize(a.count());
  }
  for (auto& element : list) code(a, element);
}

void code_body(Writer& a, const kernel::Function& body) {
  code_list(a, body.instructions());
  code_list(a, body.regions());
}

void code_body(Reader& a, kernel::Function& body) {
  std::vector<kernel::Instruction> instructions;
  std::vector<kernel::RegionBody> regions;
  code_list(a, instructions);
  code_list(a, regions);
  body = kernel::Function(std::move(instructions), std::move(regions));
}

void code_text(Writer& a, const std::string& text) {
  a.number(text.size());
  a.bytes(text.data(), text.size());
}

void code_text(Reader& a, std::string& text) {
  text.resize(a.count());
  a.bytes(text.data(), text.size());
}

void code_array(Writer& a, const HostArray& array) {
  const DType dtype = array.dtype();
  code(a, dtype);
  code_list(a, array.dims());
  a.bytes(array.data(), static_cast<size_t>(array.size_bytes()));
}

void code_array(Reader& a, HostArray& array) {
  DType dtype = DType::kInvalid;
  Dims dims;
  code(a, dtype);
  code_list(a, dims);
  if (!a.is_ok()) return;
  const Result<int64_t> bytes = checked_bytes(dtype, dims);
  if (!bytes.ok() || static_cast<uint64_t>(*bytes) > a.left()) return a.fail();
  Result<HostArray> made = HostArray::allocate(dtype, std::move(dims), false);
  if (!made.ok()) return a.fail();
  array = *std::move(made);
  a.bytes(array.mutable_data(), static_cast<size_t>(*bytes));
}

// Steps with a program for the evaluator are not written.
template <typename What>
constexpr bool kHasProgram = requires(What what) {
  what.program;
};

// A step is the number of its type, its fields and its origin.
template <typename What>
void code_type(Writer& a, const What& what) {
  if constexpr (kHasProgram<What>) {
    a.fail();
  } else {
    code(a, what);
  }
}

void code_step(Writer& a, const Step& step) {
  a.number(step.what.index());
  std::visit([&](const auto& what) { code_type(a, what); }, step.what);
  static const ir::LocationParts kUnknown;
  const ir::LocationParts& origin = step.origin == nullptr ? kUnknown : *step.origin;
  code_text(a, origin.name);
  code_text(a, origin.place);
}

template <size_t kType = 0>
void read_type(Reader& a, size_t type, Step& step) {
  if constexpr (kType == std::variant_size_v<decltype(step.what)>) {
    a.fail();
  } else if (type != kType) {
    read_type<kType + 1>(a, type, step);
  } else if constexpr (kHasProgram<std::variant_alternative_t<kType, decltype(step.what)>>) {
    a.fail();
  } else {
    code(a, step.what.template emplace<kType>());
  }
}

void code_step(Reader& a, Step& step) {
  size_t type = 0;
  a.number(type);
  read_type(a, type, step);
  ir::LocationParts origin;
  code_text(a, origin.name);
  code_text(a, origin.place);
  if (!origin.name.empty() || !origin.place.empty()) {
    step.origin = std::make_shared<const ir::LocationParts>(std::move(origin));
  }
}

void code_steps(Writer& a, const Steps& steps) { code_list(a, steps); }

void code_steps(Reader& a, Steps& steps) {
  constexpr int kDeepest = 256;
  if (++a.depth > kDeepest) return a.fail();
  code_list(a, steps);
  --a.depth;
}

template <typename T>
constexpr bool kIsList = false;
template <typename Element>
constexpr bool kIsList<std::vector<Element>> = true;

template <typename Archive, typename T>
void code(Archive& a, T& value) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain>) {
    a.number(value);
  } else if constexpr (std::is_same_v<Plain, std::string>) {
    code_text(a, value);
  } else if constexpr (std::is_same_v<Plain, Steps>) {
    code_steps(a, value);
  } else if constexpr (std::is_same_v<Plain, Step>) {
    code_step(a, value);
  } else if constexpr (std::is_same_v<Plain, kernel::Function>) {
    code_body(a, value);
  } else if constexpr (std::is_same_v<Plain, HostArray>) {
    code_array(a, value);
  } else if constexpr (kIsList<Plain>) {
    code_list(a, value);
  } else {
    for_each_field(value, [&](auto& field) { code(a, field); });
  }
  if constexpr (!Archive::kWrites) check_read(a, value);
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
