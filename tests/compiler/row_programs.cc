// SPDX-License-Identifier: Apache-2.0
#include "tests/compiler/row_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <limits>
#include <random>

#include "runtime/program/stablehlo/read_program.h"

namespace hekla::testing {
namespace {

std::string tensor(const std::string& dtype, std::vector<int64_t> dims) {
  return dims.empty() ? fmt::format("tensor<{}>", dtype)
                      : fmt::format("tensor<{}x{}>", fmt::join(dims, "x"), dtype);
}

// The lines of one program over `rows` of `columns` elements.
class Writer {
 public:
  Writer(const std::string& dtype, std::vector<int64_t> rows, int64_t columns)
      : dtype_(dtype), rows_(rows), all_(std::move(rows)) {
    all_.push_back(columns);
    is_float_ = dtype[0] == 'f' || dtype[0] == 'b';
  }

  std::string whole() const { return tensor(dtype_, all_); }
  std::string row() const { return tensor(dtype_, rows_); }

  void constant(const std::string& name, const std::string& value) {
    lines_ += fmt::format("  {} = stablehlo.constant dense<{}> : tensor<{}>\n", name,
                          is_float_ ? value : value.substr(0, value.find('.')), dtype_);
  }
  // Over the last dimension, or with `columns` over all others.
  void reduce(const std::string& to, const std::string& op, const std::string& from,
              const std::string& start, bool columns = false) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < all_.size(); ++d) {
      if ((d + 1 < all_.size()) == columns) dims.push_back(d);
    }
    const std::string result = columns ? tensor(dtype_, {all_.back()}) : row();
    lines_ += fmt::format(
        "  {} = stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = [{}] : "
        "({}, tensor<{}>) -> {}\n",
        to, from, start, op, fmt::join(dims, ", "), whole(), dtype_, result);
  }
  void spread(const std::string& to, const std::string& from) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < rows_.size(); ++d) dims.push_back(d);
    lines_ += fmt::format("  {} = stablehlo.broadcast_in_dim {}, dims = [{}] : ({}) -> {}\n", to,
                          from, fmt::join(dims, ", "), row(), whole());
  }
  void spread_scalar(const std::string& to, const std::string& from, bool to_rows = false) {
    lines_ += fmt::format("  {} = stablehlo.broadcast_in_dim {}, dims = [] : (tensor<{}>) -> {}\n",
                          to, from, dtype_, to_rows ? row() : whole());
  }
  void op(const std::string& to, const std::string& op, const std::string& operands,
          bool on_rows = false) {
    lines_ +=
        fmt::format("  {} = stablehlo.{} {} : {}\n", to, op, operands, on_rows ? row() : whole());
  }
  void line(const std::string& text) { lines_ += "  " + text + "\n"; }

  std::string finish(const std::string& arguments, const std::string& names,
                     const std::string& types) const {
    return fmt::format("func.func @main({}) -> ({}) {{\n{}  return {} : {}\n}}\n", arguments, types,
                       lines_, names, types);
  }
  bool is_float() const { return is_float_; }

 private:
  const std::string dtype_;
  const std::vector<int64_t> rows_;
  std::vector<int64_t> all_;
  bool is_float_ = false;
  std::string lines_;
};

// Along rows, with %least and %zero to start from; of integers what has its form.
void add_softmax(Writer& w, const std::string& from, const std::string& to) {
  w.reduce("%max", "maximum", from, "%least");
  w.spread("%m", "%max");
  w.op("%d", "subtract", from + ", %m");
  w.op("%e", w.is_float() ? "exponential" : "abs", "%d");
  w.reduce("%sum", "add", "%e", "%zero");
  w.spread("%t", "%sum");
  w.op(to, w.is_float() ? "divide" : "multiply", "%e, %t");
}

}  // namespace

std::string softmax(const std::string& dtype, const std::vector<int64_t>& rows, int64_t columns) {
  Writer w(dtype, rows, columns);
  w.constant("%least", "-100.0");
  w.constant("%zero", "0.0");
  add_softmax(w, "%x", "%y");
  return w.finish("%x: " + w.whole(), "%y", w.whole());
}

std::string layer_norm(const std::string& dtype, const std::vector<int64_t>& rows,
                       int64_t columns) {
  Writer w(dtype, rows, columns);
  w.constant("%zero", "0.0");
  w.constant("%one", "1.0");
  w.constant("%n", fmt::format("{}.0", std::max<int64_t>(columns, 1)));
  w.spread_scalar("%count", "%n", true);
  w.spread_scalar("%ones", "%one", true);
  w.reduce("%sum", "add", "%x", "%zero");
  w.op("%mean", "divide", "%sum, %count", true);
  w.spread("%m", "%mean");
  w.op("%d", "subtract", "%x, %m");
  w.op("%q", "multiply", "%d, %d");
  w.reduce("%squares", "add", "%q", "%zero");
  w.op("%variance", "divide", "%squares, %count", true);
  w.op("%shifted", "add", "%variance, %ones", true);
  w.op("%root", "sqrt", "%shifted", true);
  w.spread("%r", "%root");
  w.op("%y", "divide", "%d, %r");
  w.line(fmt::format("%w = stablehlo.broadcast_in_dim %scale, dims = [{}] : ({}) -> {}",
                     rows.size(), tensor(dtype, {columns}), w.whole()));
  w.op("%z", "multiply", "%y, %w");
  w.reduce("%columns", "add", "%z", "%zero", true);
  const std::string one = tensor(dtype, {columns});
  return w.finish("%x: " + w.whole() + ", %scale: " + one, "%z, %columns, %variance",
                  w.whole() + ", " + one + ", " + w.row());
}

std::string arg_max(const std::string& dtype, int64_t rows, int64_t columns) {
  Writer w(dtype, {rows}, columns);
  const std::string places = tensor("i32", {rows, columns});
  const std::string place = tensor("i32", {rows});
  w.constant("%zero", "0.0");
  w.constant("%least", "-100.0");
  w.line("%none = stablehlo.constant dense<0> : tensor<i32>");
  w.reduce("%sum", "add", "%x", "%zero");
  w.spread("%s", "%sum");
  w.op("%y", "multiply", "%x, %s");
  w.line("%places = stablehlo.iota dim = 1 : " + places);
  w.line(fmt::format(
      "%r:2 = stablehlo.reduce(%y init: %least), (%places init: %none) across dimensions = [1] : "
      "({0}, {1}, tensor<{2}>, tensor<i32>) -> ({3}, {4})\n"
      "   reducer(%a: tensor<{2}>, %b: tensor<{2}>) (%i: tensor<i32>, %j: tensor<i32>) {{\n"
      "    %keep = stablehlo.compare GE, %a, %b : (tensor<{2}>, tensor<{2}>) -> tensor<i1>\n"
      "    %v = stablehlo.select %keep, %a, %b : tensor<i1>, tensor<{2}>\n"
      "    %p = stablehlo.select %keep, %i, %j : tensor<i1>, tensor<i32>\n"
      "    stablehlo.return %v, %p : tensor<{2}>, tensor<i32>\n  }}",
      w.whole(), places, dtype, w.row(), place));
  w.spread("%g", "%r#0");
  w.op("%z", "subtract", "%y, %g");
  return w.finish("%x: " + w.whole(), "%z, %r#1", w.whole() + ", " + place);
}

std::string attention(int64_t heads, int64_t queries, int64_t keys, int64_t width, bool causal) {
  Writer w("f32", {heads, queries}, keys);
  const std::string q = tensor("f32", {heads, queries, width});
  const std::string k = tensor("f32", {heads, keys, width});
  const std::string flags = tensor("i1", {heads, queries, keys});
  const std::string places = tensor("i32", {heads, queries, keys});
  w.constant("%least", "-100.0");
  w.constant("%zero", "0.0");
  w.line(
      fmt::format("%dot = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], "
                  "contracting_dims = [2] x [2] : ({}, {}) -> {}",
                  q, k, w.whole()));
  if (causal) {
    w.line("%row = stablehlo.iota dim = 1 : " + places);
    w.line("%column = stablehlo.iota dim = 2 : " + places);
    w.line(fmt::format("%see = stablehlo.compare GE, %row, %column : ({0}, {0}) -> {1}", places,
                       flags));
    w.spread_scalar("%none", "%least");
    w.line(fmt::format("%s = stablehlo.select %see, %dot, %none : {}, {}", flags, w.whole()));
  }
  add_softmax(w, causal ? "%s" : "%dot", "%p");
  w.line(
      fmt::format("%o = stablehlo.dot_general %p, %z, batching_dims = [0] x [0], "
                  "contracting_dims = [2] x [1] : ({}, {}) -> {}",
                  w.whole(), k, q));
  return w.finish("%x: " + q + ", %y: " + k + ", %z: " + k, "%o", q);
}

std::string interleaved_attention(int64_t batch, int64_t length, int64_t heads, int64_t width,
                                  bool causal) {
  Writer w("f32", {batch, heads, length}, length);
  const std::string q = tensor("f32", {batch, length, heads, width});
  const std::string flags = tensor("i1", {batch, heads, length, length});
  const std::string few_flags = tensor("i1", {length, length});
  const std::string places = tensor("i32", {length, length});
  w.constant("%least", "-100.0");
  w.constant("%zero", "0.0");
  w.line(
      fmt::format("%dot = stablehlo.dot_general %x, %y, batching_dims = [0, 2] x [0, 2], "
                  "contracting_dims = [3] x [3] : ({0}, {0}) -> {1}",
                  q, w.whole()));
  if (causal) {
    w.line("%row = stablehlo.iota dim = 0 : " + places);
    w.line("%column = stablehlo.iota dim = 1 : " + places);
    w.line(fmt::format("%few = stablehlo.compare GE, %row, %column : ({0}, {0}) -> {1}", places,
                       few_flags));
    w.line(fmt::format("%see = stablehlo.broadcast_in_dim %few, dims = [2, 3] : ({}) -> {}",
                       few_flags, flags));
    w.spread_scalar("%none", "%least");
    w.line(fmt::format("%s = stablehlo.select %see, %dot, %none : {}, {}", flags, w.whole()));
  }
  add_softmax(w, causal ? "%s" : "%dot", "%p");
  const std::string out = tensor("f32", {batch, heads, width, length});
  w.line(
      fmt::format("%o = stablehlo.dot_general %z, %p, batching_dims = [0, 2] x [0, 1], "
                  "contracting_dims = [1] x [3] : ({}, {}) -> {}",
                  q, w.whole(), out));
  w.line(fmt::format("%r = stablehlo.transpose %o, dims = [0, 3, 1, 2] : ({}) -> {}", out, q));
  return w.finish("%x: " + q + ", %y: " + q + ", %z: " + q, "%r", q);
}

std::string product(int64_t batch, int64_t rows, int64_t depth, int64_t columns, bool is_turned,
                    bool is_summed) {
  const std::string x = tensor("f32", {batch, rows, depth});
  const std::string y = tensor("f32", {batch, depth, columns});
  const std::string dot = tensor("f32", {batch, rows, columns});
  if (is_turned) std::swap(rows, columns);
  Writer w("f32", {batch, rows}, columns);
  const std::string bias = tensor("f32", {columns});
  w.constant("%zero", "0.0");
  w.spread_scalar("%zeros", "%zero");
  w.line(
      fmt::format("%dot = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], "
                  "contracting_dims = [2] x [1] : ({}, {}) -> {}",
                  x, y, dot));
  if (is_turned) {
    w.line(fmt::format("%p = stablehlo.transpose %dot, dims = [0, 2, 1] : ({}) -> {}", dot,
                       w.whole()));
  }
  w.line(fmt::format("%bias = stablehlo.broadcast_in_dim %b, dims = [2] : ({}) -> {}", bias,
                     w.whole()));
  w.op("%s", "add", is_turned ? "%p, %bias" : "%dot, %bias");
  w.op("%t", "maximum", "%s, %zeros");
  w.op("%z", "add", "%t, %r");
  if (is_summed) w.reduce("%sum", "add", "%z", "%zero");
  return w.finish("%x: " + x + ", %y: " + y + ", %b: " + bias + ", %r: " + w.whole(),
                  is_summed ? "%z, %sum" : "%z",
                  is_summed ? w.whole() + ", " + w.row() : w.whole());
}

std::string other_rows(int64_t rows, int64_t columns) {
  Writer w("f32", {rows}, columns);
  w.constant("%zero", "0.0");
  w.reduce("%sum", "add", "%x", "%zero");
  w.spread("%s", "%sum");
  w.op("%y", "subtract", "%x, %s");
  w.op("%e", "exponential", "%y");
  w.line("%other = stablehlo.reverse %e, dims = [0] : " + w.whole());
  w.reduce("%again", "add", "%e", "%zero");
  w.spread("%back", "%again");
  w.op("%z", "divide", "%other, %back");
  return w.finish("%x: " + w.whole(), "%e, %z", w.whole() + ", " + w.whole());
}

std::vector<RowProgram> row_programs() {
  std::vector<RowProgram> programs;
  const auto add = [&](const std::string& name, std::string text,
                       std::optional<bool> has_groups = true) {
    programs.push_back({name, std::move(text), has_groups});
  };
  for (const char* dtype : {"f32", "f64", "bf16", "f16", "i32", "i16", "i64"}) {
    for (const int64_t columns : {5, 40, 129, 513, 1000}) {
      add(fmt::format("softmax {} {}", dtype, columns), softmax(dtype, {37}, columns));
    }
  }
  for (const char* dtype : {"f32", "f64", "bf16"}) {
    for (const int64_t columns : {7, 64, 200, 640}) {
      add(fmt::format("layer_norm {} {}", dtype, columns), layer_norm(dtype, {3, 19}, columns));
    }
  }
  add("softmax of many short rows", softmax("f32", {2000}, 3));
  add("softmax of three dimensions", softmax("f32", {2, 3, 32}, 70));
  add("softmax of as many rows as a block", softmax("f32", {8}, 600));
  add("softmax of two rows", softmax("f32", {2}, 700));
  add("layer norm of long rows", layer_norm("f32", {5}, 5000));
  add("arg max", arg_max("f32", 41, 33));
  add("arg max of long rows", arg_max("f32", 41, 700));
  add("arg max of integers", arg_max("i32", 30, 20));
  add("attention", attention(3, 64, 80, 16, false));
  add("attention, causal", attention(2, 48, 600, 24, true));
  add("attention, interleaved heads", interleaved_attention(2, 64, 3, 16, true));
  add("attention, interleaved heads, odd sizes", interleaved_attention(2, 37, 3, 5, false));
  add("attention of odd sizes", attention(2, 37, 41, 7, true));
  for (const bool is_summed : {false, true}) {
    const char* sums = is_summed ? ", sums" : "";
    add(fmt::format("product{}", sums), product(1, 150, 300, 130, false, is_summed), std::nullopt);
    add(fmt::format("product, turned{}", sums), product(1, 200, 70, 97, true, is_summed),
        std::nullopt);
    add(fmt::format("products{}", sums), product(3, 65, 129, 80, false, is_summed), std::nullopt);
    add(fmt::format("products of odd sizes, turned{}", sums),
        product(3, 67, 129, 83, true, is_summed), std::nullopt);
    add(fmt::format("product of long rows{}", sums), product(1, 64, 64, 2100, false, is_summed),
        std::nullopt);
    add(fmt::format("product of few rows{}", sums), product(1, 5, 256, 300, false, is_summed),
        std::nullopt);
  }
  add("readers of other rows", other_rows(64, 48));
  add("readers of other long rows", other_rows(50, 600));
  add("no rows", softmax("f32", {0}, 40), false);
  return programs;
}

std::vector<HostArray> row_inputs(const std::string& text) {
  const auto module = stablehlo::read_program(text);
  std::mt19937_64 random(7);
  std::vector<HostArray> inputs;
  for (const ir::Type& type : (*module)->entry()->type.elements()) {
    HostArray array = HostArray::allocate(type.dtype(), type.dims()).value();
    const int64_t width = dtype_bytes(type.dtype());
    for (int64_t i = 0; i < array.size(); ++i) {
      const uint64_t drawn = random();
      double value = static_cast<double>(static_cast<int64_t>(drawn % 2001) - 1000) / 100;
      if (is_float(type.dtype()) && drawn % 997 == 0) {
        constexpr double kOdd[] = {std::numeric_limits<double>::quiet_NaN(),
                                   std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity(), -0.0};
        value = kOdd[drawn / 997 % 4];
      }
      const uint64_t bits = is_float(type.dtype())
                                ? float_to_bits(type.dtype(), value)
                                : static_cast<uint64_t>(static_cast<int64_t>(value));
      std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

}  // namespace hekla::testing
