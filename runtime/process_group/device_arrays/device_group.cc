// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/device_arrays/device_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/process_group/device_arrays/device_queue.h"

namespace hekla::process_group {
namespace {

using runtime::Buffer;
using Kind = DeviceWork::State::Kind;

Dims with_first(int64_t first, const Dims& rest) {
  Dims dims = {first};
  dims.insert(dims.end(), rest.begin(), rest.end());
  return dims;
}

Dims with_rows(const Dims& dims, int64_t rows) {
  Dims result = dims;
  result[0] = rows;
  return result;
}

std::string place_text(const Buffer& buffer) {
  const Result<runtime::Device> device = buffer.device();
  return device.ok() ? device->debug_string() : buffer.client().platform();
}

// Sums of rows; INVALID_ARGUMENT for those that are none.
Result<int64_t> sum_of(const std::vector<int64_t>& rows, int size, std::string_view what) {
  if (static_cast<int>(rows.size()) != size) {
    return invalid_argument("{} {} splits for {} ranks", rows.size(), what, size);
  }
  constexpr int64_t kMost = int64_t{1} << 62;
  int64_t sum = 0;
  for (const int64_t each : rows) {
    if (each < 0 || each > kMost - sum) {
      return invalid_argument("{} splits with one of {} rows", what, each);
    }
    sum += each;
  }
  return sum;
}

// The root of a broadcast is only read.
Elements seen_as_output(const ConstElements& in) {
  return {const_cast<void*>(in.data), in.dtype, in.count, in.owner};
}

}  // namespace

Result<DevicePlace> DevicePlace::on(const runtime::Client& client, const runtime::Device& device,
                                    DType dtype, Dims dims) {
  HEKLA_ASSIGN_OR_RETURN(const runtime::Memory memory, device.default_memory());
  return DevicePlace{client, memory, dtype, std::move(dims)};
}

Result<DevicePlace> DevicePlace::like(const Buffer& buffer) {
  if (buffer.is_empty()) return invalid_argument("the device buffer is empty");
  HEKLA_ASSIGN_OR_RETURN(const runtime::Memory memory, buffer.memory());
  return DevicePlace{buffer.client(), memory, buffer.dtype(), buffer.dims()};
}

// What is asked for of a queue.
struct DeviceGroup::Call {
  std::string operation;
  Kind kind = Kind::kCollective;
  DeviceArray x;      // null: this rank has none
  bool reads = true;  // x, whose shape alone counts otherwise
  Status refused;     // by what only the operation knows
  bool has_result = true;
  std::optional<DevicePlace> place;  // of the result, where it is not that of x
  std::optional<Dims> dims;          // of the result, where they are not those of x
  bool may_write_over = false;       // the result may lie where the input does
  bool gives_x = false;              // the result is what x holds
  bool may_go_in_parts = false;      // each element by itself
  DeviceWork::State::Issue issue;
  std::function<void(const Status&)> refuse;  // null: as a collective
};

Result<std::unique_ptr<DeviceGroup>> DeviceGroup::create(std::shared_ptr<ProcessGroup> group,
                                                         const DeviceGroupOptions& options,
                                                         Timeout timeout) {
  if (group == nullptr) return invalid_argument("a group of device arrays without a process group");
  const bool is_way = options.host_memory == "auto" || options.host_memory == "off";
  if (!is_way || options.part_bytes < 0) {
    const Status refused =
        is_way ? invalid_argument("part_bytes of {}", options.part_bytes)
               : invalid_argument("host_memory \"{}\", which is \"auto\" or \"off\"",
                                  options.host_memory);
    group->refuse("a group of device arrays", refused);
    return refused;
  }
  std::vector<int> ranks(static_cast<size_t>(group->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<ProcessGroup> own, group->new_group(ranks, timeout));
  return std::unique_ptr<DeviceGroup>(new DeviceGroup(std::move(group), std::move(own), options));
}

DeviceGroup::DeviceGroup(std::shared_ptr<ProcessGroup> parent, std::shared_ptr<ProcessGroup> group,
                         const DeviceGroupOptions& options)
    : parent_(std::move(parent)),
      group_(std::move(group)),
      may_be_direct_(options.host_memory == "auto"),
      part_bytes_(options.part_bytes),
      queue_(std::make_unique<DeviceQueue>(may_be_direct_, [this] { return group_->status(); })) {}

DeviceGroup::~DeviceGroup() {
  shutdown();
  for (const auto& [thread, block] : blocks_) {
    for (const auto& member : block->members) {
      member->is_held = false;
      member->end_unissued(cancelled("the group has been shut down"));
    }
  }
}

void DeviceGroup::shutdown() {
  queue_->stop();
  group_->shutdown();
}

void DeviceGroup::abort(std::string_view reason) { group_->abort(reason); }

DeviceCounts DeviceGroup::counts() const { return queue_->counts(); }

DeviceWork DeviceGroup::start(Call call, const DeviceCallOptions& options) {
  auto state = std::make_shared<DeviceWork::State>();
  state->operation = call.operation;
  state->kind = call.kind;
  state->deadline = Deadline::in(options.timeout.value_or(group_->timeout()));
  state->call = call.operation;
  if (call.x != nullptr && !call.x->is_empty()) {
    state->call += fmt::format(" of {} on {}", call.x->shape(), place_text(*call.x));
  } else if (call.place) {
    state->call += fmt::format(" of {} in memory \"{}\" of {}",
                               shape_string(call.place->dtype, call.place->dims),
                               call.place->memory.kind(), call.place->client.platform());
  }
  state->refused = call.refused.ok() ? prepare(call, options.donate, *state) : call.refused;
  if (call.may_go_in_parts && part_bytes_ > 0 && block() == nullptr) {
    const DType dtype = call.place                                 ? call.place->dtype
                        : call.x != nullptr && !call.x->is_empty() ? call.x->dtype()
                                                                   : DType::kInvalid;
    if (dtype != DType::kInvalid) {
      state->part_elements = std::max<int64_t>(1, part_bytes_ / dtype_bytes(dtype));
    }
  }
  state->issue = std::move(call.issue);
  state->refuse = std::move(call.refuse);
  if (!state->refuse) {
    state->refuse = [this, text = state->call](const Status& why) { group_->refuse(text, why); };
  }
  DeviceWork::State* const own = block();
  if (!state->refused.ok()) {
    // The error is known; the others hear of it when it is this call's turn.
    state->input.reset();
    state->output.reset();
    state->end(state->refused);
    if (own != nullptr && state->kind == Kind::kCollective) {
      if (own->refused.ok()) own->refused = state->refused.with_context(state->call);
      state->issued.complete(ok_status());
      return DeviceWork(state);
    }
  }
  if (own != nullptr) {
    state->is_held = state->kind == Kind::kCollective;
    (state->is_held ? own->members : own->points).push_back(state);
    if (state->is_held) return DeviceWork(state);
  }
  queue_->add(state);
  return DeviceWork(state);
}

void DeviceGroup::refuse(std::string_view call, const Status& why) {
  Call refused;
  refused.operation = call;
  refused.reads = refused.has_result = false;
  refused.refused = why;
  static_cast<void>(start(std::move(refused), {}));
}

Status DeviceGroup::prepare(const Call& call, bool donates, DeviceWork::State& state) {
  if (call.x == nullptr) {
    if (call.reads) return invalid_argument("the device buffer is empty");
    if (call.has_result) state.place = call.place;
    return ok_status();
  }
  const Buffer& x = *call.x;
  if (x.is_empty()) return invalid_argument("the device buffer is empty");
  const bool may_reuse = donates && call.has_result && call.may_write_over && may_be_direct_ &&
                         !call.place && !call.dims && is_direct(x);
  if (call.has_result) {
    if (call.place) {
      state.place = call.place;
    } else {
      HEKLA_ASSIGN_OR_RETURN(state.place, DevicePlace::like(x));
    }
    if (call.dims) state.place->dims = *call.dims;
    HEKLA_RETURN_IF_ERROR(check_has_elements(state.place->dtype));
    HEKLA_RETURN_IF_ERROR(checked_bytes(state.place->dtype, state.place->dims).status());
    state.may_write_over = call.may_write_over;
  }
  if (may_reuse) {
    HEKLA_ASSIGN_OR_RETURN(const bool was_freed, x.is_freed());
    Result<Buffer> taken = was_freed || x.has_bounded_dims()
                               ? Result<Buffer>(failed_precondition("not to be donated"))
                               : x.donate();
    // What is wrong with x is for the other way to say; what has references is copied.
    if (taken.ok()) {
      auto own = std::make_shared<Buffer>(std::move(*taken));
      state.input = DeviceInput::own(own);
      state.output = DeviceOutput::over(std::move(own));
      return ok_status();
    }
  }
  if (!call.reads) return donates ? x.free() : ok_status();
  if (call.gives_x) {
    const Result<bool> was_freed = x.is_freed();
    // One that was freed is for the input to refuse.
    if (was_freed.ok() && !*was_freed) {
      HEKLA_ASSIGN_OR_RETURN(Buffer copy, x.copy_to(state.place->memory));
      state.output = DeviceOutput::given(std::move(copy));
    }
    state.place.reset();  // nobody writes it
  }
  HEKLA_ASSIGN_OR_RETURN(state.input,
                         DeviceInput::take(call.x, may_be_direct_, donates, state.deadline));
  return ok_status();
}

Status DeviceGroup::check_rows(const DeviceArray& x) const {
  if (x == nullptr || x->is_empty()) return ok_status();  // which is another check's to say
  if (!x->dims().empty() && x->dims()[0] % size() == 0) return ok_status();
  return invalid_argument("the first dimension of {} in {} equal parts", x->shape(), size());
}

DeviceWork DeviceGroup::all_reduce(DeviceArray x, Reduction by, const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("all_reduce({})", reduce_op_name(by.op));
  call.x = std::move(x);
  call.may_write_over = call.may_go_in_parts = true;
  call.issue = [this, by](const Elements& out, const ConstElements& in,
                          std::chrono::nanoseconds timeout) {
    return group_->all_reduce(out, in, by, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::broadcast(DeviceArray x, int root, const DeviceCallOptions& options) {
  Call call;
  const bool is_root = rank() == root;
  call.operation = fmt::format("broadcast(root {})", root);
  call.x = std::move(x);
  call.reads = call.gives_x = is_root;
  call.may_write_over = call.may_go_in_parts = true;
  if (call.x == nullptr || call.x->is_empty()) {
    call.refused = invalid_argument("the device buffer is empty");
  }
  call.issue = [this, root](const Elements& out, const ConstElements& in,
                            std::chrono::nanoseconds timeout) {
    return group_->broadcast(rank() == root ? seen_as_output(in) : out, root, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::broadcast(const DevicePlace& place, int root,
                                  const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("broadcast(root {})", root);
  call.reads = false;
  call.place = place;
  call.may_go_in_parts = true;
  if (rank() == root) call.refused = invalid_argument("the root has no device buffer to send");
  call.issue = [this, root](const Elements& out, const ConstElements&,
                            std::chrono::nanoseconds timeout) {
    return group_->broadcast(out, root, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::reduce(DeviceArray x, int root, Reduction by,
                               const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("reduce({}, root {})", reduce_op_name(by.op), root);
  call.x = std::move(x);
  call.has_result = call.may_write_over = rank() == root;
  call.may_go_in_parts = true;
  call.issue = [this, root, by](const Elements& out, const ConstElements& in,
                                std::chrono::nanoseconds timeout) {
    return group_->reduce(out, in, root, by, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::all_gather(DeviceArray x, const DeviceCallOptions& options) {
  Call call;
  call.operation = "all_gather";
  if (x != nullptr) call.dims = with_first(size(), x->dims());
  call.x = std::move(x);
  call.issue = [this](const Elements& out, const ConstElements& in,
                      std::chrono::nanoseconds timeout) {
    return group_->all_gather(out, in, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::gather(DeviceArray x, int root, const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("gather(root {})", root);
  call.has_result = rank() == root;
  if (x != nullptr) call.dims = with_first(size(), x->dims());
  call.x = std::move(x);
  call.issue = [this, root](const Elements& out, const ConstElements& in,
                            std::chrono::nanoseconds timeout) {
    return group_->gather(out, in, root, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::scatter(const DevicePlace& place, DeviceArray x, int root,
                                const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("scatter(root {})", root);
  call.place = place;
  call.reads = rank() == root;
  if (call.reads) {
    call.x = std::move(x);
    if (call.x != nullptr && !call.x->is_empty() &&
        (call.x->dims() != with_first(size(), place.dims) || call.x->dtype() != place.dtype)) {
      call.refused = invalid_argument("{} in {} parts of {}", call.x->shape(), size(),
                                      shape_string(place.dtype, place.dims));
    }
  }
  call.issue = [this, root](const Elements& out, const ConstElements& in,
                            std::chrono::nanoseconds timeout) {
    return group_->scatter(out, in, root, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::reduce_scatter(DeviceArray x, Reduction by,
                                       const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("reduce_scatter({})", reduce_op_name(by.op));
  call.refused = check_rows(x);
  if (call.refused.ok() && x != nullptr && !x->is_empty()) {
    call.dims = with_rows(x->dims(), x->dims()[0] / size());
  }
  call.x = std::move(x);
  call.issue = [this, by](const Elements& out, const ConstElements& in,
                          std::chrono::nanoseconds timeout) {
    return group_->reduce_scatter(out, in, by, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::all_to_all(DeviceArray x, const DeviceCallOptions& options) {
  Call call;
  call.operation = "all_to_all";
  call.refused = check_rows(x);
  call.x = std::move(x);
  call.issue = [this](const Elements& out, const ConstElements& in,
                      std::chrono::nanoseconds timeout) {
    return group_->all_to_all(out, in, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::all_to_all(DeviceArray x, std::vector<int64_t> out_rows,
                                   std::vector<int64_t> in_rows, const DeviceCallOptions& options) {
  Call call;
  call.operation = "all_to_all";
  int64_t row = 0;
  const Result<int64_t> out = sum_of(out_rows, size(), "output"),
                        in = sum_of(in_rows, size(), "input");
  if (!out.ok() || !in.ok()) {
    call.refused = out.ok() ? in.status() : out.status();
  } else if (x != nullptr && !x->is_empty()) {
    const Dims& dims = x->dims();
    if (dims.empty() || dims[0] != *in) {
      call.refused = invalid_argument("input splits make {} rows of {}", *in, x->shape());
    } else {
      row = element_count(std::span(dims).subspan(1));
      call.dims = with_rows(dims, *out);
    }
  }
  call.x = std::move(x);
  // The sizes have been checked before these are multiplied.
  call.issue = [this, row, out_rows = std::move(out_rows), in_rows = std::move(in_rows)](
                   const Elements& to, const ConstElements& from,
                   std::chrono::nanoseconds timeout) mutable {
    for (int64_t& each : out_rows) each *= row;
    for (int64_t& each : in_rows) each *= row;
    return group_->all_to_all(to, from, out_rows, in_rows, timeout);
  };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::send(DeviceArray x, int to, uint64_t tag,
                             const DeviceCallOptions& options) {
  Call call;
  call.operation = fmt::format("send to rank {} with tag {}", to, tag);
  call.kind = Kind::kSend;
  call.x = std::move(x);
  call.has_result = false;
  call.issue = [this, to, tag](const Elements&, const ConstElements& in,
                               std::chrono::nanoseconds timeout) {
    return group_->send(in, to, tag, timeout);
  };
  call.refuse = [this, to, tag](const Status& why) { group_->refuse_send(to, tag, why); };
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::receive(const DevicePlace& place, int from, uint64_t tag,
                                const DeviceCallOptions& options) {
  Call call;
  call.operation = from < 0 ? fmt::format("receive from any rank with tag {}", tag)
                            : fmt::format("receive from rank {} with tag {}", from, tag);
  call.kind = Kind::kReceive;
  call.reads = false;
  call.place = place;
  call.issue = [this, from, tag](const Elements& out, const ConstElements&,
                                 std::chrono::nanoseconds timeout) {
    return group_->receive(out, from, tag, timeout);
  };
  call.refuse = [](const Status&) {};
  return start(std::move(call), options);
}

DeviceWork DeviceGroup::barrier(const DeviceCallOptions& options) {
  Call call;
  call.operation = "barrier";
  call.reads = call.has_result = false;
  call.issue = [this](const Elements&, const ConstElements&, std::chrono::nanoseconds timeout) {
    return group_->barrier(timeout);
  };
  return start(std::move(call), options);
}

}  // namespace hekla::process_group
