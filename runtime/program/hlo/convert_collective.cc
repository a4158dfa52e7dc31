// SPDX-License-Identifier: Apache-2.0
// Collectives, transfers, and what XLA starts and ends asynchronously.
//
// A start does the whole work and its end hands on what came of it: a legal order, and what
// devices run that have no asynchronous operations.
#include <utility>

#include "runtime/program/hlo/attributes.h"
#include "runtime/program/hlo/converter.h"
#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;
using Regions = std::vector<std::unique_ptr<ir::Region>>;
using Attributes = std::vector<ir::NamedAttribute>;

// replica_groups, channel_handle and use_global_device_ids.
Result<Attributes> group_attributes(const Site& site) {
  Attributes attributes;
  Result<ir::Attribute> groups = replica_groups(site.fields());
  if (!groups.ok()) return site.error("{}", groups.status().message());
  attributes.emplace_back("replica_groups", *std::move(groups));
  // Numbers that are not positive stand for none.
  const int64_t channel = site.fields().integer(kChannelId, site.fields().integer(kAllReduceId));
  if (channel > 0) attributes.emplace_back("channel_handle", ir::ChannelHandle{channel, 0});
  attributes.emplace_back("use_global_device_ids",
                          ir::BoolValue{site.fields().flag(kUseGlobalDeviceIds)});
  return attributes;
}

Result<int64_t> only_dimension(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, site.integers(kDimensionsField));
  if (dims.size() != 1) return site.error("is about one dimension, names {}", dims.size());
  return dims[0];
}

Result<Leaves> gather_from_all(const Site& site, std::vector<ir::Type> types) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_ASSIGN_OR_RETURN(const int64_t dim, only_dimension(site));
  HEKLA_ASSIGN_OR_RETURN(Attributes attributes, group_attributes(site));
  attributes.emplace_back("all_gather_dim", ir::i64_attribute(dim));
  return site.append_as(OpCode::kAllGather, std::move(types), std::move(operands),
                        std::move(attributes));
}

Result<Leaves> convert_all_gather(const Site& site) {
  return gather_from_all(site, leaf_types(site.shape()));
}

// Operands of one element type each.
Result<Leaves> convert_all_reduce(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  HEKLA_ASSIGN_OR_RETURN(const Attributes attributes, group_attributes(site));
  Leaves results(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (results[i] != nullptr) continue;
    Leaves of_type;
    std::vector<size_t> positions;
    std::vector<ir::Type> types;
    for (size_t k = i; k < operands.size(); ++k) {
      if (!(operands[k]->type().element() == operands[i]->type().element())) continue;
      of_type.push_back(operands[k]);
      types.push_back(operands[k]->type());
      positions.push_back(k);
    }
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> region, site.region(0));
    Regions regions;
    regions.push_back(std::move(region));
    const Leaves reduced = site.append_as(OpCode::kAllReduce, std::move(types), std::move(of_type),
                                          attributes, std::move(regions));
    for (size_t k = 0; k < positions.size(); ++k) results[positions[k]] = reduced[k];
  }
  return results;
}

Result<Leaves> convert_reduce_scatter(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  HEKLA_ASSIGN_OR_RETURN(const int64_t dim, only_dimension(site));
  HEKLA_ASSIGN_OR_RETURN(Attributes attributes, group_attributes(site));
  attributes.emplace_back("scatter_dimension", ir::i64_attribute(dim));
  const std::vector<ir::Type> types = leaf_types(site.shape());
  if (types.size() != operands.size()) {
    return site.error("has {} operands and {} results", operands.size(), types.size());
  }
  Leaves results;
  for (size_t i = 0; i < operands.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> region, site.region(0));
    Regions regions;
    regions.push_back(std::move(region));
    results.push_back(site.append_as(OpCode::kReduceScatter, {types[i]}, {operands[i]}, attributes,
                                     std::move(regions))[0]);
  }
  return results;
}

// Operand i goes to participant i, result i came from it: rows of one array.
Result<Leaves> exchange_operands(const Site& site, const Leaves& operands, Attributes attributes) {
  const ir::Type& type = operands[0]->type();
  ir::GraphBuilder g = site.builder();
  Leaves rows;
  Dims row = {1};
  row.insert(row.end(), type.dims().begin(), type.dims().end());
  for (ir::Value* operand : operands) {
    if (!operand->type().is_static_tensor() || !(operand->type() == type)) {
      return site.error("exchanges {} and {}", type.to_string(), operand->type().to_string());
    }
    rows.push_back(g.reshape(operand, row));
  }
  const int64_t count = static_cast<int64_t>(operands.size());
  attributes.emplace_back("split_dimension", ir::i64_attribute(0));
  attributes.emplace_back("concat_dimension", ir::i64_attribute(0));
  attributes.emplace_back("split_count", ir::i64_attribute(count));
  ir::Value* all = g.concatenate(rows, 0);
  all = site.append_as(OpCode::kAllToAll, {all->type()}, {all}, std::move(attributes))[0];
  Leaves results;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> begin(row.size(), 0);
    std::vector<int64_t> end = row;
    begin[0] = i;
    end[0] = i + 1;
    results.push_back(g.reshape(g.slice(all, begin, end), type.dims()));
  }
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return results;
}

Result<Leaves> convert_all_to_all(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  if (operands.empty()) return site.error("has no operand");
  HEKLA_ASSIGN_OR_RETURN(Attributes attributes, group_attributes(site));
  std::erase_if(attributes, [](const auto& one) { return one.first == "use_global_device_ids"; });
  if (site.fields().flag(kUseGlobalDeviceIds)) {
    return site.refuse("groups devices by their global ids");
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, site.integers(kDimensionsField));
  if (dims.empty()) return exchange_operands(site, operands, std::move(attributes));
  if (dims.size() != 1 || operands.size() != 1) {
    return site.error("splits {} operands along {} dimensions", operands.size(), dims.size());
  }
  const auto* groups = attributes[0].second.get<ir::DenseValue>();
  const ir::Type& type = operands[0]->type();
  int64_t count = groups == nullptr || groups->type.dims()[0] == 0 ? 0 : groups->type.dims()[1];
  if (count == 0) {
    // Everybody: as many as the dimension has parts, which nothing else tells.
    if (dims[0] < 0 || dims[0] >= type.rank()) return site.error("has no dimension {}", dims[0]);
    count = type.dims()[static_cast<size_t>(dims[0])];
    if (groups == nullptr) return site.refuse("splits among groups by mesh axes");
  }
  attributes.emplace_back("split_dimension", ir::i64_attribute(dims[0]));
  attributes.emplace_back("concat_dimension", ir::i64_attribute(dims[0]));
  attributes.emplace_back("split_count", ir::i64_attribute(count));
  return site.append(OpCode::kAllToAll, std::move(operands), std::move(attributes));
}

Result<Leaves> convert_collective_broadcast(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_ASSIGN_OR_RETURN(Attributes attributes, group_attributes(site));
  std::erase_if(attributes, [](const auto& one) { return one.first == "use_global_device_ids"; });
  return site.append(OpCode::kCollectiveBroadcast, std::move(operands), std::move(attributes));
}

Result<Leaves> convert_collective_reduce(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  HEKLA_ASSIGN_OR_RETURN(Attributes attributes, group_attributes(site));
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> region, site.region(0));
  Regions regions;
  regions.push_back(std::move(region));
  return site.append(OpCode::kCollectiveReduce, std::move(operands), std::move(attributes),
                     std::move(regions));
}

// One operation for each operand that is sent as a whole.
Result<Leaves> permute(const Site& site, const Leaves& operands) {
  Result<ir::Attribute> pairs = source_target_pairs(site.fields());
  if (!pairs.ok()) return site.error("{}", pairs.status().message());
  Attributes attributes = {{"source_target_pairs", *std::move(pairs)}};
  const int64_t channel = site.fields().integer(kChannelId);
  if (channel > 0) attributes.emplace_back("channel_handle", ir::ChannelHandle{channel, 0});
  Leaves results;
  for (ir::Value* operand : operands) {
    results.push_back(
        site.append_as(OpCode::kCollectivePermute, {operand->type()}, {operand}, attributes)[0]);
  }
  return results;
}

Result<Leaves> convert_collective_permute(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const Leaves operands, site.tensors());
  if (site.shape().leaf_count != operands.size() || site.fields().has(kDynamicSliceSizes)) {
    return site.refuse("sends parts of its operand into parts of another");
  }
  return permute(site, operands);
}

Result<Leaves> convert_partition_id(const Site& site) {
  return site.append(OpCode::kPartitionId, {});
}
Result<Leaves> convert_replica_id(const Site& site) { return site.append(OpCode::kReplicaId, {}); }

// Transfers.

ir::NamedAttribute channel_of(const Site& site, int64_t host_type) {
  const bool is_host = site.fields().flag(kIsHostTransfer);
  return {"channel_handle",
          ir::ChannelHandle{site.fields().integer(kChannelId), is_host ? host_type : 1}};
}

// What an asynchronous start says of its context, which nobody reads.
Status append_contexts(const Site& site, Leaves& leaves) {
  const std::vector<ir::Type> types = leaf_types(site.shape());
  for (size_t i = leaves.size(); i < types.size(); ++i) {
    if (!types[i].is_static_tensor() || types[i].rank() != 0) {
      return site.error("has {} results, is declared as {}", leaves.size(),
                        shape_text(site.shape()));
    }
    leaves.push_back(site.builder().constant(types[i].dtype(), {}, 0));
  }
  return ok_status();
}

// (data, u32, token).
Result<Leaves> convert_send(const Site& site) {
  Leaves operands = site.flat();
  if (operands.empty()) return site.error("has no operand");
  Leaves results(operands.begin(), operands.end() - 1);
  ir::Value* token =
      site.append_as(OpCode::kSend, {ir::Type::token()}, operands,
                     {channel_of(site, 2),
                      {"is_host_transfer", ir::BoolValue{site.fields().flag(kIsHostTransfer)}}})[0];
  results.push_back(site.builder().constant(DType::kUI32, {}, 0));
  results.push_back(token);
  return results;
}

Result<Leaves> convert_recv(const Site& site) {
  const std::vector<ir::Type> types = leaf_types(site.shape());
  if (types.size() < 2) return site.error("gives {}", shape_text(site.shape()));
  std::vector<ir::Type> received(types.begin(), types.end() - 2);
  received.push_back(ir::Type::token());
  Leaves results =
      site.append_as(OpCode::kRecv, std::move(received), site.flat(),
                     {channel_of(site, 3),
                      {"is_host_transfer", ir::BoolValue{site.fields().flag(kIsHostTransfer)}}});
  results.insert(results.end() - 1, site.builder().constant(DType::kUI32, {}, 0));
  return results;
}

Result<Leaves> convert_send_done(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  if (site.operands[0].empty()) return site.error("ends nothing");
  return Leaves{site.operands[0].back()};
}

Result<Leaves> convert_recv_done(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  Leaves results = site.operands[0];
  if (results.size() < 2) return site.error("ends nothing");
  results.erase(results.end() - 2);
  return results;
}

Result<Leaves> convert_infeed(const Site& site) {
  return site.append(OpCode::kInfeed, site.flat(),
                     {{"infeed_config", ir::StringValue{site.fields().text(kInfeedConfig)}}});
}

Result<Leaves> convert_outfeed(const Site& site) {
  return site.append(OpCode::kOutfeed, site.flat(),
                     {{"outfeed_config", ir::StringValue{site.fields().text(kOutfeedConfig)}}});
}

// Asynchronous forms.

// (operands, results, contexts ...): the types of element 1.
Result<std::vector<ir::Type>> types_of_results(const Site& site) {
  if (!site.shape().is_tuple || site.shape().elements.size() < 2) {
    return site.error("gives {}", shape_text(site.shape()));
  }
  return leaf_types(site.shape().elements[1]);
}

Result<Leaves> started(const Site& site, const Leaves& results) {
  Leaves leaves = site.flat();
  leaves.insert(leaves.end(), results.begin(), results.end());
  HEKLA_RETURN_IF_ERROR(append_contexts(site, leaves));
  return leaves;
}

Result<Leaves> convert_all_gather_start(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> types, types_of_results(site));
  HEKLA_ASSIGN_OR_RETURN(const Leaves results, gather_from_all(site, std::move(types)));
  return started(site, results);
}

Result<Leaves> convert_collective_permute_start(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<ir::Type> types, types_of_results(site));
  HEKLA_ASSIGN_OR_RETURN(const Leaves operands, site.tensors());
  if (types.size() != operands.size()) {
    return site.refuse("sends parts of its operand into parts of another");
  }
  HEKLA_ASSIGN_OR_RETURN(const Leaves results, permute(site, operands));
  return started(site, results);
}

Result<Leaves> convert_async_start(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  HEKLA_ASSIGN_OR_RETURN(
      const Leaves results,
      site.converter.body_or_call(site.instruction.called[0], site.operands, site.block,
                                  site.depth + 1, site.instruction.location));
  return started(site, results);
}

Result<Leaves> convert_async_update(const Site& site) {
  if (site.operands.empty()) return site.error("has no operand");
  return site.operands[0];
}

// Element 1 of what was started.
Result<Leaves> convert_done(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  const Shape& start = site.operand_shape(0);
  if (!start.is_tuple || start.elements.size() < 2) {
    return site.error("ends {}", shape_text(start));
  }
  const auto first = site.operands[0].begin() + static_cast<std::ptrdiff_t>(first_leaf(start, 1));
  return Leaves(first, first + static_cast<std::ptrdiff_t>(start.elements[1].leaf_count));
}

Result<Leaves> convert_all_reduce_done(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  return site.operands[0];
}

// (destination, source, context).
Result<Leaves> convert_copy_start(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  Leaves leaves = site.operands[0];
  leaves.insert(leaves.end(), site.operands[0].begin(), site.operands[0].end());
  HEKLA_RETURN_IF_ERROR(append_contexts(site, leaves));
  return leaves;
}

Result<Leaves> convert_copy_done(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  const Shape& start = site.operand_shape(0);
  if (!start.is_tuple || start.elements.empty()) return site.error("ends {}", shape_text(start));
  const auto first = site.operands[0].begin();
  return Leaves(first, first + static_cast<std::ptrdiff_t>(start.elements[0].leaf_count));
}

constexpr Handler kCollective[] = {
    {"all-gather", convert_all_gather},
    {"all-gather-done", convert_done},
    {"all-gather-start", convert_all_gather_start},
    {"all-reduce", convert_all_reduce},
    {"all-reduce-done", convert_all_reduce_done},
    {"all-reduce-start", convert_all_reduce},
    {"all-to-all", convert_all_to_all},
    {"async-done", convert_done},
    {"async-start", convert_async_start},
    {"async-update", convert_async_update},
    {"collective-broadcast", convert_collective_broadcast},
    {"collective-permute", convert_collective_permute},
    {"collective-permute-done", convert_done},
    {"collective-permute-start", convert_collective_permute_start},
    {"collective-reduce", convert_collective_reduce},
    {"copy-done", convert_copy_done},
    {"copy-start", convert_copy_start},
    {"infeed", convert_infeed},
    {"outfeed", convert_outfeed},
    {"partition-id", convert_partition_id},
    {"recv", convert_recv},
    {"recv-done", convert_recv_done},
    {"reduce-scatter", convert_reduce_scatter},
    {"replica-id", convert_replica_id},
    {"send", convert_send},
    {"send-done", convert_send_done},
};

}  // namespace

std::span<const Handler> collective_handlers() { return kCollective; }

}  // namespace hekla::hlo
