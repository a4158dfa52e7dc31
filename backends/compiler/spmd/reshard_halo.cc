// SPDX-License-Identifier: Apache-2.0
// The operations that read what neighbours have.
#include <algorithm>
#include <optional>

#include "backends/compiler/spmd/reshard.h"

namespace hekla::spmd {

using ir::GraphBuilder;
using ir::OpCode;

namespace {

GraphBuilder::Values starts_at(GraphBuilder& g, size_t rank, size_t dimension, ir::Value* start) {
  GraphBuilder::Values starts(rank, nullptr);
  for (size_t d = 0; d < rank; ++d) {
    starts[d] = d == dimension ? start : g.integer_constant(DType::kI64, {}, 0);
  }
  return starts;
}

ir::Value* cut_from(GraphBuilder& g, ir::Value* value, size_t dimension, int64_t begin,
                    int64_t length) {
  const Dims dims = value->type().dims();
  if (begin == 0 && length == dims[dimension]) return value;
  Dims low(dims.size(), 0);
  Dims high = dims;
  low[dimension] = begin;
  high[dimension] = begin + length;
  return g.slice(value, low, high);
}

}  // namespace

// Position i of the dimension is element starts + i of the whole.
ir::Value* Resharder::fill_outside(GraphBuilder& g, ir::Value* value, const HaloRead& read,
                                   ir::Value* fill) const {
  if (fill == nullptr || (!read.leaves_below() && !read.leaves_above())) return value;
  const Dims dims = value->type().dims();
  ir::Value* start = number_of_part(g, read.axes, read.starts);
  ir::Value* place =
      g.add(g.iota(DType::kI64, {read.length}, 0), g.broadcast(start, {read.length}, {}));
  const auto is_inside = [&](const char* direction, int64_t border) {
    return g.compare(direction, place, g.integer_constant(DType::kI64, {read.length}, border));
  };
  ir::Value* inside = nullptr;
  if (read.leaves_below()) inside = is_inside("GE", 0);
  if (read.leaves_above()) {
    ir::Value* below = is_inside("LT", read.size);
    inside = inside == nullptr ? below : g.bit_and(inside, below);
  }
  inside = g.broadcast(inside, dims, {static_cast<int64_t>(read.dimension)});
  return g.select(inside, value, g.broadcast(fill, dims, {}));
}

double Resharder::read_bytes(const HaloRead& read, const Dims& local, DType dtype) {
  double row = static_cast<double>(dtype_bytes(dtype));
  for (size_t d = 0; d < local.size(); ++d) {
    if (d != read.dimension) row *= static_cast<double>(local[d]);
  }
  return plan_halo(read).elements() * row;
}

ir::Value* Resharder::read(GraphBuilder& g, ir::Value* part, const HaloRead& read,
                           ir::Value* fill) {
  const HaloPlan plan = plan_halo(read);
  part = plan.is_uniform ? read_uniform(g, part, read, plan) : read_others(g, part, read, plan);
  return fill_outside(g, part, read, fill);
}

ir::Value* Resharder::read_whole(GraphBuilder& g, ir::Value* value, const HaloRead& read,
                                 ir::Value* fill) {
  const size_t d = read.dimension;
  const Dims dims = value->type().dims();
  const auto [least, most] = std::minmax_element(read.starts.begin(), read.starts.end());
  Dims low(dims.size(), 0), high(dims.size(), 0);
  low[d] = std::max<int64_t>(0, -*least);
  high[d] = std::max<int64_t>(0, *most + read.length - read.size);
  if (low[d] > 0 || high[d] > 0) {
    if (fill == nullptr) {
      value = g.pad(value, low, high);
    } else {
      ir::AttributeMap attributes;
      attributes.set("edge_padding_low", ir::IntArrayValue{DType::kI64, low});
      attributes.set("edge_padding_high", ir::IntArrayValue{DType::kI64, high});
      attributes.set("interior_padding", ir::IntArrayValue{DType::kI64, Dims(dims.size(), 0)});
      value = g.make(OpCode::kPad, {value, fill}, std::move(attributes));
    }
  }
  if (*least == *most) return cut_from(g, value, d, *least + low[d], read.length);
  std::vector<int64_t> starts = read.starts;
  for (int64_t& start : starts) start += low[d];
  Dims sizes = value->type().dims();
  sizes[d] = read.length;
  return g.dynamic_slice(value, starts_at(g, dims.size(), d, number_of_part(g, read.axes, starts)),
                         sizes);
}

// What a round brings; anything where it brings nothing.
ir::Value* Resharder::receive(GraphBuilder& g, ir::Value* part, const HaloRead& read,
                              const HaloPlan::Round& round) {
  const size_t d = read.dimension;
  const HaloPlan::Round::Transfer& first = round.transfers.front();
  Received key{part, d, read.axes, round.length, {}};
  for (const auto& one : round.transfers) std::get<4>(key).push_back({one.from, one.to, one.begin});
  std::vector<ir::Value*>& known = received_[key];
  for (ir::Value* value : known) {
    if (value->defining_op() != nullptr && value->defining_op()->block() == &g.block()) {
      return value;
    }
  }
  const bool is_at_one_place =
      std::all_of(round.transfers.begin(), round.transfers.end(),
                  [&](const auto& one) { return one.begin == first.begin; });
  if (is_at_one_place) {
    part = cut_from(g, part, d, first.begin, round.length);
  } else {
    std::vector<int64_t> begins(read.starts.size(), 0);
    for (const auto& one : round.transfers) begins[static_cast<size_t>(one.from)] = one.begin;
    Dims sizes = part->type().dims();
    ir::Value* begin = number_of_part(g, read.axes, begins);
    const GraphBuilder::Values starts = starts_at(g, sizes.size(), d, begin);
    sizes[d] = round.length;
    part = g.dynamic_slice(part, starts, sizes);
  }
  const bool stays = std::all_of(round.transfers.begin(), round.transfers.end(),
                                 [](const auto& one) { return one.from == one.to; });
  if (stays) return part;
  Groups pairs;
  for (const std::vector<int64_t>& row : mesh_->groups(read.axes)) {
    for (const auto& one : round.transfers) {
      pairs.push_back({row[static_cast<size_t>(one.from)], row[static_cast<size_t>(one.to)]});
    }
  }
  known.push_back(
      collective(g, OpCode::kCollectivePermute, part, pairs, part->type(), {})->result());
  return known.back();
}

ir::Value* Resharder::read_uniform(GraphBuilder& g, ir::Value* part, const HaloRead& read,
                                   const HaloPlan& plan) {
  GraphBuilder::Values pieces;
  for (const HaloPlan::Round& round : plan.rounds) {
    if (round.transfers.empty()) {
      Dims dims = part->type().dims();
      dims[read.dimension] = round.length;
      pieces.push_back(g.constant(part->type().dtype(), dims, 0));
    } else {
      pieces.push_back(receive(g, part, read, round));
    }
  }
  return pieces.size() == 1 ? pieces[0]
                            : g.concatenate(pieces, static_cast<int64_t>(read.dimension));
}

// Pieces are written where the part has them in its window; margins take what reaches beyond, and
// what is brought to parts that get nothing.
ir::Value* Resharder::read_others(GraphBuilder& g, ir::Value* part, const HaloRead& read,
                                  const HaloPlan& plan) {
  const size_t d = read.dimension;
  const auto place_of = [&](const HaloPlan::Round::Transfer& one) {
    return one.from * plan.block + one.begin - read.starts[static_cast<size_t>(one.to)];
  };
  int64_t low = 0, high = 0;
  bool is_all = plan.rounds.size() == 1;
  for (const HaloPlan::Round& round : plan.rounds) {
    if (static_cast<int64_t>(round.transfers.size()) < plan.parts) {
      high = std::max(high, round.length);
      is_all = false;
    }
    for (const auto& one : round.transfers) {
      const int64_t place = place_of(one);
      low = std::max(low, -place);
      high = std::max(high, place + round.length - read.length);
      is_all = is_all && place == 0 && round.length == read.length;
    }
  }
  if (is_all) return receive(g, part, read, plan.rounds[0]);
  Dims dims = part->type().dims();
  dims[d] = low + read.length + high;
  ir::Value* window = g.constant(part->type().dtype(), dims, 0);
  for (const HaloPlan::Round& round : plan.rounds) {
    std::vector<int64_t> places(read.starts.size(), low + read.length);
    for (const auto& one : round.transfers) {
      places[static_cast<size_t>(one.to)] = low + place_of(one);
    }
    window =
        g.dynamic_update_slice(window, receive(g, part, read, round),
                               starts_at(g, dims.size(), d, number_of_part(g, read.axes, places)));
  }
  return cut_from(g, window, d, low, read.length);
}

}  // namespace hekla::spmd
