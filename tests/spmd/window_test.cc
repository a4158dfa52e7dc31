// SPDX-License-Identifier: Apache-2.0
// Windows over dimensions that are cut: operations of which each part needs what its neighbours
// have, in random shapes over random meshes, against the program over all partitions. What is not a
// partition's own is garbage on the way in and not looked at on the way out.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "backends/compiler/spmd/local_op.h"
#include "backends/compiler/spmd/local_window.h"
#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/report.h"
#include "backends/compiler/spmd/rules.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/sharding/testing/random_sharding.h"
#include "tests/spmd/boxes.h"

namespace hekla::spmd {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using sharding::Box;
using sharding::testing::draw;

constexpr int32_t kGarbage = -77777;

// An operation with attributes and regions of its own over arguments of these shapes.
struct Program {
  std::string name;
  std::vector<Dims> arguments;
  GraphBuilder::Body body;  // one result
};

ir::AttributeMap lists(std::vector<std::pair<std::string, std::vector<int64_t>>> entries) {
  ir::AttributeMap attributes;
  for (auto& [name, list] : entries) attributes.set(name, ir::i64_array(std::move(list)));
  return attributes;
}

ir::Attribute pairs(const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
  const Dims shape = {static_cast<int64_t>(low.size()), 2};
  HostArray values(DType::kI64, shape);
  for (size_t i = 0; i < low.size(); ++i) {
    values.mutable_as<int64_t>()[2 * i] = low[i];
    values.mutable_as<int64_t>()[2 * i + 1] = high[i];
  }
  return ir::make_dense(ir::Type::tensor(DType::kI64, shape), std::move(values));
}

// One dimension of a window: what is drawn makes one result element at least.
struct Window {
  int64_t size = 1, stride = 1, low = 0, high = 0, dilation = 1, base = 1;
};

Window random_window(std::mt19937_64& random, int64_t n, int64_t most) {
  for (;;) {
    Window w;
    w.size = draw(random, 1, most);
    w.stride = draw(random, 0, 2) == 0 ? draw(random, 1, 4) : 1;
    w.dilation = draw(random, 0, 3) == 0 ? draw(random, 1, 3) : 1;
    w.base = draw(random, 0, 3) == 0 ? draw(random, 1, 3) : 1;
    w.low = draw(random, -2, w.size + 1);
    w.high = draw(random, -2, w.size + 1);
    if (draw(random, 0, 2) == 0) w.low = w.high = 0;
    if ((n - 1) * w.base + 1 + w.low + w.high >= (w.size - 1) * w.dilation + 1) return w;
  }
}

template <typename Get>
std::vector<int64_t> each(const std::vector<Window>& windows, Get get) {
  std::vector<int64_t> list;
  for (const Window& window : windows) list.push_back(get(window));
  return list;
}

Program slice(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 6)};
  std::vector<int64_t> begin, end, strides;
  for (int64_t n : dims) {
    begin.push_back(draw(random, 0, n - 1));
    end.push_back(draw(random, begin.back() + 1, n));
    strides.push_back(draw(random, 1, 3));
  }
  return {"slice", {dims}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.make(
                OpCode::kSlice, {x[0]},
                lists({{"start_indices", begin}, {"limit_indices", end}, {"strides", strides}}))};
          }};
}

Program pad(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 6)};
  std::vector<int64_t> low, high, between;
  for (int64_t n : dims) {
    do {
      between.resize(low.size());
      low.resize(between.size());
      high.resize(between.size());
      low.push_back(draw(random, -3, 9));
      high.push_back(draw(random, -3, 9));
      between.push_back(draw(random, 0, 1) * draw(random, 0, 3));
      if ((n - 1) * (between.back() + 1) + 1 + low.back() + high.back() > 0) break;
      low.pop_back();
      high.pop_back();
      between.pop_back();
    } while (true);
  }
  return {"pad", {dims, {}}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.make(OpCode::kPad, {x[0], x[1]},
                                               lists({{"edge_padding_low", low},
                                                      {"edge_padding_high", high},
                                                      {"interior_padding", between}}))};
          }};
}

Program reverse(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 9)};
  return {"reverse", {dims}, [](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.reverse(x[0], {0, 1})};
          }};
}

Program concatenate(std::mt19937_64& random) {
  std::vector<Dims> all;
  const int64_t columns = draw(random, 1, 6);
  for (int64_t count = draw(random, 2, 4); count > 0; --count) {
    all.push_back({draw(random, 1, 20), columns});
  }
  return {"concatenate", all, [](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.concatenate(x, 0)};
          }};
}

Program roll(std::mt19937_64& random) {
  const Dims dims = {draw(random, 2, 30), draw(random, 1, 6)};
  const int64_t begin = draw(random, 1, dims[0] - 1);
  return {"roll", {dims}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            ir::Value* end = g.slice(x[0], {begin, 0}, dims);
            ir::Value* front = g.slice(x[0], {0, 0}, {begin, dims[1]});
            return GraphBuilder::Values{g.concatenate({end, front}, 0)};
          }};
}

Program reduce_window(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 10)};
  const std::vector<Window> windows = {random_window(random, dims[0], 9),
                                       random_window(random, dims[1], 3)};
  const bool is_sum = draw(random, 0, 1) == 0;
  const auto fold = [is_sum](GraphBuilder& g, ir::Value* a, ir::Value* b) {
    return is_sum ? g.add(a, b) : g.binary(OpCode::kMaximum, a, b);
  };
  const bool has_two = draw(random, 0, 3) == 0;
  ir::AttributeMap attributes =
      lists({{"window_dimensions", each(windows, [](auto& w) { return w.size; })},
             {"window_strides", each(windows, [](auto& w) { return w.stride; })},
             {"window_dilations", each(windows, [](auto& w) { return w.dilation; })},
             {"base_dilations", each(windows, [](auto& w) { return w.base; })}});
  attributes.set("padding", pairs(each(windows, [](auto& w) { return w.low; }),
                                  each(windows, [](auto& w) { return w.high; })));
  const ir::Type scalar = ir::Type::tensor(DType::kI32, {});
  if (has_two) {
    return {"reduce_window of two",
            {dims, dims, {}, {}},
            [=](GraphBuilder& g, const GraphBuilder::Values& x) {
              ir::Operation* op = g.make_op(
                  OpCode::kReduceWindow, x, attributes,
                  {{{scalar, scalar, scalar, scalar},
                    [=](GraphBuilder& body, const GraphBuilder::Values& y) {
                      return GraphBuilder::Values{fold(body, y[0], y[2]), fold(body, y[1], y[3])};
                    }}});
              return GraphBuilder::Values{op->result(0), op->result(1)};
            }};
  }
  return {"reduce_window", {dims, {}}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            ir::Operation* op = g.make_op(
                OpCode::kReduceWindow, x, attributes,
                {{{scalar, scalar}, [=](GraphBuilder& body, const GraphBuilder::Values& y) {
                    return GraphBuilder::Values{fold(body, y[0], y[1])};
                  }}});
            return GraphBuilder::Values{op->result()};
          }};
}

// What cumsum and its like are.
Program running_fold_program(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 6)};
  const bool is_reversed = draw(random, 0, 1) == 1;
  const bool is_sum = draw(random, 0, 2) > 0;
  ir::AttributeMap attributes = lists({{"window_dimensions", {dims[0], 1}}});
  attributes.set("padding",
                 pairs({is_reversed ? 0 : dims[0] - 1, 0}, {is_reversed ? dims[0] - 1 : 0, 0}));
  const ir::Type scalar = ir::Type::tensor(DType::kI32, {});
  return {is_reversed ? "running fold from the end" : "running fold",
          {dims},
          [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            // A sum's initial value stands in the padding of every window, so only 0 is one that
            // runs on.
            ir::Value* initial = g.constant(DType::kI32, {}, is_sum ? 0 : -7);
            const auto fold = [=](GraphBuilder& body, const GraphBuilder::Values& y) {
              return GraphBuilder::Values{
                  body.binary(is_sum ? OpCode::kAdd : OpCode::kMaximum, y[0], y[1])};
            };
            return GraphBuilder::Values{g.make_op(OpCode::kReduceWindow, {x[0], initial},
                                                  attributes, {{{scalar, scalar}, fold}})
                                            ->result()};
          }};
}

// A pool's gradient: many elements are equal, and some are the least there are, as padding would
// be.
Program select_and_scatter(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 6)};
  std::vector<Window> windows;
  Dims made;
  for (int64_t n : dims) {
    for (;;) {
      Window w{draw(random, 1, 6), draw(random, 1, 4)};
      w.low = draw(random, 0, w.size - 1);
      w.high = draw(random, 0, w.size - 1);
      if (n + w.low + w.high < w.size) continue;
      made.push_back((n + w.low + w.high - w.size) / w.stride + 1);
      windows.push_back(w);
      break;
    }
  }
  ir::AttributeMap attributes =
      lists({{"window_dimensions", each(windows, [](auto& w) { return w.size; })},
             {"window_strides", each(windows, [](auto& w) { return w.stride; })}});
  attributes.set("padding", pairs(each(windows, [](auto& w) { return w.low; }),
                                  each(windows, [](auto& w) { return w.high; })));
  const ir::Type scalar = ir::Type::tensor(DType::kI32, {});
  const char* direction = draw(random, 0, 1) == 0 ? "GE" : "GT";
  return {
      "select_and_scatter", {dims, made, {}}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
        return GraphBuilder::Values{
            g.make_op(OpCode::kSelectAndScatter, x, attributes,
                      {{{scalar, scalar},
                        [=](GraphBuilder& body, const GraphBuilder::Values& y) {
                          return GraphBuilder::Values{body.compare(direction, y[0], y[1])};
                        }},
                       {{scalar, scalar},
                        [](GraphBuilder& body, const GraphBuilder::Values& y) {
                          return GraphBuilder::Values{body.add(y[0], y[1])};
                        }}})
                ->result()};
      }};
}

// Pieces that begin anywhere, beyond the ends as well.
Program dynamic_piece(std::mt19937_64& random, bool is_update) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 6)};
  Dims piece = dims;
  for (int64_t& n : piece) {
    if (draw(random, 0, 2) > 0) n = draw(random, 1, n);
  }
  if (draw(random, 0, 1) == 0) piece[0] = std::min<int64_t>(piece[0], 3);
  if (!is_update) {
    return {"dynamic_slice", {dims, {}, {}}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
              return GraphBuilder::Values{g.dynamic_slice(x[0], {x[1], x[2]}, piece)};
            }};
  }
  return {"dynamic_update_slice",
          {dims, piece, {}, {}},
          [](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.dynamic_update_slice(x[0], x[1], {x[2], x[3]})};
          }};
}

// Sums over a dimension in uneven blocks, where what fills up the last ones is left out.
Program reduce(std::mt19937_64& random) {
  const Dims dims = {draw(random, 1, 30), draw(random, 1, 6)};
  constexpr OpCode kFolds[] = {OpCode::kAdd,     OpCode::kMultiply, OpCode::kMaximum,
                               OpCode::kMinimum, OpCode::kAnd,      OpCode::kXor};
  const OpCode code = kFolds[draw(random, 0, 5)];
  return {"reduce", {dims, {}}, [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            return g.reduce({x[0]}, {x[1]}, {0},
                            [code](GraphBuilder& body, const GraphBuilder::Values& y) {
                              return GraphBuilder::Values{body.binary(code, y[0], y[1])};
                            });
          }};
}

Program dot(std::mt19937_64& random) {
  const int64_t n = draw(random, 1, 30);
  return {"dot",
          {{n, draw(random, 1, 5)}, {draw(random, 1, 5), n}},
          [](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.dot(x[0], x[1], {{}, {}, {0}, {1}})};
          }};
}

// `is_gradient`: a window as large as the image, which is cut, too.
Program convolution(std::mt19937_64& random, bool is_gradient) {
  Dims image = {1, 2, draw(random, 1, 24), draw(random, 1, 5)};
  std::vector<Window> windows = {random_window(random, image[2], 7),
                                 random_window(random, image[3], 3)};
  if (is_gradient) {
    windows[0].size = draw(random, 2, 24);
    const int64_t made = draw(random, 1, std::min<int64_t>(windows[0].size - 1, 4));
    const int64_t needed =
        (windows[0].size - 1) * windows[0].dilation + 1 + (made - 1) * windows[0].stride;
    windows[0].low = draw(random, -1, 3);
    windows[0].high = needed - ((image[2] - 1) * windows[0].base + 1) - windows[0].low;
  }
  const Dims kernel = {3, 2, windows[0].size, windows[1].size};
  Dims made = {1, 3};
  for (size_t i = 0; i < 2; ++i) {
    const Window& w = windows[i];
    const int64_t room = (image[i + 2] - 1) * w.base + 1 + w.low + w.high;
    made.push_back((room - (w.size - 1) * w.dilation - 1) / w.stride + 1);
  }
  ir::ConvDimensionNumbers numbers;
  numbers.input_feature_dimension = 1;
  numbers.input_spatial_dimensions = {2, 3};
  numbers.kernel_input_feature_dimension = 1;
  numbers.kernel_output_feature_dimension = 0;
  numbers.kernel_spatial_dimensions = {2, 3};
  numbers.output_feature_dimension = 1;
  numbers.output_spatial_dimensions = {2, 3};
  ir::AttributeMap attributes =
      lists({{"window_strides", each(windows, [](auto& w) { return w.stride; })},
             {"rhs_dilation", each(windows, [](auto& w) { return w.dilation; })},
             {"lhs_dilation", each(windows, [](auto& w) { return w.base; })}});
  attributes.set("padding", pairs(each(windows, [](auto& w) { return w.low; }),
                                  each(windows, [](auto& w) { return w.high; })));
  attributes.set("window_reversal",
                 ir::IntArrayValue{DType::kI1, {draw(random, 0, 1), draw(random, 0, 1)}});
  attributes.set("dimension_numbers", numbers);
  attributes.set("feature_group_count", ir::i64_attribute(1));
  attributes.set("batch_group_count", ir::i64_attribute(1));
  return {is_gradient ? "convolution over its image" : "convolution",
          {image, kernel},
          [=](GraphBuilder& g, const GraphBuilder::Values& x) {
            return GraphBuilder::Values{g.make_op(OpCode::kConvolution, x, attributes, {},
                                                  {ir::Type::tensor(DType::kI32, made)})
                                            ->result()};
          }};
}

PrimeMesh random_mesh(std::mt19937_64& random) {
  sharding::Mesh mesh;
  mesh.axes = {{"a", draw(random, 1, 8)}};
  if (mesh.axes[0].size <= 4 && draw(random, 0, 1) == 0) {
    mesh.axes.push_back({"b", draw(random, 1, 8 / mesh.axes[0].size)});
  }
  if (draw(random, 0, 2) == 0) {
    mesh.device_ids.resize(static_cast<size_t>(device_count(mesh)));
    std::iota(mesh.device_ids.begin(), mesh.device_ids.end(), 0);
    std::shuffle(mesh.device_ids.begin(), mesh.device_ids.end(), random);
  }
  return PrimeMesh(mesh);
}

// Axes for factors that may be cut, windows first.
OpCut random_cut(std::mt19937_64& random, const ir::Operation& op,
                 const sharding::ShardingRule& rule, const PrimeMesh& mesh) {
  OpCut cut(rule.factor_sizes.size());
  std::vector<int64_t> factors;
  for (size_t f = 0; f < cut.size(); ++f) {
    const auto factor = static_cast<int64_t>(f);
    const bool is_window = may_read_windows(op, rule, factor) || contains(rule.reduction, factor) ||
                           op.code() == OpCode::kDynamicUpdateSlice;
    if (is_window || draw(random, 0, 4) == 0) factors.push_back(factor);
  }
  if (factors.empty()) return cut;
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    const int64_t factor =
        factors[static_cast<size_t>(draw(random, 0, static_cast<int64_t>(factors.size()) - 1))];
    Axes& axes = cut[static_cast<size_t>(factor)];
    axes.push_back(axis);
    const bool is_even = rule.factor_sizes[static_cast<size_t>(factor)] % mesh.parts(axes) == 0;
    if (!may_cut(op, rule, factor, is_even)) axes.pop_back();
  }
  return cut;
}

std::vector<Box> boxes_of(const PrimeMesh& mesh, const Tiling& tiling, const Dims& whole) {
  return spmd::boxes_of(mesh.to_hlo(tiling), mesh.partitions(), whole);
}

class PartsRun {
 public:
  PartsRun(const Program& program, const PrimeMesh& mesh, std::mt19937_64& random,
           std::map<std::string, int>& seen)
      : program_(program), mesh_(mesh), random_(random), seen_(seen) {}

  // Empty, or what is wrong.
  std::string operator()(Reading reading) {
    ir::Module whole, local;
    for (ir::Module* module : {&whole, &local}) {
      std::vector<ir::Type> types;
      for (const Dims& dims : program_.arguments) {
        types.push_back(ir::Type::tensor(DType::kI32, dims));
      }
      const Status status = ir::add_function(*module, "main", types, program_.body);
      if (!status.ok()) return status.to_string();
    }
    if (const Status status = ir::verify(whole); !status.ok()) return status.to_string();
    std::vector<HostArray> arguments;
    const bool is_select = program_.name == "select_and_scatter";
    const bool is_piece = program_.name.starts_with("dynamic");
    for (const Dims& dims : program_.arguments) {
      HostArray array(DType::kI32, dims);
      for (int64_t i = 0; i < array.size(); ++i) {
        array.mutable_as<int32_t>()[i] =
            static_cast<int32_t>(is_select                  ? draw(random_, -3, 3)
                                 : is_piece && dims.empty() ? draw(random_, -4, 32)
                                                            : draw(random_, -50, 50));
        // As anything that stands for padding would be.
        if (is_select && draw(random_, 0, 3) == 0) {
          array.mutable_as<int32_t>()[i] = std::numeric_limits<int32_t>::min();
        }
      }
      arguments.push_back(std::move(array));
    }
    const auto expected = reference::evaluate(whole, arguments);
    if (!expected.ok()) return expected.status().to_string();
    if (const Status status = to_parts(local, reading); !status.ok()) return status.to_string();
    if (const Status status = ir::verify(local); !status.ok()) return status.to_string();
    const int64_t partitions = mesh_.partitions();
    std::vector<std::vector<HostArray>> parts(static_cast<size_t>(partitions));
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::vector<Box> boxes = boxes_of(mesh_, given_[i], arguments[i].dims());
      const Dims shape = local_shape(mesh_, given_[i], arguments[i].dims());
      for (size_t p = 0; p < parts.size(); ++p) {
        HostArray part(DType::kI32, shape);
        std::fill_n(part.mutable_as<int32_t>(), part.size(), kGarbage);
        for_each(boxes[p], shape, arguments[i].dims(), [&](int64_t at, int64_t in) {
          part.mutable_as<int32_t>()[at] = arguments[i].as<int32_t>()[in];
        });
        parts[p].push_back(std::move(part));
      }
    }
    const auto results = reference::evaluate_devices(local, std::move(parts), {1, partitions});
    if (!results.ok()) return results.status().to_string();
    std::string wrong;
    for (size_t r = 0; r < expected->size(); ++r) {
      const HostArray& all = (*expected)[r];
      const std::vector<Box> boxes = boxes_of(mesh_, made_[r], all.dims());
      for (size_t p = 0; p < results->size(); ++p) {
        const HostArray& part = (*results)[p][r];
        if (part.dims() != local_shape(mesh_, made_[r], all.dims())) return "another shape";
        for_each(boxes[p], part.dims(), all.dims(), [&](int64_t at, int64_t in) {
          if (part.as<int32_t>()[at] != all.as<int32_t>()[in] && wrong.empty()) {
            wrong = fmt::format("result {}, partition {}, element {}: {} and not {}", r, p, in,
                                part.as<int32_t>()[at], all.as<int32_t>()[in]);
          }
        });
      }
    }
    return wrong.empty() ? wrong : wrong + description_;
  }

 private:
  Status to_parts(ir::Module& module, Reading reading) {
    ir::Function& entry = *module.entry();
    ir::Block& block = entry.body().front();
    mark_rolls(entry.body());
    std::unique_ptr<ir::Operation> end = block.take(block.terminator());
    std::unique_ptr<ir::Operation> op = block.take(block.operations().back().get());
    const auto rule = rule_of(*op);
    if (!rule) return invalid_argument("no rule");
    OpCut cut = random_cut(random_, *op, *rule, mesh_);
    std::vector<ir::Type> types;
    for (const ir::Value* operand : op->operands()) types.push_back(operand->type());
    auto reads = window_reads(*op, *rule, cut, mesh_, types);
    if (!reads) {  // refused: nothing is cut then
      ++seen_["refused"];
      cut.assign(cut.size(), Axes());
      reads.emplace();
    }
    for (const WindowRead& read : *reads) count(read);
    Resharder resharder(1, mesh_.partitions(), &mesh_);
    Versions versions(resharder, &mesh_);
    LocalOps local_ops(resharder, versions, mesh_, reading);
    for (size_t i = 0; i < block.argument_count(); ++i) {
      ir::Value* argument = block.argument(i);
      const size_t rank = types[i].dims().size();
      Tiling tiling = Tiling::replicated(rank);
      if (draw(random_, 0, 4) > 0) tiling = *tiling_under(cut, *rule, rule->operands[i], mesh_);
      given_.push_back(tiling);
      argument->set_type(
          ir::Type::tensor(DType::kI32, local_shape(mesh_, tiling, types[i].dims())));
      versions.add(argument, types[i], {mesh_.cut_of(tiling), tiling, argument});
    }
    double planned = 0;
    std::vector<Tiling> wanted;
    for (size_t i = 0; i < op->operand_count(); ++i) {
      planned += local_ops.operand_bytes(*op, *rule, cut, i);
    }
    for (size_t r = 0; r < op->result_count(); ++r) {
      wanted.push_back(*tiling_under(cut, *rule, rule->results[r], mesh_));
    }
    made_ = wanted;
    description_ = fmt::format("\n  over {} partitions, result {}", mesh_.partitions(),
                               mesh_.to_text(wanted[0]));
    for (const WindowRead& read : *reads) {
      description_ +=
          fmt::format("\n  operand {}, dimension {} of {}: {} from {}, span {}, dilation {}",
                      read.operand, read.halo.dimension, read.halo.size, read.halo.length,
                      fmt::join(read.halo.starts, " "), read.span, read.dilation);
    }
    HEKLA_RETURN_IF_ERROR(local_ops.compute(*op, *rule, cut, wanted, block));
    const bool is_sum = !reduction_axes(cut, *rule).empty();
    for (size_t r = 0; r < op->result_count(); ++r) {
      HEKLA_ASSIGN_OR_RETURN(ir::Value* const value, versions.part(op->result(r), made_[r]));
      end->set_operand(r, value);
    }
    block.append(std::move(end));
    std::vector<ir::Type> results;
    for (const ir::Value* value : block.terminator()->operands()) results.push_back(value->type());
    entry.type = ir::Type::function(block.argument_types(), std::move(results));
    // What the choice of cuts counts with is what is sent.
    HEKLA_ASSIGN_OR_RETURN(const CollectiveReport report,
                           report_collectives(module, {1, mesh_.partitions()}));
    const double sums =
        report.total(OpCode::kAllReduce).bytes + report.total(OpCode::kReduceScatter).bytes;
    if (is_sum) ++seen_[fmt::format("sum of a {}", program_.name)];
    if (is_sum && !is_even_sum(*rule, cut)) ++seen_["sum of uneven blocks"];
    if (!wanted[0].is_replicated()) ++seen_[program_.name + " over parts"];
    if (std::abs(report.total().bytes - sums - planned) > 0.01) {
      return invalid_argument("{} bytes were planned and {} are sent{}", planned,
                              report.total().bytes - sums, description_);
    }
    return ok_status();
  }

  bool is_even_sum(const sharding::ShardingRule& rule, const OpCut& cut) const {
    return std::all_of(rule.reduction.begin(), rule.reduction.end(), [&](int64_t factor) {
      const auto f = static_cast<size_t>(factor);
      return rule.factor_sizes[f] % mesh_.parts(cut[f]) == 0;
    });
  }

  void count(const WindowRead& read) {
    const HaloRead& halo = read.halo;
    const auto parts = static_cast<int64_t>(halo.starts.size());
    if (parts == 1) return;
    const HaloPlan plan = plan_halo(halo);
    ++seen_[plan.is_uniform ? "one place for all" : "a place for each"];
    if (read.dilation > 1) ++seen_[read.is_plain() ? "even holes" : "uneven holes"];
    if (halo.leaves_below()) ++seen_["in front"];
    if (halo.leaves_above()) ++seen_["behind"];
    if (halo.size % parts != 0) ++seen_["uneven blocks"];
    if (halo.size < parts) ++seen_["empty blocks"];
    const int64_t border = std::max(-halo.starts[0], halo.starts[0] + halo.length - plan.block);
    ++seen_[border <= 0            ? "nothing of neighbours"
            : border < plan.block  ? "less than a block"
            : border == plan.block ? "a block"
                                   : "more than a block"];
  }

  const Program& program_;
  const PrimeMesh& mesh_;
  std::mt19937_64& random_;
  std::map<std::string, int>& seen_;
  std::vector<Tiling> given_, made_;
  std::string description_;
};

TEST(Windows, PartsAreThoseOfTheWhole) {
  const std::function<Program(std::mt19937_64&)> kinds[] = {
      slice,
      pad,
      reverse,
      concatenate,
      roll,
      reduce_window,
      running_fold_program,
      select_and_scatter,
      reduce,
      dot,
      [](std::mt19937_64& random) { return dynamic_piece(random, false); },
      [](std::mt19937_64& random) { return dynamic_piece(random, true); },
      [](std::mt19937_64& random) { return convolution(random, false); },
      [](std::mt19937_64& random) { return convolution(random, true); },
  };
  std::mt19937_64 random(5);
  std::map<std::string, int> seen;
  constexpr int kCases = 700;
  for (int i = 0; i < kCases; ++i) {
    const Program program = kinds[static_cast<size_t>(i) % std::size(kinds)](random);
    const PrimeMesh mesh = random_mesh(random);
    const auto reading = static_cast<Reading>(draw(random, 0, 2));
    ++seen[program.name];
    ++seen[fmt::format("{} partitions", mesh.partitions())];
    EXPECT_EQ(PartsRun(program, mesh, random, seen)(reading), "")
        << "case " << i << ": " << program.name << " of "
        << fmt::format("{}", fmt::join(program.arguments, ", "));
    if (HasFailure()) return;
  }
  EXPECT_LT(seen["refused"], kCases / 5);
  for (const char* name : {"one place for all",
                           "a place for each",
                           "even holes",
                           "uneven holes",
                           "in front",
                           "behind",
                           "uneven blocks",
                           "empty blocks",
                           "nothing of neighbours",
                           "less than a block",
                           "a block",
                           "more than a block",
                           "sum of a convolution over its image",
                           "sum of uneven blocks",
                           "running fold over parts",
                           "select_and_scatter over parts",
                           "slice over parts",
                           "sum of a dynamic_slice",
                           "dynamic_update_slice over parts",
                           "pad over parts",
                           "reverse over parts",
                           "concatenate over parts",
                           "roll over parts",
                           "convolution over parts",
                           "running fold from the end over parts",
                           "reduce_window",
                           "reduce_window of two",
                           "1 partitions",
                           "2 partitions",
                           "3 partitions",
                           "5 partitions",
                           "7 partitions",
                           "8 partitions"}) {
    EXPECT_GT(seen[name], 5) << name;
  }
}

}  // namespace
}  // namespace hekla::spmd
