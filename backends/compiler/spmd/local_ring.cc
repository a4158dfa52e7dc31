// SPDX-License-Identifier: Apache-2.0
// Products around rings: an operand that all devices of a group need is multiplied part by part as
// the parts come by, and a sum that is taken apart again is handed on from device to device, each
// of which adds its own products. What the next step needs travels while a step computes.
#include <algorithm>

#include "backends/compiler/spmd/local_job.h"
#include "backends/compiler/spmd/local_op.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

bool is_product(const ir::Operation& op) {
  return op.code() == OpCode::kDot || op.code() == OpCode::kDotGeneral;
}

// The dimension that is this factor and nothing else.
std::optional<size_t> dimension_that_is(const sharding::ShardingRule::Tensor& dimensions,
                                        int64_t factor) {
  for (size_t d = 0; d < dimensions.size(); ++d) {
    if (dimensions[d] == sharding::ShardingRule::Dimension{factor}) return d;
  }
  return std::nullopt;
}

// By part: the one that comes so many steps after it, begins here.
std::vector<int64_t> starts_after(int64_t steps, int64_t parts, int64_t size) {
  std::vector<int64_t> starts;
  for (int64_t part = 0; part < parts; ++part) starts.push_back((part + steps) % parts * size);
  return starts;
}

ir::GraphBuilder::Values starts_along(ir::GraphBuilder& g, size_t rank, size_t d,
                                      ir::Value* start) {
  ir::GraphBuilder::Values starts(rank, nullptr);
  for (size_t i = 0; i < rank; ++i) {
    starts[i] = i == d ? start : g.integer_constant(DType::kI64, {}, 0);
  }
  return starts;
}

}  // namespace

// Gathering it in steps must bring as much as it does at once, and to this operation alone. Not
// what is contracted: devices that end with the same sum would take it in different orders.
void LocalOps::find_gather_ring(Job& job) const {
  const ir::Operation& op = job.op;
  if (schedule_.rings == Rings::kNever || !is_product(op) || !job.addends.axes.empty()) return;
  for (size_t i = 0; i < 2; ++i) {
    const ir::Value* operand = op.operand(i);
    const std::vector<Tiling> at_hand = versions_.tilings(operand);
    if (operand->users().size() != 1 || at_hand.size() != 1 || !at_hand[0].partial.empty() ||
        versions_.is_from_outside(operand, job.block) ||
        versions_.type(op.operand(1 - i)).dims().empty()) {
      continue;
    }
    const Tiling needed = *tiling_under(job.cut, job.rule, job.rule.operands[i], mesh_);
    const ir::Type& type = versions_.type(operand);
    std::optional<Ring> found;
    bool is_one = true;
    for (size_t d = 0; d < needed.dims.size(); ++d) {
      if (at_hand[0].dims[d] == needed.dims[d]) continue;
      is_one = is_one && !found && needed.dims[d].empty();
      if (job.rule.operands[i][d].size() != 1) is_one = false;
      const auto place = dimension_that_is(job.rule.results[0], job.rule.operands[i][d].front());
      const Axes& axes = at_hand[0].dims[d];
      // A batch of products is cut in both operands.
      const bool is_batch =
          dimension_that_is(job.rule.operands[1 - i], job.rule.operands[i][d].front()).has_value();
      if (!place || is_batch || !is_one || type.dims()[d] == 0 ||
          type.dims()[d] % mesh_.parts(axes) != 0) {
        is_one = false;
        break;
      }
      found = Ring{i, d, *place, axes, /*is_gather=*/true};
    }
    if (!found || !is_one) continue;
    // Sums of what is cut by the same axes would have no parts to travel.
    if (std::any_of(found->axes.begin(), found->axes.end(),
                    [&](int axis) { return contains(job.sums, axis); })) {
      continue;
    }
    const std::optional<Tiling> made = tiling_under(job.cut, job.rule, job.rule.results[0], mesh_);
    Dims piece = local_shape(mesh_, *made, op.result()->type().dims());
    const int64_t parts = mesh_.parts(found->axes);
    piece[found->result_dimension] /= parts;
    const auto sent =
        static_cast<double>(element_count(local_shape(mesh_, at_hand[0], type.dims())));
    if (!pays(job, piece, sent, parts)) continue;
    job.ring = std::move(found);
    return;
  }
}

// All addends are summed, and the sum is taken apart along one dimension that an operand has.
void LocalOps::find_scatter_ring(Job& job, const Tiling& sum, const Tiling& kept) const {
  const ir::Operation& op = job.op;
  if (schedule_.rings == Rings::kNever || !is_product(op) || !job.addends.axes.empty() ||
      !kept.partial.empty() || job.types[0].dtype() == DType::kI1) {
    return;
  }
  std::optional<size_t> along;
  for (size_t d = 0; d < kept.dims.size(); ++d) {
    if (kept.dims[d] == sum.dims[d]) continue;
    if (along) return;
    along = d;
  }
  if (!along || job.rule.results[0][*along].size() != 1) return;
  const Axes& now = sum.dims[*along];
  const Axes& goal = kept.dims[*along];
  Axes axes(goal.begin() + static_cast<std::ptrdiff_t>(now.size()), goal.end());
  Axes sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != sum.partial) return;
  const int64_t factor = job.rule.results[0][*along].front();
  const int64_t parts = mesh_.parts(axes);
  for (size_t i = 0; i < 2; ++i) {
    const auto place = dimension_that_is(job.rule.operands[i], factor);
    // A batch of products is taken apart in both operands.
    if (!place || dimension_that_is(job.rule.operands[1 - i], factor)) continue;
    const int64_t size = job.operands[i]->type().dims()[*place];
    if (size == 0 || size % parts != 0 || size != job.types[0].dims()[*along]) continue;
    Dims piece = job.types[0].dims();
    piece[*along] /= parts;
    if (!pays(job, piece, static_cast<double>(element_count(piece)), parts)) continue;
    job.ring = Ring{i, *place, *along, std::move(axes), /*is_gather=*/false};
    return;
  }
}

// A step computes a piece of the result and sends so many elements.
bool LocalOps::pays(const Job& job, const Dims& piece, double sent_elements, int64_t steps) const {
  if (steps < 2) return false;
  if (schedule_.rings == Rings::kAlways) return true;
  const LinkSpeed& link = schedule_.link;
  if (link.bytes <= 0 || link.flops <= 0) return false;
  double depth = 1;  // of the products' sums, on one device
  for (int64_t factor : job.rule.reduction) {
    depth *= static_cast<double>(job.rule.factor_sizes[static_cast<size_t>(factor)]) /
             static_cast<double>(mesh_.parts(job.cut[static_cast<size_t>(factor)]));
  }
  const DType dtype = job.op.operand(0)->type().dtype();
  const double product = 2 * depth * static_cast<double>(element_count(piece)) / link.flops;
  const double transfer = sent_elements * static_cast<double>(dtype_bytes(dtype)) / link.bytes;
  const auto rest = static_cast<double>(steps - 1);
  const double at_once = link.latency_seconds + rest * transfer + (rest + 1) * product;
  const double in_steps = product + rest * std::max(product, link.latency_seconds + transfer);
  return in_steps < at_once;
}

ir::Value* LocalOps::product(Job& job, const std::vector<ir::Value*>& operands,
                             const Dims& dims) const {
  ir::Operation* made = job.block.append(std::make_unique<ir::Operation>(
      job.op.code(), operands,
      std::vector<ir::Type>{ir::Type::tensor(job.types[0].element(), dims)}, job.attributes,
      job.op.location()));
  return made->result();
}

// Each element is one product's, so it has the bits that it would have.
ir::Value* LocalOps::gather_around_ring(Job& job) {
  ir::GraphBuilder& g = job.g;
  const Ring& ring = *job.ring;
  const int64_t parts = mesh_.parts(ring.axes);
  Dims piece = job.types[0].dims();
  const size_t rank = piece.size();
  piece[ring.result_dimension] /= parts;
  std::vector<ir::Value*> operands = job.operands;
  ir::Value* result = g.constant(job.types[0].dtype(), job.types[0].dims(), 0);
  for (int64_t step = 0; step < parts; ++step) {
    // Sent before this step's product, so that it travels meanwhile.
    ir::Value* next =
        step + 1 < parts ? resharder_.of_next_part(g, operands[ring.operand], ring.axes) : nullptr;
    ir::Value* start = resharder_.number_of_part(
        g, ring.axes, starts_after(step, parts, piece[ring.result_dimension]));
    result = g.dynamic_update_slice(result, product(job, operands, piece),
                                    starts_along(g, rank, ring.result_dimension, start));
    operands[ring.operand] = next;
  }
  return result;
}

// The part that a device ends with was begun by the next one and handed all around.
ir::Value* LocalOps::scatter_around_ring(Job& job) {
  ir::GraphBuilder& g = job.g;
  const Ring& ring = *job.ring;
  const int64_t parts = mesh_.parts(ring.axes);
  Dims piece = job.types[0].dims();
  piece[ring.result_dimension] /= parts;
  ir::Value* const whole = job.operands[ring.operand];
  Dims sizes = whole->type().dims();
  const size_t rank = sizes.size();
  sizes[ring.dimension] /= parts;
  std::vector<ir::Value*> operands = job.operands;
  ir::Value* sum = nullptr;
  for (int64_t step = 0; step < parts; ++step) {
    ir::Value* start = resharder_.number_of_part(
        g, ring.axes, starts_after(step + 1, parts, sizes[ring.dimension]));
    operands[ring.operand] =
        g.dynamic_slice(whole, starts_along(g, rank, ring.dimension, start), sizes);
    ir::Value* so_far = sum == nullptr ? nullptr : resharder_.of_next_part(g, sum, ring.axes);
    ir::Value* own = product(job, operands, piece);
    sum = so_far == nullptr ? own : g.add(so_far, own);
  }
  return sum;
}

}  // namespace hekla::spmd
