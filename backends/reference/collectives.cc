// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/collectives.h"

#include <algorithm>

#include "backends/pjrt/collective_counters.h"
#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/quantized.h"
#include "backends/reference/region_function.h"
#include "runtime/base/copy_bytes.h"
#include "runtime/base/hash.h"
#include "runtime/base/staging.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using ir::OpCode;
using Contribution = DeviceExchange::Arrays;

// An array of zeros as `type` means them.
Result<HostArray> zeros(const ir::Type& type, const Dims& dims) {
  const ir::Quantization* quantization = type.quantization();
  HEKLA_ASSIGN_OR_RETURN(
      HostArray array,
      HostArray::allocate(quantization == nullptr ? type.dtype() : quantization->expressed, dims));
  return quantization == nullptr ? std::move(array) : quantize(array, *quantization);
}

Result<std::vector<Datum>> zero_results(const ir::Operation& op, const std::vector<Dims>& shapes) {
  std::vector<Datum> results;
  for (size_t i = 0; i < op.result_count(); ++i) {
    const ir::Type& type = op.result(i)->type();
    if (type.is_token()) {
      results.emplace_back();
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           zeros(type, type.is_static_tensor() ? type.dims() : shapes[i]));
    results.emplace_back(std::move(array));
  }
  return results;
}

// What others read is never written: values that go on in the program are copies.
Result<HostArray> copy_of(const HostArray& array) {
  HEKLA_ASSIGN_OR_RETURN(HostArray copy, Staging::allocate(array.dtype(), array.dims()));
  if (array.size_bytes() > 0) {
    copy_bytes(copy.mutable_data(), array.data(), array.size_bytes());
  }
  return copy;
}

// Part `i` of `count` equal ones along a dimension.
Result<HostArray> part(const HostArray& array, int64_t dimension, int64_t count, int64_t i) {
  SliceConfig config;
  config.start_indices.assign(array.dims().size(), 0);
  config.limit_indices = array.dims();
  const size_t d = static_cast<size_t>(dimension);
  if (array.dims()[d] % count != 0) {
    return invalid_argument("dimension {} of {} does not divide by {} participants", dimension,
                            array.shape(), count);
  }
  const int64_t size = array.dims()[d] / count;
  config.start_indices[d] = i * size;
  config.limit_indices[d] = (i + 1) * size;
  return slice(array, config);
}

// Elements.
constexpr int64_t kFoldedAtOnce = int64_t{1} << 14;

Status fold_piece(ScalarFunction* region, DType dtype, int64_t count,
                  std::span<const std::byte* const, 2> inputs, std::byte* output) {
  if (region != nullptr) return region->apply(count, inputs, {&output, 1});
  HEKLA_ASSIGN_OR_RETURN(const HostArray sum,
                         binary(OpCode::kAdd, HostArray::wrap(dtype, {count}, nullptr, inputs[0]),
                                HostArray::wrap(dtype, {count}, nullptr, inputs[1])));
  copy_bytes(output, sum.data(), sum.size_bytes());
  return ok_status();
}

// Operands of one reduction, from the left.
Result<HostArray> fold(std::vector<HostArray> members, ScalarFunction* region, DType dtype) {
  for (HostArray& member : members) {
    if (member.dims() != members[0].dims()) {
      return invalid_argument("the devices of a group reduce arrays of different shapes: {} and {}",
                              members[0].shape(), member.shape());
    }
    HEKLA_ASSIGN_OR_RETURN(member, convert_elements(member, dtype));
  }
  if (members.size() == 1) return copy_of(members[0]);
  // A piece of all members at a time, which stays in the processor's caches; whole arrays for each
  // step cost more in fresh pages than in sums.
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  HEKLA_ASSIGN_OR_RETURN(HostArray sum, Staging::allocate(dtype, members[0].dims()));
  std::byte* const result = sum.size() == 0 ? nullptr : sum.mutable_data();
  std::vector<std::byte> partial[2];
  if (members.size() > 2) {
    for (auto& one : partial) one.resize(static_cast<size_t>(kFoldedAtOnce) * width);
  }
  for (int64_t at = 0; at < sum.size(); at += kFoldedAtOnce) {
    const int64_t count = std::min(kFoldedAtOnce, sum.size() - at);
    const size_t offset = static_cast<size_t>(at) * width;
    const std::byte* left = members[0].data() + offset;
    for (size_t i = 1; i < members.size(); ++i) {
      std::byte* output = i + 1 == members.size() ? result + offset : partial[i % 2].data();
      const std::byte* const inputs[] = {left, members[i].data() + offset};
      HEKLA_RETURN_IF_ERROR(fold_piece(region, dtype, count, inputs, output));
      left = output;
    }
  }
  return sum;
}

// Each member brings the positions of the roots last: they must agree.
Result<std::vector<int64_t>> common_roots(std::vector<Contribution>& brought,
                                          size_t operand_count) {
  std::vector<int64_t> roots(operand_count);
  const HostArray first = brought[0].back();
  for (Contribution& arrays : brought) {
    if (!arrays.back().identical(first)) {
      return failed_precondition("the devices of a group name different roots");
    }
    arrays.pop_back();
  }
  if (first.size() != 1 && first.size() != static_cast<int64_t>(operand_count)) {
    return invalid_argument("{} roots for {} operands; there must be one, or one for each",
                            first.size(), operand_count);
  }
  for (size_t i = 0; i < operand_count; ++i) {
    roots[i] = index_at(first, first.size() == 1 ? 0 : static_cast<int64_t>(i));
    if (roots[i] < 0 || roots[i] >= static_cast<int64_t>(brought.size())) {
      return out_of_range("root {} is no position of a group of {}", roots[i], brought.size());
    }
  }
  return roots;
}

std::vector<HostArray> operand_of_all(const std::vector<Contribution>& brought, size_t i) {
  std::vector<HostArray> arrays;
  for (const Contribution& member : brought) arrays.push_back(member[i]);
  return arrays;
}

bool has_region_root(OpCode code) {
  return code == OpCode::kCollectiveBroadcast || code == OpCode::kCollectiveReduce;
}

bool has_pairs(OpCode code) {
  return code == OpCode::kCollectivePermute || code == OpCode::kSend || code == OpCode::kRecv;
}

// What an operation does, as a number that is the same in all processes; where several have one,
// the order in which a device comes to them tells them apart.
uint64_t identity_of(const ir::Operation& op, int64_t channel) {
  std::string text = fmt::format("{} {}", op.name(), channel);
  for (const char* name : {"all_gather_dim", "scatter_dimension", "split_dimension",
                           "concat_dimension", "split_count"}) {
    if (!op.attribute(name).is_absent()) text += fmt::format(" {}", int_value(op, name));
  }
  for (size_t r = 0; r < op.region_count(); ++r) {
    for (const auto& block : op.region(r).blocks()) {
      for (const auto& inner : block->operations()) text += fmt::format(" {}", inner->name());
    }
  }
  for (size_t i = 0; i < op.operand_count(); ++i) text += " " + op.operand(i)->type().to_string();
  for (size_t i = 0; i < op.result_count(); ++i) text += ">" + op.result(i)->type().to_string();
  return fnv1a(text);
}

// What tells collectives of two programs apart for people.
std::string types_of(const ir::Operation& op) {
  constexpr size_t kNamed = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, op.operand_count()); ++i) {
    text += (i == 0 ? " of " : ", ") + op.operand(i)->type().to_string();
  }
  if (op.operand_count() > kNamed) text += fmt::format(" and {} more", op.operand_count() - kNamed);
  return text;
}

int64_t channel_of(const ir::Operation& op) {
  const auto* channel = op.attribute("channel_handle").get<ir::ChannelHandle>();
  return channel == nullptr ? 0 : channel->handle;
}

// What came from another process fits the operation as this one has it.
Status check_brought(const ir::Operation& op, const std::vector<Contribution>& brought,
                     size_t operand_count) {
  const bool has_one_root =
      op.code() == OpCode::kCollectiveBroadcast && !bool_value(op, "has_dynamic_root");
  for (size_t m = 0; m < brought.size(); ++m) {
    if (has_one_root && m > 0 && brought[m].empty()) continue;
    if (brought[m].size() != operand_count) {
      return invalid_argument("{} with {} operands on one device and {} on another", op.name(),
                              operand_count, brought[m].size());
    }
    for (size_t i = 0; i < operand_count; ++i) {
      const HostArray& here = brought[m][i];
      const HostArray& first = brought[0][i];
      if (here.dtype() == first.dtype() && here.rank() == first.rank() &&
          here.dtype() != DType::kInvalid) {
        continue;
      }
      return invalid_argument("{} of {} on one device and {} on another", op.name(), here.shape(),
                              first.shape());
    }
  }
  return ok_status();
}

Status check_received(const ir::Operation& op, const Contribution& arrays) {
  size_t next = 0;
  for (size_t i = 0; i < op.result_count(); ++i) {
    const ir::Type& type = op.result(i)->type();
    if (type.is_token()) continue;
    const bool fits = next < arrays.size() && arrays[next].dtype() != DType::kInvalid &&
                      (!type.is_static_tensor() || arrays[next].dims() == type.dims()) &&
                      (type.quantization() != nullptr || arrays[next].dtype() == type.dtype());
    if (!fits) {
      return invalid_argument("{} receives {} for result {}, {}", op.name(),
                              next < arrays.size() ? arrays[next].shape() : "nothing", i,
                              type.to_string());
    }
    ++next;
  }
  return next == arrays.size() ? ok_status()
                               : invalid_argument("{} receives {} arrays for {} results", op.name(),
                                                  arrays.size(), next);
}

}  // namespace

Status check_collective(const ir::Operation& op, const ir::Module& module,
                        const ir::DeviceGrid& grid) {
  if (has_pairs(op.code())) return ir::device_pairs(op, grid).status();
  return ir::device_groups(op, grid, module.meshes).status();
}

Collectives::Collectives(const ir::Module& module, const EvaluateOptions& options)
    : module_(module),
      exchange_(options.exchange),
      traced_device_(options.device),
      counters_(options.collectives) {
  if (exchange_ == nullptr) {
    own_ = std::make_unique<DeviceExchange>(ir::DeviceGrid{});
    exchange_ = own_.get();
  } else {
    device_ = options.replica_id * exchange_->grid().partitions + options.partition_id;
  }
}

Result<const Collectives::Role*> Collectives::role_of(const ir::Operation& op) {
  const auto it = roles_.find(&op);
  if (it != roles_.end()) return &it->second;
  Role role;
  if (has_pairs(op.code())) {
    HEKLA_ASSIGN_OR_RETURN(auto pairs, ir::device_pairs(op, exchange_->grid()));
    role.has_pairs =
        op.code() == OpCode::kCollectivePermute || !op.attribute("source_target_pairs").is_absent();
    for (const auto& [source, target] : pairs) {
      if (source == device_) role.target = target;
      if (target == device_) role.source = source;
    }
  } else {
    HEKLA_ASSIGN_OR_RETURN(auto groups, ir::device_groups(op, exchange_->grid(), module_.meshes));
    for (auto& members : groups) {
      const auto self = std::find(members.begin(), members.end(), device_);
      if (self == members.end()) continue;
      role.position = static_cast<size_t>(self - members.begin());
      role.members = std::move(members);
      break;
    }
  }
  return &roles_.emplace(&op, std::move(role)).first->second;
}

Result<Collectives::Pending> Collectives::begin(const Step& step, std::vector<Datum>& operands) {
  const ir::Operation& op = *step.op;
  Pending pending;
  pending.step = &step;
  const bool may_differ = exchange_->has_other_programs();
  pending.site.id = may_differ ? identity_of(op, channel_of(op)) : reinterpret_cast<uint64_t>(&op);
  pending.site.name = fmt::format("{}{} at {}", op.name(), may_differ ? types_of(op) : "",
                                  ir::location_string(op.location()));
  HEKLA_ASSIGN_OR_RETURN(pending.role, role_of(op));
  const Role& role = *pending.role;
  Contribution arrays;
  for (Datum& operand : operands) {
    pending.shapes.push_back(operand.array.dims());
    arrays.push_back(std::move(operand.array));
  }
  switch (op.code()) {
    case OpCode::kRecv:
      return pending;
    case OpCode::kSend: {
      arrays.pop_back();  // the token
      if (role.has_pairs && !role.target) return pending;
      HEKLA_RETURN_IF_ERROR(exchange_->send(device_, pending.site, {channel_of(op), 0}, role.target,
                                            std::move(arrays)));
      return pending;
    }
    case OpCode::kCollectivePermute:
      if (!role.target) return pending;
      HEKLA_RETURN_IF_ERROR(exchange_->send(device_, pending.site, {0, pending.site.id},
                                            role.target, std::move(arrays)));
      return pending;
    default:
      break;
  }
  if (role.members.empty()) return pending;
  // Nobody reads what others than the root broadcast.
  if (op.code() == OpCode::kCollectiveBroadcast && !bool_value(op, "has_dynamic_root") &&
      role.position != 0) {
    arrays.clear();
  }
  HEKLA_ASSIGN_OR_RETURN(pending.ticket,
                         exchange_->post(device_, pending.site, role.members, std::move(arrays)));
  return pending;
}

int64_t Collectives::bytes_of(const Pending& pending) {
  const ir::Operation& op = *pending.step->op;
  int64_t bytes = 0;
  for (size_t i = 0; i < pending.shapes.size() && i < op.operand_count(); ++i) {
    const ir::Type& type = op.operand(i)->type();
    if (type.is_tensor()) bytes += element_count(pending.shapes[i]) * dtype_bytes(type.dtype());
  }
  return bytes;
}

void Collectives::describe(const Pending& pending, OperationTrace& trace) const {
  trace.add({"bytes_accessed", bytes_of(pending)});
  const Role& role = *pending.role;
  std::string peers;
  const auto add = [&](int64_t device) {
    if (device != device_) peers += fmt::format("{}{}", peers.empty() ? "" : ",", device);
  };
  for (const int64_t member : role.members) add(member);
  if (role.source) add(*role.source);
  if (role.target && role.target != role.source) add(*role.target);
  trace.add({"peers", std::move(peers)});
}

Result<std::vector<Datum>> Collectives::finish(const Pending& pending, Interpreter& interpreter,
                                               std::vector<Datum>& frame,
                                               DeviceExchange::Thread thread) {
  const ir::Operation& op = *pending.step->op;
  OperationTrace trace(TraceLine::kCollectives, traced_device_, op);
  if (trace.is_on()) describe(pending, trace);
  int64_t waited_ns = 0;
  Result<std::vector<Datum>> results =
      finish_waiting(pending, interpreter, frame, thread, waited_ns);
  if (trace.is_on()) trace.add({"waited_ns", waited_ns});
  const Role& role = *pending.role;
  // Sends and receives between devices whose channel has no pairs say not who is there.
  const bool takes_part =
      has_pairs(op.code()) ? !role.has_pairs || role.source || role.target : !role.members.empty();
  if (counters_ != nullptr && takes_part && results.ok()) {
    counters_->count(op.code(), bytes_of(pending), waited_ns);
  }
  return results;
}

Result<std::vector<Datum>> Collectives::finish_waiting(const Pending& pending,
                                                       Interpreter& interpreter,
                                                       std::vector<Datum>& frame,
                                                       DeviceExchange::Thread thread,
                                                       int64_t& waited_ns) {
  const ir::Operation& op = *pending.step->op;
  if (op.code() == OpCode::kSend) return std::vector<Datum>(1);
  if (has_pairs(op.code())) return receive(pending, thread, waited_ns);
  if (!pending.ticket) return zero_results(op, pending.shapes);
  return combine(pending, interpreter, frame, thread, waited_ns);
}

Result<std::vector<Datum>> Collectives::receive(const Pending& pending,
                                                DeviceExchange::Thread thread, int64_t& waited_ns) {
  const ir::Operation& op = *pending.step->op;
  const Role& role = *pending.role;
  if (role.has_pairs && !role.source) return zero_results(op, pending.shapes);
  const bool is_permute = op.code() == OpCode::kCollectivePermute;
  const DeviceExchange::Channel channel = is_permute ? DeviceExchange::Channel{0, pending.site.id}
                                                     : DeviceExchange::Channel{channel_of(op), 0};
  const int64_t since = Trace::now();
  HEKLA_ASSIGN_OR_RETURN(Contribution arrays,
                         exchange_->receive(device_, pending.site, channel, role.source, thread));
  waited_ns = Trace::now() - since;
  if (exchange_->has_other_programs()) {
    HEKLA_RETURN_IF_ERROR(check_received(op, arrays));
  }
  std::vector<Datum> results;
  for (HostArray& array : arrays) results.emplace_back(std::move(array));
  if (!is_permute) results.emplace_back();  // the token
  return results;
}

Result<std::vector<Datum>> Collectives::combine(const Pending& pending, Interpreter& interpreter,
                                                std::vector<Datum>& frame,
                                                DeviceExchange::Thread thread, int64_t& waited_ns) {
  const Step& step = *pending.step;
  const ir::Operation& op = *step.op;
  const int64_t since = Trace::now();
  HEKLA_ASSIGN_OR_RETURN(std::vector<Contribution> brought,
                         exchange_->collect(device_, pending.site, *pending.ticket, thread));
  waited_ns = Trace::now() - since;
  if (exchange_->has_other_programs()) {
    HEKLA_RETURN_IF_ERROR(check_brought(op, brought, pending.shapes.size()));
  }
  const int64_t count = static_cast<int64_t>(brought.size());
  const int64_t position = static_cast<int64_t>(pending.role->position);
  std::vector<int64_t> roots(op.result_count());
  if (has_region_root(op.code()) && bool_value(op, "has_dynamic_root")) {
    HEKLA_ASSIGN_OR_RETURN(roots, common_roots(brought, op.result_count()));
  }
  std::unique_ptr<RegionFunction> region;
  if (!step.regions.empty()) {
    region = std::make_unique<RegionFunction>(*step.regions[0], interpreter, frame);
  }
  std::vector<Datum> results;
  for (size_t i = 0; i < op.result_count(); ++i) {
    const auto members = [&] { return operand_of_all(brought, i); };
    const DType dtype = op.result(i)->type().dtype();
    Result<HostArray> result = internal_error("{} is no collective of groups", op.name());
    switch (op.code()) {
      case OpCode::kAllGather:
        result = concatenate(members(), int_value(op, "all_gather_dim"));
        break;
      case OpCode::kAllReduce:
      case OpCode::kCrossReplicaSum:
        result = fold(members(), region.get(), dtype);
        break;
      case OpCode::kCollectiveReduce:
        result = roots[i] == position ? fold(members(), region.get(), dtype)
                                      : zeros(op.result(i)->type(), brought[0][i].dims());
        break;
      case OpCode::kReduceScatter: {
        std::vector<HostArray> parts = members();
        for (HostArray& array : parts) {
          HEKLA_ASSIGN_OR_RETURN(array,
                                 part(array, int_value(op, "scatter_dimension"), count, position));
        }
        result = fold(std::move(parts), region.get(), dtype);
        break;
      }
      case OpCode::kAllToAll: {
        std::vector<HostArray> parts = members();
        const int64_t wanted = int_value(op, "split_count");
        if (wanted != count) {
          return invalid_argument("split_count {} differs from the {} participants of the group",
                                  wanted, count);
        }
        for (HostArray& array : parts) {
          HEKLA_ASSIGN_OR_RETURN(array,
                                 part(array, int_value(op, "split_dimension"), count, position));
        }
        result = concatenate(parts, int_value(op, "concat_dimension"));
        break;
      }
      case OpCode::kCollectiveBroadcast:
        result = copy_of(brought[static_cast<size_t>(roots[i])][i]);
        break;
      default:
        break;
    }
    HEKLA_RETURN_IF_ERROR(result.status());
    results.emplace_back(*std::move(result));
  }
  return results;
}

}  // namespace hekla::reference
