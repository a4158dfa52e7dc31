// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/versions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backends/compiler/spmd/linear.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/uses.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// How far a question for bytes, and what is computed by it, goes back, and how many operations it
// asks: no question takes long, and no long chain is computed twice.
constexpr int kMaxDepth = 12;
constexpr int kMaxAsked = 64;

}  // namespace

void Versions::add(const ir::Value* value, const ir::Type& whole, Parts parts) {
  Entry& entry = own_entry(value);
  entry.type = whole;
  if (parts.cut.is_whole()) {
    entry.whole = parts.value;
  } else {
    entry.parts.push_back(std::move(parts));
  }
}

void Versions::set_whole(const ir::Value* value, const ir::Type& type, ir::Value* other) {
  Entry& entry = own_entry(value);
  entry.type = type;
  entry.whole = other;
}

const ir::Type& Versions::type(const ir::Value* value) const {
  const auto known = entries_.find(value);
  return known == entries_.end() ? value->type() : known->second->type;
}

bool Versions::is_whole(const ir::Value* value) const {
  const auto known = entries_.find(value);
  return known == entries_.end() || known->second->whole != nullptr;
}

bool Versions::is_from_outside(const ir::Value* value, const ir::Block& block) const {
  const auto known = entries_.find(value);
  if (known == entries_.end()) return ir::block_of(*value) != &block;
  const Entry& entry = *known->second;
  const ir::Value* at_hand = entry.whole != nullptr ? entry.whole : entry.parts.front().value;
  return ir::block_of(*at_hand) != &block;
}

std::vector<Tiling> Versions::tilings(const ir::Value* value) const {
  std::vector<Tiling> found;
  if (is_whole(value)) found.push_back(Tiling::replicated(type(value).dims().size()));
  if (const auto known = entries_.find(value); known != entries_.end()) {
    for (const Parts& parts : known->second->parts) {
      if (parts.tiling) found.push_back(*parts.tiling);
    }
  }
  return found;
}

const Versions::EntryRef& Versions::known_entry(ir::Value* value) {
  const auto [found, is_new] = entries_.try_emplace(value);
  if (is_new) {
    found->second = std::make_shared<Entry>();
    found->second->type = value->type();
    found->second->whole = value;
  }
  return found->second;
}

Versions::Entry& Versions::own_entry(const ir::Value* value) {
  EntryRef& entry = entries_[value];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return *entry;
}

Result<ir::Value*> Versions::whole(ir::Value* value) {
  Entry& entry = entry_of(value);
  if (entry.whole != nullptr) return entry.whole;
  const Dims& dims = entry.type.dims();
  const Tiling all = Tiling::replicated(dims.size());
  const Parts* cheapest = &entry.parts.front();
  if (mesh_ != nullptr) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_made, recompute(entry, all, reshard_bytes(entry, all)));
    if (is_made) return entry.whole;
    for (const Parts& parts : entry.parts) {
      if (!parts.tiling) continue;
      if (!cheapest->tiling ||
          bytes(*parts.tiling, all, entry.type) < bytes(*cheapest->tiling, all, entry.type)) {
        cheapest = &parts;
      }
    }
  }
  ir::GraphBuilder g(*ir::block_of(*cheapest->value), nullptr, location_);
  entry.whole = cheapest->tiling
                    ? resharder_.reshard(g, cheapest->value, *cheapest->tiling, all, dims)
                    : resharder_.gather(g, cheapest->value, cheapest->cut, dims);
  HEKLA_RETURN_IF_ERROR(g.status());
  return entry.whole;
}

Result<ir::Value*> Versions::part(ir::Value* value, const Tiling& tiling) {
  if (tiling.is_replicated()) return whole(value);
  Entry& entry = entry_of(value);
  const auto at_hand = [&]() -> ir::Value* {
    for (const Parts& parts : entry.parts) {
      if (parts.tiling && *parts.tiling == tiling) return parts.value;
    }
    return nullptr;
  };
  if (ir::Value* known = at_hand()) return known;
  Parts made;
  made.cut = mesh_->cut_of(tiling);
  made.tiling = tiling;
  HEKLA_ASSIGN_OR_RETURN(made.value, part_of_pattern(value, tiling));
  const Dims& dims = entry.type.dims();
  if (made.value == nullptr) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_made,
                           recompute(entry, tiling, reshard_bytes(entry, tiling)));
    if (is_made) {
      if (ir::Value* known = at_hand()) return known;
    }
    const Parts* cheapest = nullptr;
    double least = 0;
    for (const Parts& parts : entry.parts) {
      if (!parts.tiling) continue;
      const double moved = bytes(*parts.tiling, tiling, entry.type);
      if (cheapest == nullptr || moved < least) {
        cheapest = &parts;
        least = moved;
      }
    }
    if (entry.whole == nullptr && cheapest == nullptr) HEKLA_RETURN_IF_ERROR(whole(value).status());
    // A part of the whole moves nothing.
    const bool from_whole = entry.whole != nullptr && (cheapest == nullptr || least > 0);
    ir::Value* source = from_whole ? entry.whole : cheapest->value;
    ir::GraphBuilder g(*ir::block_of(*source), nullptr, location_);
    made.value = resharder_.reshard(
        g, source, from_whole ? Tiling::replicated(dims.size()) : *cheapest->tiling, tiling, dims);
    HEKLA_RETURN_IF_ERROR(g.status());
  }
  entry.parts.push_back(made);
  return made.value;
}

Result<ir::Value*> Versions::part(ir::Value* value, const Cut& cut, bool copies_agree) {
  if (cut.is_whole()) return whole(value);
  for (const Parts& parts : entry_of(value).parts) {
    if (parts.cut == cut) return parts.value;
  }
  if (copies_agree && entry_of(value).whole == nullptr) {
    const Parts& parts = entry_of(value).parts.front();
    ir::GraphBuilder g(*ir::block_of(*parts.value), nullptr, location_);
    if (ir::Value* moved = resharder_.permute(g, parts.value, parts.cut, cut)) {
      HEKLA_RETURN_IF_ERROR(g.status());
      entry_of(value).parts.push_back({cut, {}, moved});
      return moved;
    }
  }
  HEKLA_ASSIGN_OR_RETURN(ir::Value* const all, whole(value));
  ir::GraphBuilder g(*ir::block_of(*all), nullptr, location_);
  Parts made{cut, {}, resharder_.take_part(g, all, cut)};
  HEKLA_RETURN_IF_ERROR(g.status());
  Entry& entry = entry_of(value);
  entry.parts.push_back(made);
  return made.value;
}

double Versions::bytes(const Tiling& from, const Tiling& to, const ir::Type& whole) {
  return from == to ? 0 : resharder_.reshard_bytes(from, to, whole.dims(), whole.dtype());
}

double Versions::bytes(const ir::Value* value, const Tiling& to) {
  const auto known = entries_.find(value);
  if (known == entries_.end()) return 0;  // whole
  const double least = reshard_bytes(*known->second, to);
  return least == 0 ? 0 : std::min(least, recompute_bytes(*known->second, to));
}

double Versions::reshard_bytes(const Entry& entry, const Tiling& to) {
  double least = kInfinite;
  if (entry.whole != nullptr) {
    least = bytes(Tiling::replicated(entry.type.dims().size()), to, entry.type);
  }
  for (const Parts& parts : entry.parts) {
    if (parts.tiling) least = std::min(least, bytes(*parts.tiling, to, entry.type));
  }
  return least;
}

double Versions::recompute_bytes(const Entry& entry, const Tiling& to) {
  if (recomputer_ == nullptr || entry.maker == nullptr || !to.partial.empty()) return kInfinite;
  if (depth_ == 0) asked_ = 0;
  if (depth_ == kMaxDepth || asked_ == kMaxAsked) return kInfinite;
  ++depth_;
  ++asked_;
  const double bytes = recomputer_->bytes(*entry.maker, to);
  --depth_;
  return bytes;
}

Result<bool> Versions::recompute(Entry& entry, const Tiling& tiling, double bytes) {
  if (bytes == 0 || bytes == kInfinite || computing_ == kMaxDepth ||
      recompute_bytes(entry, tiling) > bytes) {
    return false;
  }
  const ir::LocationRef location = location_;
  ++computing_;
  const Status status =
      recomputer_->compute(*entry.maker, tiling, *ir::block_of(*entry.parts.front().value));
  --computing_;
  HEKLA_RETURN_IF_ERROR(status);
  location_ = location;
  return true;
}

Result<ir::Value*> Versions::part_of_pattern(ir::Value* value, const Tiling& tiling) {
  const Entry& entry = entry_of(value);
  if (entry.whole == nullptr) return nullptr;
  // The addends of zeros are zeros; others have one that is not.
  if (!tiling.partial.empty() && !is_zero(*entry.whole)) return nullptr;
  const ir::Operation* op = entry.whole->defining_op();
  if (op == nullptr) return nullptr;
  const Dims local = local_shape(*mesh_, tiling, entry.type.dims());
  ir::GraphBuilder g(*op->block(), nullptr, location_);
  ir::Value* made = nullptr;
  if (op->code() == OpCode::kConstant) {
    const ir::DenseValue* dense = ir::constant_value(*entry.whole);
    if (dense != nullptr && dense->is_splat) {
      const ir::Type type = ir::Type::tensor(entry.type.element(), local);
      ir::AttributeMap attributes;
      attributes.set("value", ir::DenseValue{type, dense->values, true});
      made = g.make(OpCode::kConstant, {}, std::move(attributes), type);
    }
  } else if (op->code() == OpCode::kBroadcastInDim && op->operand(0)->type().dims().empty()) {
    made = g.broadcast(op->operand(0), local, {});
  } else if (op->code() == OpCode::kIota) {
    const auto d = static_cast<size_t>(ir::int_value(*op, "iota_dimension"));
    // Counted in integers: sums of large floats would be rounded.
    made = g.iota(DType::kI64, local, static_cast<int64_t>(d));
    if (!tiling.dims[d].empty()) {
      ir::Value* start = resharder_.start_of_part(g, tiling.dims[d], local[d]);
      made = g.add(made, g.broadcast(start, local, {}));
    }
    made = g.convert(made, entry.type.dtype());
  }
  HEKLA_RETURN_IF_ERROR(g.status());
  return made;
}

}  // namespace hekla::spmd
