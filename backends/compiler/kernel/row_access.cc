// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/row_access.h"

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>

namespace hekla::kernel {
namespace {

// Larger numbers are not followed, so that nothing here overflows.
constexpr int64_t kLargest = int64_t{1} << 40;

// sum over leading dimensions of slope * index, and something in [low, high].
struct Form {
  std::vector<int64_t> slopes;
  int64_t low = 0;
  int64_t high = 0;
  bool is_flat() const {
    return std::all_of(slopes.begin(), slopes.end(), [](int64_t s) { return s == 0; });
  }
};

// Elements of a row when `slopes` walk through rows of `sizes` in row-major order; 0 if they do
// not.
int64_t row_stride(std::span<const int64_t> slopes, std::span<const int64_t> sizes) {
  int64_t stride = 0;
  int64_t inner = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (stride == 0) stride = slopes[d];
    if (stride <= 0 || slopes[d] != stride * inner) return 0;
    inner *= sizes[d];
  }
  return stride;
}

class Analysis {
 public:
  Analysis(const Kernel& kernel, const RowCut& cut) : kernel_(kernel), f_(kernel.body) {
    const auto& grid = kernel.grid;
    for (size_t d = 0; d < cut.leading; ++d) sizes_.push_back(grid[d]);
    if (cut.parts > 1) sizes_.push_back(cut.parts);
    const auto& parameters = f_.body().parameters;
    for (size_t d = 0; d < parameters.size(); ++d) {
      Form form{std::vector<int64_t>(sizes_.size(), 0), 0, 0};
      if (d < cut.leading) {
        form.slopes[d] = 1;
      } else if (d == cut.leading && cut.parts > 1) {
        form.slopes[d] = grid[d] / cut.parts;
        form.high = form.slopes[d] - 1;
      } else {
        form.high = grid[d] - 1;
      }
      forms_.emplace(parameters[d], std::move(form));
    }
    for (Value v = 0; v < static_cast<Value>(f_.size()); ++v) {
      if (f_[v].op != Op::kFor) continue;
      const Instruction& count = f_[f_[v].arguments[0]];
      const auto region = static_cast<int32_t>(f_[v].immediate);
      std::optional<Form> iteration;
      if (const std::optional<int64_t> trips = constant(f_[v].arguments[0]); trips && *trips >= 1) {
        iteration = flat(0, *trips - 1);
      } else if (count.op == Op::kBoolToInt) {
        iteration = flat(0, 0);
      }
      forms_.emplace(f_.region(region).parameters[0], std::move(iteration));
    }
  }

  std::vector<int64_t> run() {
    std::vector<int64_t> bytes(kernel_.operands.size(), -1);
    for (Value v = 0; v < static_cast<Value>(f_.size()); ++v) {
      if (f_[v].op != Op::kLoad && f_[v].op != Op::kStore) continue;
      const Access access = unpack_access(f_[v].immediate);
      int64_t& known = bytes[static_cast<size_t>(access.operand)];
      if (known == 0) continue;
      const int64_t here = stride_of(form(f_[v].arguments[0])) * access.bytes;
      known = known < 0 || known == here ? here : 0;
    }
    for (int64_t& each : bytes) each = std::max<int64_t>(each, 0);
    return bytes;
  }

 private:
  Form flat(int64_t low, int64_t high) const {
    return {std::vector<int64_t>(sizes_.size(), 0), low, high};
  }

  int64_t stride_of(const std::optional<Form>& form) const {
    if (!form) return 0;
    const int64_t stride = row_stride(form->slopes, sizes_);
    return form->low >= 0 && form->high < stride ? stride : 0;
  }

  std::optional<int64_t> constant(Value v) const {
    const Instruction& inst = f_[v];
    if (inst.op != Op::kConstant || !is_integer(inst.type)) return std::nullopt;
    const int64_t value = inst.type == ScalarType::kI32 ? static_cast<int32_t>(inst.immediate)
                                                        : static_cast<int64_t>(inst.immediate);
    if (value > kLargest || value < -kLargest) return std::nullopt;
    return value;
  }

  const std::optional<Form>& form(Value v) {
    if (const auto it = forms_.find(v); it != forms_.end()) return it->second;
    std::optional<Form> found = find_form(v);
    if (found && may_wrap(*found, f_.type(v))) found.reset();
    return forms_[v] = std::move(found);
  }

  bool may_wrap(const Form& form, ScalarType type) const {
    const auto is_large = [](int64_t x) { return x > kLargest || x < -kLargest; };
    if (is_large(form.low) || is_large(form.high)) return true;
    __int128 low = form.low, high = form.high;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      if (is_large(form.slopes[d]) || is_large(sizes_[d])) return true;
      const __int128 most = static_cast<__int128>(form.slopes[d]) * (sizes_[d] - 1);
      (most < 0 ? low : high) += most;
    }
    const int64_t largest =
        type == ScalarType::kI32 ? std::numeric_limits<int32_t>::max() : kLargest;
    return high > largest || low < -largest;
  }

  std::optional<Form> find_form(Value v) {
    const Instruction& inst = f_[v];
    const auto& a = inst.arguments;
    switch (inst.op) {
      case Op::kConstant:
        if (const auto value = constant(v)) return flat(*value, *value);
        return std::nullopt;
      case Op::kAdd:
      case Op::kSub: {
        if (!is_integer(inst.type)) return std::nullopt;
        std::optional<Form> x = form(a[0]);
        const std::optional<Form> y = form(a[1]);
        if (!x || !y) return std::nullopt;
        const bool adds = inst.op == Op::kAdd;
        for (size_t d = 0; d < x->slopes.size(); ++d) {
          x->slopes[d] += adds ? y->slopes[d] : -y->slopes[d];
        }
        x->low += adds ? y->low : -y->high;
        x->high += adds ? y->high : -y->low;
        return x;
      }
      case Op::kMul:
        if (const auto c = constant(a[1])) return times(form(a[0]), *c);
        return std::nullopt;
      case Op::kShl:
        if (const auto c = constant(a[1]); c && *c < 31) return times(form(a[0]), int64_t{1} << *c);
        return std::nullopt;
      case Op::kDivS:
      case Op::kDivU:
        if (const auto c = constant(a[1])) return divided(form(a[0]), *c);
        return std::nullopt;
      case Op::kShrS:
      case Op::kShrU:
        if (const auto c = constant(a[1]); c && *c < 31) {
          return divided(form(a[0]), int64_t{1} << *c);
        }
        return std::nullopt;
      case Op::kRemS:
      case Op::kRemU:
        if (const auto c = constant(a[1])) return remainder(form(a[0]), *c);
        return std::nullopt;
      case Op::kAnd:
        if (const auto c = constant(a[1]); c && *c > 0 && (*c & (*c + 1)) == 0) {
          return remainder(form(a[0]), *c + 1);
        }
        return std::nullopt;
      case Op::kSelect: {
        std::optional<Form> x = form(a[1]);
        const std::optional<Form> y = form(a[2]);
        if (!x || !y || x->slopes != y->slopes) return std::nullopt;
        x->low = std::min(x->low, y->low);
        x->high = std::max(x->high, y->high);
        return x;
      }
      case Op::kSignExtend:
        return form(a[0]);
      case Op::kZeroExtend:
        return is_natural(form(a[0])) ? form(a[0]) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  static bool is_natural(const std::optional<Form>& x) {
    return x && x->low >= 0 &&
           std::all_of(x->slopes.begin(), x->slopes.end(), [](int64_t s) { return s >= 0; });
  }

  std::optional<Form> times(std::optional<Form> x, int64_t c) const {
    if (!x || c < 0) return std::nullopt;
    // Both factors are at most 2^40.
    const auto multiply = [c](int64_t& value) {
      const __int128 product = static_cast<__int128>(value) * c;
      value = product > kLargest    ? kLargest + 1
              : product < -kLargest ? -kLargest - 1
                                    : static_cast<int64_t>(product);
    };
    for (int64_t& slope : x->slopes) multiply(slope);
    multiply(x->low);
    multiply(x->high);
    return x;
  }

  // Whether the part that depends on the row is a multiple of c, and nothing is negative.
  static bool is_divisible(const std::optional<Form>& x, int64_t c) {
    return c > 0 && is_natural(x) &&
           std::all_of(x->slopes.begin(), x->slopes.end(), [c](int64_t s) { return s % c == 0; });
  }

  static std::optional<Form> divided(std::optional<Form> x, int64_t c) {
    if (!is_divisible(x, c)) return std::nullopt;
    for (int64_t& slope : x->slopes) slope /= c;
    x->low /= c;
    x->high /= c;
    return x;
  }

  std::optional<Form> remainder(const std::optional<Form>& x, int64_t c) const {
    if (is_divisible(x, c)) return x->high < c ? flat(x->low, x->high) : flat(0, c - 1);
    if (c > 0 && is_natural(x)) return flat(0, c - 1);
    return std::nullopt;
  }

  const Kernel& kernel_;
  const Function& f_;
  std::vector<int64_t> sizes_;  // of the dimensions that number rows
  std::unordered_map<Value, std::optional<Form>> forms_;
};

}  // namespace

std::optional<RowCut> cut_rows(const std::vector<int64_t>& grid, int64_t rows) {
  if (rows < 1) return std::nullopt;
  RowCut cut;
  for (; rows > 1; ++cut.leading) {
    if (cut.leading == grid.size()) return std::nullopt;
    const int64_t size = grid[cut.leading];
    if (rows % size != 0) {
      if (size % rows != 0) return std::nullopt;
      cut.parts = rows;
      return cut;
    }
    rows /= size;
  }
  return cut;
}

std::optional<std::vector<int64_t>> row_bytes(const Kernel& kernel, int64_t rows) {
  if (kernel.points() == 0) return std::nullopt;
  const std::optional<RowCut> cut = cut_rows(kernel.grid, rows);
  if (!cut) return std::nullopt;
  return Analysis(kernel, *cut).run();
}

}  // namespace hekla::kernel
