// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/testing/product_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

namespace hekla::vulkan::testing {
namespace {

using kernel::Contraction;
using Axis = Contraction::Axis;

DType sums_of(DType operands) { return is_integer(operands) ? DType::kI32 : DType::kF32; }

// Elements from the least to the greatest place that the axes reach; the offset that makes the
// least of them 0 is set where one is negative.
void set_extent(Contraction& c) {
  const auto reach = [&](int64_t Axis::*stride, int64_t& offset, int64_t at_least) {
    int64_t low = 0, high = 0;
    for (const auto* axes : {&c.batch, &c.rows, &c.columns, &c.depth}) {
      for (const Axis& axis : *axes) {
        const int64_t last = (axis.size - 1) * (axis.*stride);
        (last < 0 ? low : high) += last;
      }
    }
    offset -= low;
    return std::max(offset + high + 1, at_least);
  };
  int64_t windows = 0;
  for (const Contraction::Window& w : c.windows) windows += (w.extent - 1) * w.lhs;
  c.lhs_elements = reach(&Axis::lhs, c.lhs_offset, 1) + windows;
  c.rhs_elements = reach(&Axis::rhs, c.rhs_offset, 1);
  c.out_elements = reach(&Axis::out, c.out_offset, 1);
}

Contraction plain(DType operands) {
  Contraction c;
  c.lhs_dtype = c.rhs_dtype = operands;
  c.out_dtype = sums_of(operands);
  return c;
}

Contraction product(DType operands, int64_t batch, int64_t rows, int64_t columns, int64_t depth,
                    bool lhs_transposed, bool rhs_transposed, bool out_transposed = false) {
  Contraction c = plain(operands);
  c.batch = {{batch, rows * depth, depth * columns, rows * columns}};
  c.rows = {{rows, lhs_transposed ? 1 : depth, 0, out_transposed ? 1 : columns}};
  c.columns = {{columns, 0, rhs_transposed ? depth : 1, out_transposed ? rows : 1}};
  c.depth = {{depth, lhs_transposed ? rows : 1, rhs_transposed ? 1 : columns, 0}};
  set_extent(c);
  return c;
}

struct Convolution {
  int64_t images = 2, size = 9, features = 8, outputs = 16, window = 3;
  int64_t stride = 1, dilation = 1, low = 1, base_dilation = 1;
  bool channels_last = true;
};

// Of images of size x size.
Contraction convolution(DType operands, const Convolution& v) {
  Contraction c = plain(operands);
  const int64_t dilated = (v.size - 1) * v.base_dilation + 1;
  const int64_t out = (dilated + 2 * v.low - ((v.window - 1) * v.dilation + 1)) / v.stride + 1;
  const bool last = v.channels_last;
  const int64_t step = last ? v.features : 1, out_step = last ? v.outputs : 1;
  c.rows = {{v.images, v.size * v.size * v.features, 0, out * out * v.outputs},
            {out, 0, 0, out * out_step},
            {out, 0, 0, out_step}};
  c.columns = {{v.outputs, 0, 1, last ? 1 : out * out}};
  c.depth = {{v.window, 0, v.window * v.features * v.outputs, 0},
             {v.window, 0, v.features * v.outputs, 0},
             {v.features, last ? 1 : v.size * v.size, v.outputs, 0}};
  for (int32_t i = 0; i < 2; ++i) {
    c.windows.push_back({i + 1, i, v.stride, v.dilation, v.low, v.size, v.base_dilation,
                         i == 0 ? v.size * step : step});
  }
  set_extent(c);
  return c;
}

double element(DType dtype, const std::vector<std::byte>& memory, int64_t at) {
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, &memory[static_cast<size_t>(at) * bytes], bytes);
  if (is_float(dtype)) return float_from_bits(dtype, bits);
  if (dtype == DType::kI8) return static_cast<int8_t>(bits);
  return static_cast<double>(bits);
}

// Calls visit(index along each axis).
void for_each(const std::vector<Axis>& axes,
              const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> at(axes.size(), 0);
  for (;;) {
    visit(at);
    size_t d = axes.size();
    while (d > 0 && ++at[d - 1] == axes[d - 1].size) at[--d] = 0;
    if (d == 0) return;
  }
}

int64_t place(const std::vector<Axis>& axes, const std::vector<int64_t>& at,
              int64_t Axis::*stride) {
  int64_t sum = 0;
  for (size_t d = 0; d < axes.size(); ++d) sum += at[d] * (axes[d].*stride);
  return sum;
}

}  // namespace

std::vector<ProductCase> product_cases(DType operands) {
  std::vector<ProductCase> cases;
  for (const bool l : {false, true}) {
    for (const bool r : {false, true}) {
      const std::string form = fmt::format("{}{}", l ? 't' : 'n', r ? 't' : 'n');
      cases.push_back({form + " 96x80x112", product(operands, 1, 96, 80, 112, l, r)});
      cases.push_back({form + " 130x70x45", product(operands, 1, 130, 70, 45, l, r)});
      cases.push_back({form + " 3 of 40x24x16", product(operands, 3, 40, 24, 16, l, r)});
    }
  }
  cases.push_back({"1x1x1", product(operands, 1, 1, 1, 1, false, false)});
  cases.push_back({"1x40x200", product(operands, 1, 1, 40, 200, false, false)});
  cases.push_back({"transposed result", product(operands, 2, 48, 72, 40, false, false, true)});
  cases.push_back({"transposed result, odd", product(operands, 2, 47, 71, 33, true, false, true)});
  cases.push_back({"many tiles", product(operands, 1, 700, 130, 24, false, true)});
  Contraction axes = plain(operands);
  axes.batch = {{2, 1, 0, 1920}, {2, 0, 5, 3840}};
  axes.rows = {{4, 60, 0, 80}, {6, 10, 0, 320}};
  axes.columns = {{8, 0, 300, 1}, {10, 0, 10, 8}};
  axes.depth = {{3, 240, 100, 0}, {5, 2, 1, 0}};
  set_extent(axes);
  cases.push_back({"several axes", axes});
  Contraction views = product(operands, 1, 32, 48, 40, false, false);
  views.depth[0] = {40, -1, -48, 0};
  views.rows[0] = {32, 80, 0, 48};
  set_extent(views);
  cases.push_back({"reversed", views});
  Contraction broadcast = product(operands, 4, 24, 32, 24, false, false);
  broadcast.batch[0].lhs = 0;
  set_extent(broadcast);
  cases.push_back({"broadcast over the batch", broadcast});
  cases.push_back({"convolution, channels last", convolution(operands, {})});
  cases.push_back({"of 3 features", convolution(operands, {.features = 3})});
  cases.push_back({"channels first", convolution(operands, {.channels_last = false})});
  cases.push_back({"strides", convolution(operands, {.features = 16, .stride = 2, .low = 2})});
  cases.push_back({"dilated window", convolution(operands, {.dilation = 2, .low = 3})});
  cases.push_back(
      {"base dilation", convolution(operands, {.size = 6, .low = 2, .base_dilation = 2})});
  if (is_float(operands)) {
    for (size_t i : {size_t{0}, size_t{1}, size_t{13}, cases.size() - 6}) {
      ProductCase narrow = cases[i];
      narrow.name += ", rounded";
      narrow.contraction.out_dtype = operands;
      cases.push_back(narrow);
    }
    ProductCase narrow{"transposed result, rounded",
                       product(operands, 1, 48, 72, 40, false, false, true)};
    narrow.contraction.out_dtype = operands;
    cases.push_back(narrow);
  }
  return cases;
}

Contraction by_pieces(Contraction contraction, const kernel::Pieces& pieces) {
  contraction.lhs_dtype = contraction.rhs_dtype = DType::kF32;
  contraction.algorithm.pieces = pieces.type;
  contraction.algorithm.products = pieces.products;
  contraction.pieces = pieces;
  return contraction;
}

Contraction random_product(DType operands, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  if (pick(3) == 0) {
    Convolution v;
    v.images = 1 + pick(3);
    v.size = 3 + pick(9);
    v.features = pick(2) == 0 ? 8 * (1 + pick(3)) : 1 + pick(9);
    v.outputs = pick(2) == 0 ? 8 * (1 + pick(4)) : 1 + pick(20);
    v.window = 1 + pick(3);
    v.stride = 1 + pick(2);
    v.dilation = 1 + pick(2);
    v.low = (v.window - 1) * v.dilation / 2 + pick(2);
    v.base_dilation = 1 + pick(3) / 2;
    v.channels_last = pick(2) == 0;
    return convolution(operands, v);
  }
  const auto size = [&] { return pick(2) == 0 ? 8 * (1 + pick(20)) : 1 + pick(150); };
  Contraction c = product(operands, 1 + pick(3), size(), size(), size(), pick(2) == 0, pick(2) == 0,
                          pick(3) == 0);
  if (is_float(operands) && pick(3) == 0) c.out_dtype = operands;
  return c;
}

ProductData product_data(const Contraction& c, uint64_t seed, bool is_exact) {
  std::mt19937_64 random(seed);
  // Numbers of one piece at most on the right.
  const uint64_t most_left = c.pieces.products > 1 ? 4095 : 4, most_right = 4;
  const auto fill = [&](DType dtype, int64_t elements, uint64_t most) {
    const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
    std::vector<std::byte> memory(static_cast<size_t>(elements) * bytes);
    for (size_t i = 0; i < memory.size(); i += bytes) {
      uint64_t bits = random();
      if (is_float(dtype)) {
        const double value =
            is_exact ? static_cast<double>(bits % (2 * most + 1)) - static_cast<double>(most)
                     : static_cast<double>(bits % 20001) / 10000 - 1;
        bits = float_to_bits(dtype, value);
      }
      std::memcpy(&memory[i], &bits, bytes);
    }
    return memory;
  };
  ProductData data{fill(c.lhs_dtype, c.lhs_elements, most_left),
                   fill(c.rhs_dtype, c.rhs_elements, most_right),
                   {}};
  data.out.assign(static_cast<size_t>(c.out_elements * dtype_bytes(c.out_dtype)), std::byte{0x5a});
  return data;
}

void reference_product(const Contraction& c, ProductData& data, std::vector<double>* magnitudes) {
  if (magnitudes != nullptr) magnitudes->assign(static_cast<size_t>(c.out_elements), 0);
  const auto bytes = static_cast<size_t>(dtype_bytes(c.out_dtype));
  for_each(c.batch, [&](const std::vector<int64_t>& batch) {
    for_each(c.rows, [&](const std::vector<int64_t>& rows) {
      for_each(c.columns, [&](const std::vector<int64_t>& columns) {
        double sum = 0, magnitude = 0;
        int64_t whole = 0;
        const int64_t lhs =
            c.lhs_offset + place(c.batch, batch, &Axis::lhs) + place(c.rows, rows, &Axis::lhs);
        const int64_t rhs = c.rhs_offset + place(c.batch, batch, &Axis::rhs) +
                            place(c.columns, columns, &Axis::rhs);
        for_each(c.depth, [&](const std::vector<int64_t>& depth) {
          int64_t at = lhs + place(c.depth, depth, &Axis::lhs);
          bool is_inside = true;  // else a product with zero
          for (const Contraction::Window& w : c.windows) {
            const int64_t along = rows[static_cast<size_t>(w.row)] * w.stride +
                                  depth[static_cast<size_t>(w.depth)] * w.dilation - w.low;
            is_inside = is_inside && along >= 0 && along % w.base_dilation == 0 &&
                        along / w.base_dilation < w.extent;
            at += along / w.base_dilation * w.lhs;
          }
          const double x = is_inside ? element(c.lhs_dtype, data.lhs, at) : 0;
          const double y = element(c.rhs_dtype, data.rhs, rhs + place(c.depth, depth, &Axis::rhs));
          sum += x * y;
          magnitude += std::abs(x * y);
          if (!is_float(c.lhs_dtype)) whole += static_cast<int64_t>(x) * static_cast<int64_t>(y);
        });
        const int64_t to = c.out_offset + place(c.batch, batch, &Axis::out) +
                           place(c.rows, rows, &Axis::out) + place(c.columns, columns, &Axis::out);
        uint64_t bits = static_cast<uint64_t>(whole);
        if (is_float(c.lhs_dtype)) {
          bits = float_to_bits(c.out_dtype, static_cast<double>(static_cast<float>(sum)));
        }
        std::memcpy(&data.out[static_cast<size_t>(to) * bytes], &bits, bytes);
        if (magnitudes != nullptr) (*magnitudes)[static_cast<size_t>(to)] = magnitude;
      });
    });
  });
}

}  // namespace hekla::vulkan::testing
