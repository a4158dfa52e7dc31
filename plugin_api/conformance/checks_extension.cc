// SPDX-License-Identifier: Apache-2.0
// Extensions of the table and of arguments, and the lifetime of clients.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"
#include "plugin_api/pjrt_extensions.h"

namespace hekla::conformance {
namespace {

using Floats = std::vector<float>;

// The first node of a type, or NotOffered.
template <class Node>
const Node* extension(Session& s, PJRT_Extension_Type type, const char* name) {
  const PJRT_Extension_Base* node = s.api()->extension_start;
  for (int i = 0; node != nullptr && i < 256; ++i, node = node->next) {
    if (node->type == type) return reinterpret_cast<const Node*>(node);
  }
  throw NotOffered{std::string("no ") + name + " extension"};
}

// Calls a member of an extension node.
template <class Args>
void call(Session& s, PJRT_Error* (*function)(Args*), const char* name, Args* args) {
  require(function != nullptr, std::string(name) + " is null");
  if (auto error = s.take(function(args))) fail(std::string(name) + ": " + error->text());
}

void check_chain(Session& s) {
  std::set<const PJRT_Extension_Base*> seen;
  std::set<int> types;
  for (const PJRT_Extension_Base* node = s.api()->extension_start; node != nullptr;
       node = node->next) {
    require(seen.insert(node).second, "the chain runs in a circle");
    require(seen.size() < 256, "the chain has more than 256 nodes");
    const int type = node->type;
    require(type >= 0 && type < 1000, "a node of type " + std::to_string(type));
    require(types.insert(type).second,
            "two nodes of type " + std::to_string(type) + "; clients see the first");
    if (s.minor() < 45) continue;
    require(
        node->struct_size >= sizeof(PJRT_Extension_Base),
        "node " + std::to_string(type) + " has struct_size " + std::to_string(node->struct_size));
    // Clients read members by the API's minor version, whatever the node says.
    size_t wanted = 0;
    if (type == PJRT_Extension_Type_Layouts && s.minor() >= 93) {
      wanted = PJRT_STRUCT_SIZE(PJRT_Layouts_Extension,
                                PJRT_Layouts_PJRT_Executable_GetParameterLayouts);
    } else if (type == PJRT_Extension_Type_Layouts && s.minor() >= 81) {
      wanted =
          PJRT_STRUCT_SIZE(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetOutputLayouts);
    } else if (type == PJRT_Extension_Type_Shardings) {
      wanted = sizeof(PJRT_Shardings_Extension);
    } else if (type == PJRT_Extension_Type_MemoryDescriptions) {
      wanted = sizeof(PJRT_MemoryDescriptions_Extension);
    }
    require(node->struct_size >= wanted, "node " + std::to_string(type) + " has " +
                                             std::to_string(node->struct_size) + " bytes of " +
                                             std::to_string(wanted));
  }
}

void check_argument_chain(Session& s) {
  // Clients send a profiler node with every compile and launch; others may come.
  PJRT_Extension_Base unknown = {sizeof(PJRT_Extension_Base),
                                 static_cast<PJRT_Extension_Type>(9999), nullptr};
  PJRT_Profiler_Extension profiler = {};
  profiler.base = {sizeof(PJRT_Profiler_Extension), PJRT_Extension_Type_Profiler, &unknown};
  profiler.traceme_context_id = 77;
  auto program = make_args<PJRT_Program>();
  std::string code(kAddOne);
  program.code = code.data();
  program.code_size = code.size();
  program.format = "mlir";
  program.format_size = 4;
  const std::string options = compile_options({});
  auto compile = make_args<PJRT_Client_Compile_Args>();
  compile.extension_start = &profiler.base;
  compile.client = s.client();
  compile.program = &program;
  compile.compile_options = options.data();
  compile.compile_options_size = options.size();
  s.call(HEKLA_SLOT(PJRT_Client_Compile), &compile);
  s.own(compile.executable);
  LaunchOptions launch;
  launch.extension = &profiler.base;
  const auto outputs = s.run(compile.executable, {s.upload_f32({1, 2, 3, 4}, {4})}, launch);
  require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result");
}

std::string take_layout(Session& s, const PJRT_Layouts_Extension* node,
                        PJRT_Layouts_MemoryLayout* layout, bool owned) {
  require(layout != nullptr, "the layout is null");
  auto args = make_args<PJRT_Layouts_MemoryLayout_Serialize_Args>();
  args.layout = layout;
  call(s, node->PJRT_Layouts_MemoryLayout_Serialize, "MemoryLayout_Serialize", &args);
  require(args.serialized_layout_deleter != nullptr, "the layout's deleter is null");
  std::string text(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_layout_deleter(args.serialized_layout);
  if (owned) {
    auto destroy = make_args<PJRT_Layouts_MemoryLayout_Destroy_Args>();
    destroy.layout = layout;
    call(s, node->PJRT_Layouts_MemoryLayout_Destroy, "MemoryLayout_Destroy", &destroy);
  }
  return text;
}

// {1,0} with an optional suffix behind a colon; {} for rank 0.
void require_layout(const std::string& text, size_t rank) {
  const std::string what = "the layout of rank " + std::to_string(rank) + " is \"" + text + "\"";
  require(text.size() >= 2 && text.front() == '{' && text.back() == '}', what);
  std::string inner = text.substr(1, text.size() - 2);
  inner = inner.substr(0, inner.find(':'));
  std::set<int> axes;
  for (size_t at = 0; at < inner.size();) {
    size_t used = 0;
    require(inner[at] >= '0' && inner[at] <= '9', what);
    const int axis = std::stoi(inner.substr(at), &used);
    require(axis < static_cast<int>(rank) && axes.insert(axis).second, what);
    at += used;
    if (at < inner.size()) require(inner[at++] == ',', what);
  }
  require(axes.size() == rank, what);
}

void check_buffer_layout(Session& s) {
  s.client();
  const auto* node = extension<PJRT_Layouts_Extension>(s, PJRT_Extension_Type_Layouts, "Layouts");
  for (const auto& dims : {std::vector<int64_t>{}, {4}, {2, 2}, {1, 2, 2}}) {
    size_t count = 1;
    for (int64_t dim : dims) count *= static_cast<size_t>(dim);
    auto args = make_args<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>();
    args.buffer = s.upload_f32(Floats(count, 1.0f), dims);
    call(s, node->PJRT_Layouts_PJRT_Buffer_MemoryLayout, "Buffer_MemoryLayout", &args);
    require_layout(take_layout(s, node, args.layout, true), dims.size());
  }
}

void check_default_layout(Session& s) {
  PJRT_Client* client = s.client();
  const auto* node = extension<PJRT_Layouts_Extension>(s, PJRT_Extension_Type_Layouts, "Layouts");
  for (const auto& dims : {std::vector<int64_t>{}, {4}, {2, 2}, {1, 2, 2}}) {
    auto args = make_args<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>();
    args.client = client;
    args.type = PJRT_Buffer_Type_F32;
    args.dims = dims.data();
    args.num_dims = dims.size();
    call(s, node->PJRT_Layouts_PJRT_Client_GetDefaultLayout, "Client_GetDefaultLayout", &args);
    require_layout(take_layout(s, node, args.layout, true), dims.size());
  }
}

void check_topology_layout(Session& s) {
  auto topology = make_args<PJRT_Client_TopologyDescription_Args>();
  topology.client = s.client();
  s.call_optional(HEKLA_SLOT(PJRT_Client_TopologyDescription), &topology);
  const auto* node = extension<PJRT_Layouts_Extension>(s, PJRT_Extension_Type_Layouts, "Layouts");
  const int64_t dims[] = {2, 3};
  auto args = make_args<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>();
  args.topology_description = topology.topology;
  args.type = PJRT_Buffer_Type_F32;
  args.dims = dims;
  args.num_dims = 2;
  const auto function = node->PJRT_Layouts_PJRT_Topology_GetDefaultLayout;
  require(function != nullptr, "Topology_GetDefaultLayout is null");
  if (auto error = s.take(function(&args))) {
    s.refuse_unless_unimplemented("Topology_GetDefaultLayout", *error);
  }
  require_layout(take_layout(s, node, args.layout, true), 2);
}

void check_executable_layouts(Session& s) {
  s.client();
  const auto* node = extension<PJRT_Layouts_Extension>(s, PJRT_Extension_Type_Layouts, "Layouts");
  PJRT_Executable* executable = s.executable_of(s.compile(kTwoOutputs));
  if (node->base.struct_size <
          PJRT_STRUCT_SIZE(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetOutputLayouts) ||
      node->PJRT_Layouts_PJRT_Executable_GetOutputLayouts == nullptr) {
    throw NotOffered{"the Layouts node does not reach GetOutputLayouts"};
  }
  auto outputs = make_args<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>();
  outputs.executable = executable;
  call(s, node->PJRT_Layouts_PJRT_Executable_GetOutputLayouts, "GetOutputLayouts", &outputs);
  require_equal(outputs.num_outputs, 3, "output layouts");
  for (size_t i = 0; i < 3; ++i) {
    require_layout(take_layout(s, node, outputs.layouts[i], false), i == 0 ? 0 : 1);
  }
  if (node->base.struct_size < PJRT_STRUCT_SIZE(PJRT_Layouts_Extension,
                                                PJRT_Layouts_PJRT_Executable_GetParameterLayouts) ||
      node->PJRT_Layouts_PJRT_Executable_GetParameterLayouts == nullptr) {
    return;
  }
  auto parameters = make_args<PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args>();
  parameters.executable = executable;
  call(s, node->PJRT_Layouts_PJRT_Executable_GetParameterLayouts, "GetParameterLayouts",
       &parameters);
  require_equal(parameters.num_parameters, 1, "parameter layouts");
  require_layout(take_layout(s, node, parameters.layouts[0], false), 1);
}

void check_memory_descriptions(Session& s) {
  s.client();
  const auto* node = extension<PJRT_MemoryDescriptions_Extension>(
      s, PJRT_Extension_Type_MemoryDescriptions, "MemoryDescriptions");
  for (PJRT_Device* device : s.devices()) {
    auto args = make_args<PJRT_DeviceDescription_MemoryDescriptions_Args>();
    args.device_description = s.description(device);
    call(s, node->PJRT_DeviceDescription_MemoryDescriptions, "MemoryDescriptions", &args);
    if (args.num_memory_descriptions == 0) throw NotOffered{"device descriptions list no memory"};
    require(args.default_memory_index < args.num_memory_descriptions,
            "the default index " + std::to_string(static_cast<int64_t>(args.default_memory_index)) +
                " names none of " + std::to_string(args.num_memory_descriptions));
    for (size_t i = 0; i < args.num_memory_descriptions; ++i) {
      auto kind = make_args<PJRT_MemoryDescription_Kind_Args>();
      kind.memory_description = args.memory_descriptions[i];
      call(s, node->PJRT_MemoryDescription_Kind, "MemoryDescription_Kind", &kind);
      require(kind.kind_size > 0, "a kind is empty");
      require(kind.kind_id != 0, "a kind id is 0");
    }
  }
}

void check_shardings(Session& s) {
  s.client();
  const auto* node =
      extension<PJRT_Shardings_Extension>(s, PJRT_Extension_Type_Shardings, "Shardings");
  PJRT_Executable* executable = s.executable_of(s.compile(kTwoOutputs));
  if (node->PJRT_Shardings_PJRT_Executable_OutputShardings != nullptr) {
    auto args = make_args<PJRT_Shardings_PJRT_Executable_OutputShardings_Args>();
    args.executable = executable;
    call(s, node->PJRT_Shardings_PJRT_Executable_OutputShardings, "OutputShardings", &args);
    if (args.shardings != nullptr) {
      require_equal(args.num_outputs, 3, "output shardings");
      std::vector<wire::Field> fields;
      for (size_t i = 0; i < args.num_outputs; ++i) {
        require(parse_proto({args.shardings[i], args.sharding_sizes[i]}, &fields),
                "an output sharding is no message");
      }
    }
  }
  if (node->PJRT_Shardings_PJRT_Executable_ParameterShardings != nullptr) {
    auto args = make_args<PJRT_Shardings_PJRT_Executable_ParameterShardings_Args>();
    args.executable = executable;
    call(s, node->PJRT_Shardings_PJRT_Executable_ParameterShardings, "ParameterShardings", &args);
    if (args.shardings != nullptr) {
      require_equal(args.num_parameters, 1, "parameter shardings");
    }
  }
}

// Viewers find what a device did by the names of its planes. Field 1 of an XSpace: planes; 2 of a
// plane: its name, 3: its lines; 4 of a line: its events.
void require_device_planes(const std::vector<wire::Field>& space) {
  int64_t events = 0;
  for (const wire::Field& plane : space) {
    std::vector<wire::Field> parts, line;
    if (plane.number != 1) continue;
    require(parse_proto(plane.bytes, &parts), "a plane of the collected data is no message");
    bool is_device = false;
    for (const wire::Field& part : parts) {
      if (part.number == 2) is_device = part.bytes.starts_with("/device:");
    }
    for (const wire::Field& part : parts) {
      if (part.number != 3 || !is_device) continue;
      require(parse_proto(part.bytes, &line), "a line of the collected data is no message");
      for (const wire::Field& field : line) events += field.number == 4;
    }
  }
  require(events > 0, "no plane /device:... has an event of the launch that was recorded");
}

void check_profiler(Session& s) {
  const auto* node =
      extension<PJRT_Profiler_Extension>(s, PJRT_Extension_Type_Profiler, "Profiler");
  const PLUGIN_Profiler_Api* api = node->profiler_api;
  require(api != nullptr, "the profiler's table is null");
  require_equal(api->struct_size, PJRT_STRUCT_SIZE(PLUGIN_Profiler_Api, collect_data),
                "size of the profiler's table (jaxlib up to 0.10.2 refuses another)");
  // Argument structs arrive with unset sizes.
  PLUGIN_Profiler_Create_Args create;
  std::memset(static_cast<void*>(&create), 0x5a, sizeof(create));
  create.options = nullptr;
  create.options_size = 0;
  const auto take = [&](PLUGIN_Profiler_Error* error, const char* what) {
    if (error == nullptr) return;
    PLUGIN_Profiler_Error_Message_Args message = {};
    message.struct_size = sizeof(message);
    message.error = error;
    api->error_message(&message);
    const std::string text(message.message, message.message_size);
    PLUGIN_Profiler_Error_Destroy_Args destroy = {};
    destroy.struct_size = sizeof(destroy);
    destroy.error = error;
    api->error_destroy(&destroy);
    fail(std::string(what) + ": " + text);
  };
  take(api->create(&create), "create");
  PLUGIN_Profiler_Start_Args start = {0x5a5a, create.profiler};
  PLUGIN_Profiler_Stop_Args stop = {0x5a5a, create.profiler};
  for (int i = 0; i < 2; ++i) take(api->start(&start), "start");
  const auto outputs = s.run(s.compile(kAddOne), {s.upload_f32({1, 2, 3, 4}, {4})});
  s.download_f32(outputs[0], 4);
  for (int i = 0; i < 2; ++i) take(api->stop(&stop), "stop");
  PLUGIN_Profiler_CollectData_Args collect = {0x5a5a, create.profiler, nullptr, 0};
  take(api->collect_data(&collect), "collect_data");
  std::vector<wire::Field> fields;
  if (collect.buffer_size_in_bytes > 0) {
    require(collect.buffer != nullptr, "collect_data gave a size and no bytes");
    require(
        parse_proto({reinterpret_cast<const char*>(collect.buffer), collect.buffer_size_in_bytes},
                    &fields),
        "the collected data is no message");
  }
  require_device_planes(fields);
  PLUGIN_Profiler_Destroy_Args destroy = {0x5a5a, create.profiler};
  take(api->destroy(&destroy), "destroy");
}

void check_host_allocator(Session& s) {
  PJRT_Client* client = s.client();
  const auto* node = extension<PJRT_HostMemoryAllocator_Extension>(
      s, PJRT_Extension_Type_HostMemoryAllocator, "HostMemoryAllocator");
  auto args = make_args<PJRT_HostMemoryAllocator_Allocate_Args>();
  args.client = client;
  args.size = 4096;
  args.numa_node = -1;
  require(node->allocate != nullptr, "allocate is null");
  if (auto error = s.take(node->allocate(&args))) {
    s.refuse_unless_unimplemented("allocate", *error);
  }
  require(args.ptr != nullptr && args.deleter != nullptr, "the memory or its deleter is null");
  std::memset(args.ptr, 1, args.size);
  args.deleter(args.ptr, args.deleter_arg);
}

void check_partitioner(Session& s) {
  const PJRT_Extension_Base* base = s.api()->extension_start;
  while (base != nullptr && base->type != PJRT_Extension_Type_Custom_Partitioner) {
    base = base->next;
  }
  if (base == nullptr) return;
  // JAX calls it when it finds plugins, and finds no device of any where it fails.
  const auto* node = reinterpret_cast<const PJRT_Custom_Partitioner_Extension*>(base);
  require(
      node->register_custom_partitioner != nullptr && node->register_batch_partitionable != nullptr,
      "a member of the Custom-partitioner node is null");
  auto args = make_args<PJRT_Register_Batch_Partitionable_Args>();
  const std::string_view name = "hekla_conformance_call";
  args.name = name.data();
  args.name_size = name.size();
  if (auto error = s.take(node->register_batch_partitionable(&args))) {
    fail("register_batch_partitionable fails, so that JAX finds no device: " + error->text());
  }
}

// ---- Lifetime.

void check_two_clients(Session& s) {
  PJRT_Client* first = s.create_client();
  PJRT_Client* second = s.create_client();
  require(first != second, "two clients have one handle");
  const auto devices = s.devices(second);
  for (PJRT_Device* device : s.devices(first)) {
    require(std::find(devices.begin(), devices.end(), device) == devices.end(),
            "two clients share a device handle");
  }
  for (PJRT_Client* client : {first, second}) {
    PJRT_LoadedExecutable* executable = s.compile(kAddOne, {}, client);
    const auto outputs = s.run(executable, {s.upload_f32({1, 2, 3, 4}, {4}, nullptr, client)});
    require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result");
  }
}

void check_client_dies_alone(Session& s) {
  PJRT_Client* first = s.create_client();
  PJRT_Client* second = s.create_client();
  s.destroy_client(first);
  PJRT_LoadedExecutable* executable = s.compile(kAddOne, {}, second);
  const auto outputs = s.run(executable, {s.upload_f32({1, 2, 3, 4}, {4}, nullptr, second)});
  require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result");
}

// Handles of one client given to another.
void check_foreign_handles(Session& s) {
  PJRT_Client* first = s.create_client();
  PJRT_Client* second = s.create_client();
  PJRT_Device* device = s.addressable_devices(second).front();
  const Floats values = {1, 2, 3, 4};
  HostData host;
  host.dims = {4};
  host.data = values.data();
  const auto refuses = [&](const std::string& what) {
    auto args = s.upload_args(host, first);
    const auto error = s.try_call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args);
    require(error.has_value(), what + " of another client was accepted");
    require(!error->message.empty(), what + " was refused without words");
  };
  host.device = device;
  refuses("a device");
  host.device = nullptr;
  host.memory = s.default_memory(device);
  if (host.memory != nullptr) refuses("a memory");
  LaunchOptions options;
  options.execute_device = device;
  const auto error = s.execute_error(s.compile(kConstant, {}, first), {}, options);
  require(error.has_value(), "a launch on a device of another client was accepted");
  require(!error->message.empty(), "a launch was refused without words");
}

void check_outputs_outlive_executable(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kTwoOutputs);
  const auto outputs = s.run(executable, {s.upload_f32({1, 2, 3, 4}, {4})});
  s.destroy_executable(executable);
  require(s.download_f32(outputs[1], 4) == Floats({2, 4, 6, 8}), "wrong values");
}

void check_events_outlive_buffer(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32({1, 2, 3, 4}, {4});
  PJRT_Event* event = s.ready_event(buffer);
  s.destroy_buffer(buffer);
  s.finish_event(event);
}

void check_events_outlive_executable(Session& s) {
  const Floats zeros(256 * 256, 0.0f);
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  Launch launch = s.execute(executable, {s.upload_f32(zeros, {256, 256})});
  s.destroy_executable(executable);
  if (auto error = s.finish_event(launch.done)) fail(error->text());
}

void check_busy_client_destroy(Session& s) {
  const Floats zeros(256 * 256, 0.0f);
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  for (int i = 0; i < 4; ++i) {
    Launch launch = s.execute(executable, {s.upload_f32(zeros, {256, 256})});
    s.destroy_event(launch.done);
  }
  s.finish();  // buffers, executables and the client go while launches run
}

void check_destroy_null(Session& s) {
  s.client();
  const auto destroy = [&](auto member, const char* name, auto args) {
    if (s.find(member) != nullptr) s.call(member, name, &args);
  };
  destroy(HEKLA_SLOT(PJRT_Buffer_Destroy), make_args<PJRT_Buffer_Destroy_Args>());
  destroy(HEKLA_SLOT(PJRT_Executable_Destroy), make_args<PJRT_Executable_Destroy_Args>());
  destroy(HEKLA_SLOT(PJRT_ExecuteContext_Destroy), make_args<PJRT_ExecuteContext_Destroy_Args>());
  destroy(HEKLA_SLOT(PJRT_TopologyDescription_Destroy),
          make_args<PJRT_TopologyDescription_Destroy_Args>());
  destroy(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_Destroy),
          make_args<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>());
  destroy(HEKLA_SLOT(PJRT_AsyncTrackingEvent_Destroy),
          make_args<PJRT_AsyncTrackingEvent_Destroy_Args>());
  destroy(HEKLA_SLOT(PJRT_Client_Destroy), make_args<PJRT_Client_Destroy_Args>());
}

// Runs `work` in the child of a fork, which then ends as programs do. What it says is wrong fails
// the check, as does a child that does not end.
void in_fork(const char* what, const std::function<std::string()>& work) {
  constexpr std::chrono::seconds kLimit(40);
  int answer[2];
  require(pipe(answer) == 0, "no pipe");
  const pid_t child = fork();
  require(child >= 0, "no child process");
  if (child == 0) {
    std::string wrong;
    try {
      wrong = work();
    } catch (const Failure& failure) {
      wrong = failure.reason;
    } catch (const NotOffered&) {
      // For the parent to say.
    }
    if (write(answer[1], wrong.data(), wrong.size()) < 0) _exit(2);
    std::exit(0);
  }
  close(answer[1]);
  const auto end = std::chrono::steady_clock::now() + kLimit;
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      close(answer[0]);
      fail(std::string(what) + " has not ended after " + std::to_string(kLimit.count()) + " s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  char wrong[512];
  const ssize_t count = read(answer[0], wrong, sizeof(wrong));
  close(answer[0]);
  require(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          std::string(what) + " ended with the status " + std::to_string(status));
  require(count == 0, std::string(what) + ": " + std::string(wrong, count < 0 ? 0 : count));
}

// A child has none of the threads that the client may have started. Nothing runs meanwhile: locks
// of the system's own that another thread holds would be held in the child for ever.
void check_fork_exit(Session& s) {
  const Floats zeros(256 * 256, 0.0f);
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  Launch launch = s.execute(executable, {s.upload_f32(zeros, {256, 256})});
  if (auto error = s.await(launch.done)) fail(error->text());
  in_fork("a child that destroys nothing", [] { return ""; });
  in_fork("a child that destroys all", [&] {
    s.destroy_event(launch.done);
    s.finish();
    return "";
  });
  s.destroy_event(launch.done);
}

void check_fork_use(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  PJRT_Buffer* input = s.upload_f32({1, 2, 3, 4}, {4});
  const auto outputs = s.run(executable, {input});
  in_fork("a child that uses the client", [&]() -> std::string {
    const std::vector<float> values = {1, 2, 3, 4};
    HostData host;
    host.dims = {4};
    host.data = values.data();
    auto upload = s.upload_args(host);
    static_cast<void>(s.try_call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &upload));
    if (!s.download_error(outputs[0], 16) &&
        s.download_f32(outputs[0], 4) != Floats({2, 3, 4, 5})) {
      return "wrong values of a buffer";
    }
    Launch launch;
    if (s.try_execute(executable, {input}, {}, &launch)) return "";
    if (s.finish_event(launch.done)) return "";
    return s.download_f32(launch.outputs[0], 4) == Floats({2, 3, 4, 5}) ? "" : "a wrong result";
  });
  in_fork("a child that compiles", [&] {
    PJRT_LoadedExecutable* made = nullptr;
    static_cast<void>(s.try_compile(kTwoOutputs, "mlir", compile_options({}), &made));
    return "";
  });
  require(s.download_f32(s.run(executable, {input})[0], 4) == Floats({2, 3, 4, 5}),
          "wrong result after a fork");
}

Session* exit_session = nullptr;

void check_exit(Session& s) {
  // The runner lets the process end in its usual way after a pass and reports how it ended. Clients
  // destroy theirs in an exit handler, after other libraries were torn down.
  const auto outputs = s.run(s.compile(kAddOne), {s.upload_f32({1, 2, 3, 4}, {4})});
  require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result");
  PJRT_Client* client = s.client();
  for (PJRT_Buffer* buffer : outputs) s.destroy_buffer(buffer);
  exit_session = new Session(s.library(), {});
  exit_session->client();
  require(exit_session->client() != client, "two clients have one handle");
  std::atexit([] { exit_session->destroy_client(exit_session->client()); });
}

// A thread of the client's that nobody has told of the end.
void check_exit_while_busy(Session& s) {
  static std::atomic<int> launches = 0;
  exit_session = new Session(s.library(), s.create_options());
  exit_session->client();
  std::thread([] {
    try {
      PJRT_LoadedExecutable* executable = exit_session->compile(kAddOne);
      while (true) {
        PJRT_Buffer* input = exit_session->upload_f32({1, 2, 3, 4}, {4});
        const auto outputs = exit_session->run(executable, {input});
        static_cast<void>(exit_session->download_f32(outputs[0], 4));
        exit_session->destroy_buffer(outputs[0]);
        exit_session->destroy_buffer(input);
        ++launches;
      }
    } catch (...) {
      // Whatever is refused while the process ends.
    }
  }).detach();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (launches < 20 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  require(launches >= 20, "the launches of a thread have not come on");
}

constexpr Check kExtensionChecks[] = {
    {"extension-chain", "The chain ends, has one node per type, and nodes are whole.", check_chain},
    {"argument-extensions", "Unknown extension nodes in arguments are ignored.",
     check_argument_chain},
    {"layouts-buffer", "The layout of a buffer is serialized as text like {1,0}.",
     check_buffer_layout},
    {"layouts-default", "The default layout of a type and rank is serialized the same way.",
     check_default_layout},
    {"layouts-topology", "A topology knows the default layout, too.", check_topology_layout},
    {"layouts-executable", "Layouts of outputs and parameters are reported, one each.",
     check_executable_layouts},
    {"memory-descriptions", "Device descriptions list memory kinds with a valid default.",
     check_memory_descriptions},
    {"shardings", "Shardings are one message per output and parameter, or unknown.",
     check_shardings},
    {"profiler",
     "The profiler's table has 80 bytes, and collect_data returns a message in one call, with "
     "events "
     "of a launch in a plane /device:...",
     check_profiler},
    {"host-memory-allocator", "Pinned host memory can be allocated and freed.",
     check_host_allocator},
    {"custom-partitioner",
     "A Custom-partitioner node has both functions, and a call is registered without an error: "
     "else JAX finds no device.",
     check_partitioner},
};

constexpr Check kLifetimeChecks[] = {
    {"concurrent-clients", "Two clients live side by side with devices of their own.",
     check_two_clients},
    {"client-dies-alone", "A client works on after another one was destroyed.",
     check_client_dies_alone},
    {"foreign-handles", "Devices and memories of one client are refused by another one.",
     check_foreign_handles},
    {"outputs-outlive-executable", "Outputs outlive their executable.",
     check_outputs_outlive_executable},
    {"events-outlive-buffer", "A ready event outlives its buffer.", check_events_outlive_buffer},
    {"events-outlive-executable", "A device-complete event outlives its executable.",
     check_events_outlive_executable},
    {"busy-client-destroy", "Everything can be destroyed while launches run.",
     check_busy_client_destroy},
    {"destroy-null", "The other destroy functions take a null handle, too.", check_destroy_null},
    {"fork-exit", "The child of a fork ends, whether it destroys what it inherits or not.",
     check_fork_exit},
    {"fork-use", "The child of a fork gets right results of the client or errors, and soon.",
     check_fork_use},
    {"process-exit", "The process ends normally with a client destroyed by an exit handler.",
     check_exit},
    {"process-exit-busy", "The process ends normally while a thread uses a client.",
     check_exit_while_busy},
};

}  // namespace

std::span<const Check> extension_checks() { return kExtensionChecks; }
std::span<const Check> lifetime_checks() { return kLifetimeChecks; }

}  // namespace hekla::conformance
