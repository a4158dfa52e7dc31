// SPDX-License-Identifier: Apache-2.0
// Launches and their contexts.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <span>
#include <utility>

#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

// Whether the arguments of one device fit the program; says nothing of their storage.
Status check_arguments(const Program& program, PJRT_Buffer* const* arguments, PJRT_Device* device) {
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const PJRT_Buffer* buffer = arguments[i];
    if (buffer == nullptr) return invalid_argument("argument {} is null", i);
    const ArrayInfo& parameter = program.parameters[i];
    // Clients give an array without elements for a token that no launch has made.
    const bool is_first_token =
        parameter.dtype == DType::kInvalid && element_count(buffer->dims) == 0;
    if (!is_first_token && (buffer->dtype != parameter.dtype || buffer->dims != parameter.dims)) {
      return invalid_argument("argument {} of {} must be {}, is {}", i, program.name,
                              shape_string(parameter.dtype, parameter.dims),
                              shape_string(buffer->dtype, buffer->dims));
    }
    if (!is_first_token && buffer->order != parameter.order) {
      return invalid_argument("argument {} of {} must have the layout {}, has {}", i, program.name,
                              layout_text(parameter.order, parameter.dims.size()),
                              layout_text(buffer->order, buffer->dims.size()));
    }
    if (buffer->bounded != parameter.bounded) {
      return invalid_argument(
          "argument {} of {} must have a size of its own in the dimensions [{}] and no others, it "
          "has in [{}]",
          i, program.name, fmt::join(parameter.bounded, ","), fmt::join(buffer->bounded, ","));
    }
    if (buffer->device != device) {
      return invalid_argument("argument {} of {} lies on {}, the launch is on {}", i, program.name,
                              buffer->device->description->debug_string,
                              device->description->debug_string);
    }
  }
  return ok_status();
}

// A buffer that is donated is the argument of one parameter: its memory cannot become two results,
// nor be written while the program reads it. XLA's clients refuse it likewise.
Status check_donations(const Program& program, PJRT_Buffer* const* arguments,
                       const std::vector<bool>& is_donated) {
  const size_t count = is_donated.size();
  if (std::none_of(is_donated.begin(), is_donated.end(), [](bool donated) { return donated; })) {
    return ok_status();
  }
  std::vector<std::pair<const PJRT_Buffer*, size_t>> uses;
  uses.reserve(count);
  for (size_t i = 0; i < count; ++i) uses.emplace_back(arguments[i], i);
  std::sort(uses.begin(), uses.end());
  // The clash that a walk over the arguments meets first.
  size_t first = count, second = count;
  for (size_t first_use = 0, use = 0; use < count; ++use) {
    if (uses[use].first != uses[first_use].first) first_use = use;
    const size_t earlier = uses[first_use].second;
    const size_t later = uses[use].second;
    if (use == first_use || later >= second) continue;
    if (is_donated[earlier] || is_donated[later]) {
      first = earlier;
      second = later;
    }
  }
  if (second == count) return ok_status();
  const std::string what =
      is_donated[first] && is_donated[second]
          ? "both are donated, but its memory can be given away once"
          : fmt::format("argument {} is donated, which leaves nothing for the other to read",
                        is_donated[first] ? first : second);
  return invalid_argument(
      "arguments {} and {} of {} are the same buffer; {}. Give one of them a copy, or do not "
      "donate "
      "it",
      first, second, program.name, what);
}

// Donated buffers let go of their storage, so that the launch can be its only owner; a buffer that
// somebody outside refers to keeps it. TakenInputs undoes what was done.
Status take_inputs(const Program& program, PJRT_Buffer* const* arguments,
                   const std::vector<bool>& is_donated, std::vector<LaunchInput>& inputs) {
  const size_t count = program.parameters.size();
  // Once a buffer has let go nothing may fail before its storage is in the list.
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    PJRT_Buffer& buffer = *arguments[i];
    Result<TakenStorage> taken = take_storage(buffer, is_donated[i]);
    if (!taken.ok()) {
      return taken.status().with_context(fmt::format("argument {} of {}", i, program.name));
    }
    inputs.push_back({std::move(taken->storage), buffer.ready, taken->is_taken});
  }
  // The sizes of bounded dimensions.
  for (size_t i = 0; i < count; ++i) {
    for (const StorageRef& size : arguments[i]->sizes) {
      inputs.push_back({size, arguments[i]->ready, false});
    }
  }
  return ok_status();
}

std::vector<bool> donation_mask(const Program& program, const PJRT_ExecuteOptions* options) {
  std::vector<bool> mask = program.is_donated;
  if (options == nullptr ||
      !HEKLA_COVERS(options, PJRT_ExecuteOptions, num_non_donatable_input_indices) ||
      options->non_donatable_input_indices == nullptr) {
    return mask;
  }
  for (size_t i = 0; i < options->num_non_donatable_input_indices; ++i) {
    const int64_t index = options->non_donatable_input_indices[i];
    if (index >= 0 && index < static_cast<int64_t>(mask.size())) {
      mask[static_cast<size_t>(index)] = false;
    }
  }
  return mask;
}

MemoryObject* memory_of_kind(PJRT_Device* device, const std::string& kind) {
  for (PJRT_Memory* memory : device->memories) {
    auto* object = static_cast<MemoryObject*>(memory);
    if (object->kind == kind) return object;
  }
  return static_cast<MemoryObject*>(device->memories.front());
}

// One device's part of a call of Execute.
struct Part {
  PJRT_Device* device = nullptr;
  PJRT_LogicalDeviceIds logical = {};
  PJRT_Buffer* const* arguments = nullptr;
  std::vector<bool> is_donated;
  CompletionRef done;  // for buffers and events; the launch's own may come earlier
  // What the caller gets. It is made before the launch, since afterwards nothing may fail.
  std::vector<std::unique_ptr<PJRT_Buffer>> results;  // without their storage so far
  std::unique_ptr<PJRT_Event> event;                  // null: none is asked for
};

// Gives what launches have taken back to the arguments, unless they are under way when it goes.
class TakenInputs {
 public:
  TakenInputs(std::span<const Part> parts, std::span<Launch> launches)
      : parts_(parts), launches_(launches) {}
  TakenInputs(const TakenInputs&) = delete;
  TakenInputs& operator=(const TakenInputs&) = delete;
  ~TakenInputs() {
    for (size_t p = 0; p < parts_.size() && !is_under_way_; ++p) {
      std::vector<LaunchInput>& inputs = launches_[p].inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].is_donated && inputs[i].storage != nullptr) {
          give_back(*parts_[p].arguments[i], std::move(inputs[i].storage));
        }
      }
    }
  }
  void set_under_way() { is_under_way_ = true; }

 private:
  const std::span<const Part> parts_;
  const std::span<Launch> launches_;
  bool is_under_way_ = false;
};

// Whether the call is for one of the executable's devices, or another one, which it names.
bool names_its_device(const PJRT_LoadedExecutable_Execute_Args& args) {
  return HEKLA_COVERS(&args, PJRT_LoadedExecutable_Execute_Args, execute_device) &&
         args.execute_device != nullptr;
}

// The devices to run on, with their arguments; refuses what does not fit the program.
Result<std::vector<Part>> parts_of(const PJRT_LoadedExecutable& executable,
                                   const PJRT_LoadedExecutable_Execute_Args& args) {
  const Program& program = *executable.program;
  PJRT_Device* const named = names_its_device(args) ? args.execute_device : nullptr;
  const size_t expected = named != nullptr ? 1 : executable.devices.size();
  if (args.num_devices != expected) {
    return invalid_argument("{} runs on {} devices, arguments for {} were given", program.name,
                            expected, args.num_devices);
  }
  // Where a device of another place runs the program, it is as the first one.
  size_t named_place = 0;
  if (named != nullptr) {
    if (named->state != executable.state.get()) return of_another_client("device of the launch");
    HEKLA_RETURN_IF_ERROR(local_index_of(*named).status());
    const auto found = std::ranges::find(executable.devices, named);
    const bool is_its_own = found != executable.devices.end();
    if (program.partitioned.has_collectives && !is_its_own) {
      return invalid_argument("{} has collectives, and {} is none of its {} devices", program.name,
                              named->description->debug_string, executable.device_ids.size());
    }
    if (is_its_own) named_place = static_cast<size_t>(found - executable.devices.begin());
  }
  if (args.num_args > 0) HEKLA_REQUIRE_HANDLE(&args, argument_lists);
  if (!program.results.empty()) HEKLA_REQUIRE_HANDLE(&args, output_lists);
  std::vector<Part> parts(expected);
  for (size_t d = 0; d < expected; ++d) {
    Part& part = parts[d];
    part.device = named != nullptr ? named : executable.devices[d];
    part.logical = executable.logical_ids[named != nullptr ? named_place : d];
    part.arguments = args.num_args > 0 ? args.argument_lists[d] : nullptr;
    const bool has_all = (args.num_args == 0 || part.arguments != nullptr) &&
                         (program.results.empty() || args.output_lists[d] != nullptr);
    if (!has_all) {
      return invalid_argument("the list of arguments or outputs of {} is null",
                              part.device->description->debug_string);
    }
    HEKLA_RETURN_IF_ERROR(check_arguments(program, part.arguments, part.device));
    part.is_donated = donation_mask(program, args.options);
    HEKLA_RETURN_IF_ERROR(check_donations(program, part.arguments, part.is_donated));
  }
  return parts;
}

// For a launch of all of the executable's devices, or of one of those that meet in the program;
// null: the launch has nothing to do with others.
Result<GangRef> gang_of(PJRT_LoadedExecutable& executable, const std::vector<Part>& parts,
                        bool is_alone) {
  if (executable.gang_names == nullptr) return GangRef();
  ClientState& state = *executable.state;
  if (!is_alone) return std::make_shared<Gang>(state.gang, executable.gang_names);
  const Program& program = *executable.program;
  if (!program.partitioned.has_collectives) return GangRef();
  const int64_t replicas = program.parsed_options.replica_count;
  const int64_t partitions = program.parsed_options.partition_count;
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(state.communicators_mutex);
    std::shared_ptr<Communicator>& known = state.communicators[{replicas, executable.device_ids}];
    if (known == nullptr) {
      known = std::make_shared<Communicator>(
          state.gang,
          GangNames{fmt::format("{} x {}", replicas, partitions), executable.gang_names->devices},
          state.network, executable.gang_program);
    }
    communicator = known;
  }
  const PJRT_LogicalDeviceIds& logical = parts.front().logical;
  const int64_t number = logical.replica * partitions + logical.partition;
  return communicator->gang_for(static_cast<size_t>(number), executable.gang_names);
}

// What a gang's launch ends with for its buffers and events: the first error of any of them, which
// it also tells the others.
CompletionRef in_gang(const GangRef& gang, const Launch& launch, const PJRT_Device& device) {
  CompletionRef done = Completion::make();
  launch.done->on_done([gang, done, name = device.description->debug_string](const Status& status) {
    // On the thread that ends the launch, where nobody catches.
    if (!status.ok()) gang->abort(status_of_work([&] { return status.with_context(name); }));
    done->complete(gang->status());
  });
  return done;
}

// All that the caller gets but the storage of results.
void make_answer(const PJRT_LoadedExecutable& executable, bool wants_event, Part& part) {
  part.results.reserve(executable.program->results.size());
  for (const ArrayInfo& result : executable.program->results) {
    std::unique_ptr<PJRT_Buffer> buffer(
        make_buffer(executable.state, memory_of_kind(part.device, result.memory_kind), part.device,
                    result.dtype, result.dims, nullptr, part.done, result.order));
    buffer->bounded = result.bounded;
    buffer->sizes.resize(result.bounded.size());
    part.results.push_back(std::move(buffer));
  }
  if (wants_event) part.event.reset(make_event(part.done, executable.state));
}

// Sizes of bounded dimensions are behind all other outputs. Cannot fail.
void give_answer(Part& part, std::vector<StorageRef>& outputs, PJRT_Buffer** results) {
  size_t size = part.results.size();
  for (size_t o = 0; o < part.results.size(); ++o) {
    PJRT_Buffer* const buffer = part.results[o].release();
    buffer->storage = std::move(outputs[o]);
    for (StorageRef& one : buffer->sizes) one = std::move(outputs[size++]);
    results[o] = buffer;
  }
}

// All or none: after an error, or an exception, no buffer has given anything up.
Status launch_parts(PJRT_LoadedExecutable& executable,
                    const std::shared_ptr<BackendExecutable>& code, int64_t launch_id,
                    bool wants_events, const GangRef& gang, std::vector<Part>& parts,
                    std::span<Launch> launches, bool& is_counted) {
  const Program& program = *executable.program;
  const uint32_t number = executable.launches++;
  TakenInputs taken(parts, launches);
  for (size_t p = 0; p < parts.size(); ++p) {
    Part& part = parts[p];
    Launch& launch = launches[p];
    launch.device = part.device->local_index;
    launch.collectives = part.device->collectives;
    launch.info.device_ordinal = part.device->local_index;
    launch.replica = part.logical.replica;
    launch.partition = part.logical.partition;
    launch.launch_id = launch_id;
    launch.number = number;
    launch.gang = gang;
    launch.done = Completion::make();
    part.done = gang == nullptr ? launch.done : in_gang(gang, launch, *part.device);
    // The launch runs on although the executable may be deleted meanwhile.
    part.done->on_done([code](const Status&) {});
    make_answer(executable, wants_events, part);
    HEKLA_RETURN_IF_ERROR(take_inputs(program, part.arguments, part.is_donated, launch.inputs));
  }
  // All processes number gangs that meet, and their devices take them in that order.
  const bool has_peers = gang != nullptr && executable.gang_program != nullptr;
  const bool is_part_of_gang = gang != nullptr && gang->whole() != nullptr;
  std::unique_lock lock(executable.state->gang_mutex, std::defer_lock);
  if (has_peers) lock.lock();
  const Status status = status_of_work([&] {
    if (has_peers && !is_part_of_gang) {
      executable.state->network->begin(gang, executable.gang_program);
      is_counted = true;
    }
    return code->launch(launches);
  });
  // Others have it in their count of launches, or wait for its collectives.
  if ((has_peers || is_part_of_gang) && !status.ok()) gang->abort(status);
  if (status.ok()) taken.set_under_way();
  return status;
}

// For a launch that calls its host: most callbacks take less time than it takes to wake the thread
// that runs them and, later, the caller. So the caller stays awake for a moment; it never waits for
// longer, since the callback may need what it does next.
constexpr std::chrono::microseconds kCallbackMoment{100};

void wait_briefly(BriefWait& brief, std::span<const Part> parts) {
  brief.wait(kCallbackMoment, [&] {
    return std::ranges::all_of(parts, [](const Part& part) { return part.done->is_done(); });
  });
}

// What each device waits for before it can begin.
std::vector<GangInputWait::Device> missing_inputs(const Program& program,
                                                  std::span<const Part> parts) {
  std::vector<GangInputWait::Device> devices;
  for (const Part& part : parts) {
    GangInputWait::Device& device = devices.emplace_back();
    device.name = part.device->description->debug_string;
    for (size_t i = 0; i < program.parameters.size(); ++i) {
      const CompletionRef& ready = part.arguments[i]->ready;
      if (ready->is_done()) continue;
      const ArrayInfo& parameter = program.parameters[i];
      device.missing.push_back(
          {fmt::format("argument {}, {}", i, shape_string(parameter.dtype, parameter.dims)),
           ready});
    }
  }
  return devices;
}

// What all devices of a launch have in common.
ffi::LaunchInfo launch_info(const PJRT_ExecuteOptions* options) {
  static std::atomic<int64_t> count = 0;
  ffi::LaunchInfo info;
  info.run_id = ++count;
  if (options != nullptr && HEKLA_COVERS(options, PJRT_ExecuteOptions, context) &&
      options->context != nullptr) {
    info.user_data = std::make_shared<const ffi::UserData>(*options->context->user_data);
  }
  return info;
}

// A launch that other processes have, or will have, in their count: it takes its place here too,
// and ends there with what this process says of it.
void refuse_among_peers(PJRT_LoadedExecutable& executable, const Status& why) {
  ClientState& state = *executable.state;
  const auto gang = std::make_shared<Gang>(state.gang, executable.gang_names);
  const std::lock_guard lock(state.gang_mutex);
  state.network->begin(gang, executable.gang_program);
  gang->abort(why.with_context(fmt::format("refused by process {}", state.process.index)));
}

// `is_counted`: whether processes that the launch has to do with know of it.
Status execute(PJRT_LoadedExecutable_Execute_Args* args, bool& is_counted) {
  const HostSpan span;
  PJRT_LoadedExecutable& executable = *args->executable;
  const Program& program = *executable.program;
  std::shared_ptr<BackendExecutable> code;
  {
    std::lock_guard lock(executable.mutex);
    code = executable.executable;
  }
  if (code == nullptr) return invalid_argument("the executable {} was deleted", program.name);
  const PJRT_ExecuteOptions* options = args->options;
  if (options != nullptr) HEKLA_REQUIRE(options, PJRT_ExecuteOptions, launch_id);
  if (args->num_args != program.parameters.size()) {
    return invalid_argument("{} takes {} arguments, {} were given", program.name,
                            program.parameters.size(), args->num_args);
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<Part> parts, parts_of(executable, *args));
  const int64_t launch_id = options == nullptr ? 0 : options->launch_id;
  const bool is_alone = names_its_device(*args);
  HEKLA_ASSIGN_OR_RETURN(const GangRef gang, gang_of(executable, parts, is_alone));
  const ffi::LaunchInfo info = launch_info(options);
  TraceDetailRef trace;
  if (span.is_on()) {
    trace = std::make_shared<const TraceDetail>(
        TraceDetail{program.name, {{"hlo_module", program.name}}});
  }
  std::vector<Launch> launches(parts.size());
  for (size_t d = 0; d < launches.size(); ++d) {
    HEKLA_ASSIGN_OR_RETURN(
        launches[d].transfers,
        make_host_transfers(program.partitioned.host_channels, options, d, gang));
    launches[d].info = info;
    launches[d].trace = trace;
  }
  HEKLA_RETURN_IF_ERROR(launch_parts(executable, code, launch_id,
                                     args->device_complete_events != nullptr, gang, parts, launches,
                                     is_counted));
  for (size_t d = 0; d < parts.size(); ++d) {
    give_answer(parts[d], launches[d].outputs,
                program.results.empty() ? nullptr : args->output_lists[d]);
    if (parts[d].event != nullptr) args->device_complete_events[d] = parts[d].event.release();
  }
  // What only watches a launch must not take back that it is under way.
  static_cast<void>(status_of_work([&] {
    if (gang != nullptr && program.partitioned.has_collectives && !is_alone) {
      executable.state->gang_inputs.watch(gang, missing_inputs(program, parts));
    }
    if (program.partitioned.host_channels.any()) wait_briefly(executable.brief, parts);
    if (span.is_on()) {
      span.end(std::make_shared<const TraceDetail>(TraceDetail{"launch " + program.name, {}}),
               {{"run_id", info.run_id}, {"devices", static_cast<int64_t>(parts.size())}});
    }
    return ok_status();
  }));
  return ok_status();
}

Status LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_Execute_Args, device_complete_events);
  HEKLA_REQUIRE_HANDLE(args, executable);
  PJRT_LoadedExecutable& executable = *args->executable;
  HEKLA_RETURN_IF_ERROR(executable.state->check_process());
  bool is_counted = false;
  const Status status = status_of_work([&] { return execute(args, is_counted); });
  if (!status.ok() && !is_counted && executable.gang_program != nullptr &&
      !names_its_device(*args)) {
    refuse_among_peers(executable, status);
  }
  return status;
}

Status ExecuteContext_Create(PJRT_ExecuteContext_Create_Args* args) {
  HEKLA_REQUIRE(args, PJRT_ExecuteContext_Create_Args, context);
  args->context = new PJRT_ExecuteContext;
  return ok_status();
}

Status ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_ExecuteContext_Destroy_Args, context);
  delete args->context;
  return ok_status();
}

}  // namespace

void add_execute_slots(PJRT_Api& api) {
  api.PJRT_LoadedExecutable_Execute = Slot<LoadedExecutable_Execute>::call;
  api.PJRT_ExecuteContext_Create = Slot<ExecuteContext_Create>::call;
  api.PJRT_ExecuteContext_Destroy = Slot<ExecuteContext_Destroy>::call;
}

}  // namespace hekla::pjrt
