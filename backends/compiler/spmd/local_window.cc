// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/local_window.h"

#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/folds.h"
#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

namespace {

// Operands of a concatenation that are put together by as many selections.
constexpr size_t kMaxJoined = 32;

int64_t ceil_divided(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

int64_t number_at(const ir::Operation& op, std::string_view name, size_t i, int64_t fallback) {
  const std::vector<int64_t> list = ir::int_list(op, name);
  return i < list.size() ? list[i] : fallback;
}

// Which dimension of an array a factor alone is; none where there is none.
std::optional<size_t> place_of(const ShardingRule::Tensor& dimensions, int64_t factor) {
  for (size_t d = 0; d < dimensions.size(); ++d) {
    if (dimensions[d] == ShardingRule::Dimension{factor}) return d;
  }
  return std::nullopt;
}

std::optional<size_t> index_of(const std::vector<int64_t>& list, size_t value) {
  const auto at = std::find(list.begin(), list.end(), static_cast<int64_t>(value));
  if (at == list.end()) return std::nullopt;
  return static_cast<size_t>(at - list.begin());
}

// How output o of an operation lies over its input, in which elements are `dilation` apart: it
// needs `extent` positions from o * stride - low on.
struct WindowForm {
  int64_t stride = 1;
  int64_t low = 0;
  int64_t extent = 1;
  int64_t dilation = 1;
};

class WindowReader {
 public:
  WindowReader(const ir::Operation& op, const ShardingRule& rule, const OpCut& cut,
               const PrimeMesh& mesh, const std::vector<ir::Type>& operands)
      : op_(op), rule_(rule), cut_(cut), mesh_(mesh), operands_(operands) {}

  std::optional<WindowReads> run() {
    for (int64_t factor : rule_.permutation) {
      if (!axes_of(factor).empty() && !exchange(factor)) return std::nullopt;
    }
    if (op_.code() == OpCode::kConvolution) {
      for (int64_t factor : rule_.reduction) {
        if (!axes_of(factor).empty() && !sum_window(factor)) return std::nullopt;
      }
    }
    return std::move(reads_);
  }

 private:
  const Axes& axes_of(int64_t factor) const { return cut_[static_cast<size_t>(factor)]; }
  int64_t size(size_t operand, size_t d) const { return operands_[operand].dims()[d]; }

  // Part j's positions begin at first[j].
  void add(size_t operand, size_t d, const Axes& axes, const std::vector<int64_t>& first,
           int64_t span, int64_t dilation = 1) {
    WindowRead read;
    read.operand = operand;
    read.span = span;
    read.dilation = dilation;
    read.halo.dimension = d;
    read.halo.axes = axes;
    read.halo.size = size(operand, d);
    for (int64_t position : first) {
      read.halo.starts.push_back(ceil_divided(position, dilation));
      read.phases.push_back(read.halo.starts.back() * dilation - position);
    }
    read.halo.length =
        read.is_plain() ? (span - 1 - read.phases[0]) / dilation + 1 : ceil_divided(span, dilation);
    reads_.push_back(std::move(read));
  }

  bool exchange(int64_t factor) {
    const std::optional<size_t> from = place_of(rule_.operands[0], factor);
    const std::optional<size_t> to = place_of(rule_.results[0], factor);
    if (!from || !to) return false;
    const int64_t made = op_.result(0)->type().dims()[*to];
    if (size(0, *from) == 0 || made == 0) return false;
    const Axes& axes = axes_of(factor);
    const int64_t parts = mesh_.parts(axes);
    const int64_t block = sharding::block_of(made, parts, 0).size;
    std::vector<int64_t> first;
    if (op_.code() == OpCode::kReverse) {
      for (int64_t part = 0; part < parts; ++part) first.push_back(made - (part + 1) * block);
      add(0, *from, axes, first, block);
      return true;
    }
    if (op_.code() == OpCode::kConcatenate) return join(*to, axes, block);
    if (op_.code() == OpCode::kSelectAndScatter) return select(*from, axes, block);
    if (is_roll(op_)) {
      const int64_t begin = ir::int_value(op_, kRollBegin);
      for (const int64_t turn : {int64_t{0}, made}) {
        first.clear();
        for (int64_t part = 0; part < parts; ++part) {
          first.push_back(part * block + begin - turn);
        }
        add(0, *from, axes, first, block);
      }
      return true;
    }
    if (running_fold(op_, *from, size(0, *from))) return true;
    const std::optional<WindowForm> form = form_of(*from);
    if (!form) return false;
    for (int64_t part = 0; part < parts; ++part) {
      first.push_back(part * block * form->stride - form->low);
    }
    const size_t arrays = op_.code() == OpCode::kReduceWindow ? op_.result_count() : 1;
    for (size_t i = 0; i < arrays; ++i) {
      add(i, *from, axes, first, (block - 1) * form->stride + form->extent, form->dilation);
      // What fills up the last blocks is made of nothing.
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t count = std::clamp<int64_t>(made - part * block, 0, block);
        const int64_t span = count == 0 ? 0 : (count - 1) * form->stride + form->extent;
        reads_.back().want(span);
      }
    }
    return true;
  }

  bool join(size_t d, const Axes& axes, int64_t block) {
    if (op_.operand_count() > kMaxJoined) return false;
    int64_t offset = 0;
    for (size_t i = 0; i < op_.operand_count(); ++i) {
      if (size(i, d) == 0) return false;
      std::vector<int64_t> first;
      for (int64_t part = 0; part < mesh_.parts(axes); ++part) {
        first.push_back(part * block - offset);
      }
      add(i, d, axes, first, block);
      offset += size(i, d);
    }
    return true;
  }

  // A block of the operand is touched by all windows that it is read for, and these go beyond it.
  bool select(size_t d, const Axes& axes, int64_t block) {
    const SelectForm form = select_form(op_, d);
    const int64_t sources = size(1, d);
    // Of windows that see nothing but padding, the specification says nothing.
    if (sources == 0 || form.low >= form.window ||
        (sources - 1) * form.stride - form.low >= size(0, d)) {
      return false;
    }
    std::vector<int64_t> windows, positions;
    int64_t count = 1;
    for (int64_t part = 0; part < mesh_.parts(axes); ++part) {
      const int64_t begin = part * block + form.low;
      windows.push_back(ceil_divided(begin - form.window + 1, form.stride));
      positions.push_back(windows.back() * form.stride - form.low);
      count = std::max(count, (begin + block - 1) / form.stride - windows.back() + 1);
    }
    add(0, d, axes, positions, (count - 1) * form.stride + form.window);
    add(1, d, axes, windows, count);
    return true;
  }

  // Of the operation's first operand.
  std::optional<WindowForm> form_of(size_t d) const {
    WindowForm form;
    switch (op_.code()) {
      case OpCode::kSlice:
        form.stride = number_at(op_, "strides", d, 1);
        form.low = -number_at(op_, "start_indices", d, 0);
        return form;
      case OpCode::kPad:
        form.low = number_at(op_, "edge_padding_low", d, 0);
        form.dilation = number_at(op_, "interior_padding", d, 0) + 1;
        return form;
      case OpCode::kReduceWindow: {
        const auto padding = ir::padding_of(op_);
        form.stride = number_at(op_, "window_strides", d, 1);
        form.low = padding.empty() ? 0 : padding[d][0];
        form.extent = (number_at(op_, "window_dimensions", d, 1) - 1) *
                          number_at(op_, "window_dilations", d, 1) +
                      1;
        form.dilation = number_at(op_, "base_dilations", d, 1);
        return form;
      }
      case OpCode::kConvolution: {
        const auto* n = op_.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
        const std::optional<size_t> k = index_of(n->input_spatial_dimensions, d);
        if (!k) return std::nullopt;
        const int64_t window = size(1, static_cast<size_t>(n->kernel_spatial_dimensions[*k]));
        form = conv_form(*k, window);
        return window == 0 ? std::nullopt : std::optional(form);
      }
      default:
        return std::nullopt;
    }
  }

  WindowForm conv_form(size_t k, int64_t window) const {
    const auto padding = ir::padding_of(op_);
    WindowForm form;
    form.stride = number_at(op_, "window_strides", k, 1);
    form.low = padding.empty() ? 0 : padding[k][0];
    form.extent = (window - 1) * number_at(op_, "rhs_dilation", k, 1) + 1;
    form.dilation = number_at(op_, "lhs_dilation", k, 1);
    return form;
  }

  // A convolution summed over parts of its window: each goes over what its part of the window
  // touches. Equal parts alone: else zeros would have to stand for what is not there, times
  // whatever is.
  bool sum_window(int64_t factor) {
    const auto* n = op_.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
    const std::optional<size_t> image = place_of(rule_.operands[0], factor);
    const std::optional<size_t> kernel = place_of(rule_.operands[1], factor);
    if (!image || !kernel) return false;
    const std::optional<size_t> k = index_of(n->input_spatial_dimensions, *image);
    if (!k) return static_cast<int64_t>(*image) == n->input_feature_dimension;
    const Axes& axes = axes_of(factor);
    const int64_t parts = mesh_.parts(axes);
    const int64_t window = size(1, *kernel);
    const int64_t made =
        op_.result(0)->type().dims()[static_cast<size_t>(n->output_spatial_dimensions[*k])];
    if (window == 0 || window % parts != 0 || size(0, *image) == 0 || made == 0) return false;
    const int64_t block = window / parts;
    const int64_t apart = number_at(op_, "rhs_dilation", *k, 1);
    const std::vector<bool> reversed = ir::bool_list(op_, "window_reversal");
    const bool is_reversed = *k < reversed.size() && reversed[*k];
    const WindowForm form = conv_form(*k, block);
    std::vector<int64_t> first;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = is_reversed ? window - (part + 1) * block : part * block;
      first.push_back(begin * apart - form.low);
    }
    add(0, *image, axes, first, (made - 1) * form.stride + form.extent, form.dilation);
    return true;
  }

  const ir::Operation& op_;
  const ShardingRule& rule_;
  const OpCut& cut_;
  const PrimeMesh& mesh_;
  const std::vector<ir::Type>& operands_;
  WindowReads reads_;
};

}  // namespace

SelectForm select_form(const ir::Operation& op, size_t d) {
  const auto padding = ir::padding_of(op);
  return {number_at(op, "window_dimensions", d, 1), number_at(op, "window_strides", d, 1),
          padding.empty() ? 0 : padding[d][0]};
}

bool WindowRead::is_plain() const {
  return phases[0] < span && std::all_of(phases.begin(), phases.end(),
                                         [this](int64_t phase) { return phase == phases[0]; });
}

void WindowRead::want(int64_t positions) {
  const int64_t behind = positions - phases[halo.wanted.size()];
  halo.wanted.push_back(std::min(halo.length, behind <= 0 ? 0 : (behind - 1) / dilation + 1));
}

int64_t WindowRead::padding_high() const {
  return is_plain() ? span - phases[0] - ((halo.length - 1) * dilation + 1) : 0;
}

bool may_read_windows(const ir::Operation& op, const ShardingRule& rule, int64_t factor) {
  if (op.code() == OpCode::kConvolution && contains(rule.reduction, factor)) {
    return place_of(rule.operands[0], factor) && place_of(rule.operands[1], factor);
  }
  if (!contains(rule.permutation, factor)) return false;
  switch (op.code()) {
    case OpCode::kConcatenate:
    case OpCode::kConvolution:
    case OpCode::kPad:
    case OpCode::kReduceWindow:
    case OpCode::kReverse:
    case OpCode::kSelectAndScatter:
    case OpCode::kSlice:
      return true;
    default:
      return is_roll(op);
  }
}

std::optional<WindowReads> window_reads(const ir::Operation& op, const ShardingRule& rule,
                                        const OpCut& cut, const PrimeMesh& mesh,
                                        const std::vector<ir::Type>& operands) {
  return WindowReader(op, rule, cut, mesh, operands).run();
}

}  // namespace hekla::spmd
