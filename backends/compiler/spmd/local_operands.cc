// SPDX-License-Identifier: Apache-2.0
// How operands come to an operation in parts, and windows over them.
#include <algorithm>
#include <limits>
#include <utility>

#include "backends/compiler/spmd/local_job.h"
#include "backends/compiler/spmd/local_op.h"
#include "backends/compiler/spmd/local_window.h"
#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<int64_t> list_of(const ir::AttributeMap& attributes, std::string_view name, size_t size,
                             int64_t fallback) {
  const auto* list = attributes.get(name).get<ir::IntArrayValue>();
  return list == nullptr ? std::vector<int64_t>(size, fallback) : list->values;
}

void set_entry(ir::AttributeMap& attributes, std::string_view name, size_t size, int64_t fallback,
               size_t i, int64_t value) {
  std::vector<int64_t> list = list_of(attributes, name, size, fallback);
  list[i] = value;
  attributes.set(name, ir::IntArrayValue{DType::kI64, std::move(list)});
}

ir::Value* padded(ir::GraphBuilder& g, ir::Value* value, ir::Value* fill, size_t dimension,
                  int64_t low, int64_t high, int64_t between) {
  const size_t rank = value->type().dims().size();
  const auto along = [&](int64_t number) {
    std::vector<int64_t> list(rank, 0);
    list[dimension] = number;
    return ir::IntArrayValue{DType::kI64, std::move(list)};
  };
  ir::AttributeMap attributes;
  attributes.set("edge_padding_low", along(low));
  attributes.set("edge_padding_high", along(high));
  attributes.set("interior_padding", along(between));
  return g.make(OpCode::kPad, {value, fill}, std::move(attributes));
}

}  // namespace

void set_padding(const ir::Operation& op, ir::AttributeMap& attributes, size_t size, size_t i,
                 int64_t low, int64_t high) {
  HostArray padding(DType::kI64, {static_cast<int64_t>(size), 2});
  int64_t* values = padding.mutable_as<int64_t>();
  std::fill_n(values, 2 * size, 0);
  ir::Operation now(op.code(), {}, {}, attributes, op.location());
  const auto given = ir::padding_of(now);
  for (size_t d = 0; d < given.size(); ++d) {
    values[2 * d] = given[d][0];
    values[2 * d + 1] = given[d][1];
  }
  values[2 * i] = low;
  values[2 * i + 1] = high;
  attributes.set("padding", ir::make_dense(ir::Type::tensor(DType::kI64, padding.dims()), padding));
}

LocalOps::OperandWay LocalOps::way_of(const ir::Value* operand, const Tiling& tiling,
                                      const WindowReads& reads, size_t number) {
  const ir::Type& type = versions_.type(operand);
  const auto least = [&](const Tiling& to) { return versions_.bytes(operand, to); };
  OperandWay exchanged{tiling, true, least(tiling)};
  Tiling whole = tiling;
  Dims local = local_shape(mesh_, tiling, type.dims());
  bool is_read = false;
  for (const WindowRead& read : reads) {
    if (read.operand != number) continue;
    const HaloRead& halo = read.halo;
    is_read = true;
    whole.dims[halo.dimension].clear();
    if (!may_exchange(halo)) {
      exchanged.bytes = kInfinite;
      continue;
    }
    exchanged.bytes += Resharder::read_bytes(halo, local, type.dtype());
    local[halo.dimension] = halo.length;
  }
  if (!is_read) return exchanged;
  OperandWay gathered{std::move(whole), false, 0};
  gathered.bytes = least(gathered.tiling);
  if (reading_ != Reading::kByBytes) {
    const bool is_forced = reading_ == Reading::kFromNeighbours && exchanged.bytes < kInfinite;
    return is_forced ? exchanged : gathered;
  }
  // What is gathered is all there for others, but takes more memory.
  return gathered.bytes == 0 || exchanged.bytes > gathered.bytes ? gathered : exchanged;
}

double LocalOps::operand_bytes(const ir::Operation& op, const ShardingRule& rule, const OpCut& cut,
                               size_t operand, const Addends& addends) {
  std::vector<ir::Type> types;
  for (const ir::Value* value : op.operands()) types.push_back(versions_.type(value));
  std::optional<Tiling> tiling = tiling_under(cut, rule, rule.operands[operand], mesh_);
  const std::optional<WindowReads> reads = window_reads(op, rule, cut, mesh_, types);
  if (!tiling || !reads) return kInfinite;
  if (!addends.axes.empty() && addends.operands[operand]) tiling->partial = addends.axes;
  double bytes = way_of(op.operand(operand), *tiling, *reads, operand).bytes;
  if (operand > 0) return bytes;
  // The others get each part's total.
  const std::optional<Tiling> made = tiling_under(cut, rule, rule.results[0], mesh_);
  if (!made) return kInfinite;
  const Dims local = local_shape(mesh_, *made, op.result(0)->type().dims());
  for (const RunningDimension& one : running_dimensions(op, rule, cut, types[0].dims())) {
    bytes += static_cast<double>((mesh_.parts(one.axes) - 1) * dtype_bytes(types[0].dtype()) *
                                 element_count(local) / local[one.dimension]);
  }
  return bytes;
}

Status LocalOps::take_operands(Job& job) {
  ir::Operation& op = job.op;
  std::vector<ir::Type> types;
  for (const ir::Value* value : op.operands()) types.push_back(versions_.type(value));
  job.reads = *window_reads(op, job.rule, job.cut, mesh_, types);
  job.windows.resize(job.reads.size());
  std::vector<OperandWay> ways;
  find_gather_ring(job);
  for (size_t i = 0; i < op.operand_count(); ++i) {
    Tiling tiling = *tiling_under(job.cut, job.rule, job.rule.operands[i], mesh_);
    if (!job.addends.axes.empty() && job.addends.operands[i]) tiling.partial = job.addends.axes;
    job.operand_tilings.push_back(tiling);
    ways.push_back(way_of(op.operand(i), tiling, job.reads, i));
    if (job.ring && job.ring->operand == i) {
      ways[i].tiling.dims[job.ring->dimension] = job.ring->axes;
    }
    HEKLA_ASSIGN_OR_RETURN(ir::Value* const part, versions_.part(op.operand(i), ways[i].tiling));
    job.operands.push_back(part);
  }
  const auto fill_of = [&](size_t operand) -> ir::Value* {
    switch (op.code()) {
      case OpCode::kConvolution:
        return job.g.constant(types[operand].dtype(), {}, 0);
      case OpCode::kPad:
        return job.operands[1];
      case OpCode::kReduceWindow:
        return job.operands[op.result_count() + operand];
      default:
        return nullptr;
    }
  };
  for (size_t k = 0; k < job.reads.size(); ++k) {
    const HaloRead& halo = job.reads[k].halo;
    const size_t i = job.reads[k].operand;
    // A roll reads one array twice; others read one dimension after the other.
    ir::Value* value = ways[i].is_exchanged
                           ? resharder_.read(job.g, job.operands[i], halo, fill_of(i))
                           : resharder_.read_whole(job.g, job.operands[i], halo, fill_of(i));
    job.windows[k] = value;
    if (!is_roll(op)) job.operands[i] = value;
  }
  // When all is there: what was sent has no holes.
  for (const WindowRead& read : job.reads) {
    if (read.is_plain()) continue;
    ir::Value*& operand = job.operands[read.operand];
    operand = spread_window(job, read, operand, fill_of(read.operand));
  }
  fill_blocks(job);
  return ok_status();
}

// Where phases differ, the elements are spread over their positions, from which each part takes its
// own.
ir::Value* LocalOps::spread_window(Job& job, const WindowRead& read, ir::Value* value,
                                   ir::Value* fill) {
  ir::GraphBuilder& g = job.g;
  const size_t d = read.halo.dimension;
  const int64_t behind = read.span - (read.halo.length - 1) * read.dilation - 1;
  value = padded(g, value, fill, d, read.dilation - 1, behind, read.dilation - 1);
  std::vector<int64_t> places;
  for (int64_t phase : read.phases) places.push_back(read.dilation - 1 - phase);
  Dims sizes = value->type().dims();
  ir::GraphBuilder::Values starts(sizes.size(), nullptr);
  for (size_t i = 0; i < sizes.size(); ++i) {
    starts[i] = i == d ? resharder_.number_of_part(g, read.halo.axes, places)
                       : g.integer_constant(DType::kI64, {}, 0);
  }
  sizes[d] = read.span;
  return g.dynamic_slice(value, starts, sizes);
}

// Attributes that speak of the whole array speak of what was read.
void LocalOps::go_over_windows(Job& job) {
  const ir::Operation& op = job.op;
  ir::GraphBuilder& g = job.g;
  if (is_roll(op) || op.code() == OpCode::kConcatenate) {
    // The pieces follow each other along the dimension of the whole result.
    const auto d = static_cast<size_t>(
        ir::int_value(op, is_roll(op) ? kRollDimension : std::string_view("dimension")));
    const Dims& dims = job.result_dims(0);
    const HaloRead& first = job.reads[0].halo;
    ir::Value* start = resharder_.start_of_part(g, first.axes, dims[d]);
    ir::Value* place = g.add(g.iota(DType::kI64, {dims[d]}, 0), g.broadcast(start, {dims[d]}, {}));
    std::vector<int64_t> ends;
    for (const WindowRead& read : job.reads) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + read.halo.size);
    }
    if (is_roll(op)) ends[0] = first.size - ir::int_value(op, kRollBegin);
    ir::Value* value = job.windows.back();
    for (size_t k = job.windows.size() - 1; k-- > 0;) {
      ir::Value* is_in_front =
          g.compare("LT", place, g.integer_constant(DType::kI64, {dims[d]}, ends[k]));
      is_in_front = g.broadcast(is_in_front, dims, {static_cast<int64_t>(d)});
      value = g.select(is_in_front, job.windows[k], value);
    }
    job.made = {value};
    return;
  }
  if (op.code() == OpCode::kSelectAndScatter) return select_and_scatter(job);
  for (const WindowRead& read : job.reads) {
    if (read.operand != 0) continue;
    const size_t d = read.halo.dimension;
    const size_t rank = job.operands[0]->type().dims().size();
    ir::AttributeMap& attributes = job.attributes;
    switch (op.code()) {
      case OpCode::kSlice:
        set_entry(attributes, "start_indices", rank, 0, d, 0);
        set_entry(attributes, "limit_indices", rank, 0, d, read.halo.length);
        break;
      case OpCode::kPad:
        set_entry(attributes, "edge_padding_low", rank, 0, d, read.padding_low());
        set_entry(attributes, "edge_padding_high", rank, 0, d, read.padding_high());
        set_entry(attributes, "interior_padding", rank, 0, d, read.local_dilation() - 1);
        break;
      case OpCode::kReduceWindow:
        set_entry(attributes, "base_dilations", rank, 1, d, read.local_dilation());
        set_padding(op, attributes, rank, d, read.padding_low(), read.padding_high());
        break;
      case OpCode::kConvolution: {
        const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
        const auto& spatial = n->input_spatial_dimensions;
        const auto place = static_cast<size_t>(
            std::find(spatial.begin(), spatial.end(), static_cast<int64_t>(d)) - spatial.begin());
        set_entry(attributes, "lhs_dilation", spatial.size(), 1, place, read.local_dilation());
        set_padding(op, attributes, spatial.size(), place, read.padding_low(), read.padding_high());
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace hekla::spmd
