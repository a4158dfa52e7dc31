// SPDX-License-Identifier: Apache-2.0
// Compilation, executables and their queries, serialization.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/serialized_program.h"
#include "runtime/base/log.h"
#include "runtime/base/protobuf_wire.h"
#include "runtime/base/sha256.h"
#include "runtime/program/hlo/read_hlo.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::pjrt {
namespace {

Result<std::string_view> program_code(const PJRT_Program* program) {
  if (program == nullptr) return invalid_argument("no program");
  const std::string_view format = text_of(program->format, program->format_size);
  const bool is_hlo = format == "hlo" || format == "hlo_with_config";
  if (format != "mlir" && !is_hlo) return invalid_argument("Unknown program format '{}'.", format);
  if (program->code == nullptr) return invalid_argument("the program has no code");
  const std::string_view code(program->code, program->code_size);
  if (!is_hlo) return code;
  HEKLA_ASSIGN_OR_RETURN(const std::string_view module, hlo::module_of(code));
  return module;
}

// Of a call's serialized compile options.
Result<std::string_view> options_bytes(const char* bytes, size_t size) {
  if (bytes == nullptr && size > 0) return invalid_argument("{} bytes of options at null", size);
  return text_of(bytes, size);
}

// Device ids in row-major order of replica and partition.
Result<std::vector<int64_t>> device_ids(const Program& program, const ClientState& state) {
  const size_t device_count = state.devices.size();
  const CompileOptions& options = program.parsed_options;
  constexpr int64_t kMaxDevices = 1 << 20;
  if (options.replica_count > kMaxDevices || options.partition_count > kMaxDevices) {
    return invalid_argument("{} replicas and {} partitions are more than there can be",
                            options.replica_count, options.partition_count);
  }
  const int64_t count = options.replica_count * options.partition_count;
  std::vector<int64_t> ids = options.device_ids;
  if (ids.empty()) {
    // Before as many numbers are made as a client may ask for.
    if (count > static_cast<int64_t>(device_count)) {
      return invalid_argument("{} replicas x {} partitions need {} devices, there are {}",
                              options.replica_count, options.partition_count, count, device_count);
    }
    for (int64_t i = 0; i < count; ++i) ids.push_back(default_device_id(state, count, i));
  }
  if (static_cast<int64_t>(ids.size()) != count) {
    return invalid_argument("the device assignment has {} entries for {} replicas x {} partitions",
                            ids.size(), options.replica_count, options.partition_count);
  }
  std::vector<bool> is_named(device_count, false);
  for (int64_t id : ids) {
    if (id < 0 || id >= static_cast<int64_t>(device_count)) {
      return invalid_argument("the device assignment names device {}, there are {}", id,
                              device_count);
    }
    if (is_named[static_cast<size_t>(id)]) {
      return invalid_argument("the device assignment names device {} twice", id);
    }
    is_named[static_cast<size_t>(id)] = true;
  }
  return ids;
}

// Of a program whose devices meet those of other processes. Its signature leaves out where
// operations come from, since processes may have been told the same in different places, and has
// what decides the order in which collectives start.
GangProgramRef gang_program_of(const Program& program, const ClientState& state,
                               const std::vector<int64_t>& ids) {
  constexpr int64_t kMostElements = 4096;
  auto made = std::make_shared<GangProgram>();
  made->name = program.name;
  for (const int64_t id : ids) {
    made->process_of.push_back(
        state.device_pointers[static_cast<size_t>(id)]->description->process_index);
  }
  made->processes = made->process_of;
  std::ranges::sort(made->processes);
  made->processes.erase(std::unique(made->processes.begin(), made->processes.end()),
                        made->processes.end());
  stablehlo::PrintOptions printing;
  printing.max_elements = kMostElements;
  const plan::PlanOptions& plan = program.compiler_options.plan;
  const std::string text = fmt::format(
      "{} {} [{}] {} {} {} {} {} {}\n{}", program.parsed_options.replica_count,
      program.parsed_options.partition_count, fmt::join(ids, ","),
      program.compiler_options.schedule_seed, plan.fuse, plan.overlap_collectives,
      static_cast<int>(plan.row_groups), static_cast<int>(plan.stored_transposes),
      plan.max_instructions, stablehlo::print_module(*program.partitioned.module, printing));
  Sha256 digest;
  digest.update(std::as_bytes(std::span(text)));
  made->signature = digest.hex();
  return made;
}

// The kinds of memory of arrays, by their numbers among the device's.
Result<std::vector<size_t>> memory_kinds_of(const std::vector<ArrayInfo>& infos,
                                            const DeviceInfo& device) {
  const std::vector<std::string>& kinds = device.memory_kinds;
  std::vector<size_t> numbers;
  for (const ArrayInfo& info : infos) {
    const auto it = std::find(kinds.begin(), kinds.end(), info.memory_kind);
    if (it == kinds.end()) {
      return invalid_argument("the program wants memory of the kind {}, there is: {}",
                              info.memory_kind, fmt::join(kinds, ", "));
    }
    numbers.push_back(static_cast<size_t>(it - kinds.begin()));
  }
  return numbers;
}

Result<std::unique_ptr<PJRT_LoadedExecutable>> load(const StateRef& state,
                                                    std::shared_ptr<Program> program) {
  auto loaded = std::make_unique<PJRT_LoadedExecutable>();
  loaded->state = state;
  const CompileOptions& options = program->parsed_options;
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> ids, device_ids(*program, *state));
  const DeviceInfo& device_info = state->backend->devices().front();
  HEKLA_RETURN_IF_ERROR(memory_kinds_of(program->parameters, device_info).status());
  HEKLA_ASSIGN_OR_RETURN(std::vector<size_t> result_kinds,
                         memory_kinds_of(program->results, device_info));
  // Of the sizes of bounded dimensions: the default one.
  for (const ArrayInfo& result : program->results) {
    result_kinds.resize(result_kinds.size() + result.bounded.size(), 0);
  }
  if (program->asks_for_host_compute && !device_info.is_host_memory) {
    log_message(
        LogLevel::kInfo,
        "{}: what compute_on gives to the host runs on the device here; values are the same",
        program->name);
  }
  auto names = std::make_shared<GangNames>(GangNames{program->name, {}});
  std::vector<int> local_devices;
  for (size_t i = 0; i < ids.size(); ++i) {
    PJRT_Device* device = state->device_pointers[static_cast<size_t>(ids[i])];
    names->devices.push_back(device->description->debug_string);
    if (!device->is_addressable()) continue;
    loaded->devices.push_back(device);
    local_devices.push_back(device->local_index);
    PJRT_LogicalDeviceIds logical = {};
    logical.replica = static_cast<int>(static_cast<int64_t>(i) / options.partition_count);
    logical.partition = static_cast<int>(static_cast<int64_t>(i) % options.partition_count);
    loaded->logical_ids.push_back(logical);
  }
  if (ids.size() > 1) loaded->gang_names = std::move(names);
  loaded->device_ids = ids;
  const bool has_collectives = ids.size() > 1 && program->partitioned.has_collectives;
  if (loaded->devices.empty()) {
    return invalid_argument("the device assignment has no device of this process, {}",
                            state->process.index);
  }
  if (has_collectives && loaded->devices.size() < ids.size()) {
    loaded->gang_program = gang_program_of(*program, *state, ids);
    HEKLA_RETURN_IF_ERROR(state->network->connect(*loaded->gang_program));
  }
  // Clients may launch replicas one by one, with other programs around the same collectives.
  CompilerOptions compiler_options = program->compiler_options;
  compiler_options.plan.keeps_collective_order = options.replica_count > 1;
  HEKLA_ASSIGN_OR_RETURN(
      std::unique_ptr<BackendExecutable> executable,
      state->backend->compile({program->in_memory, options.replica_count, options.partition_count,
                               ids, has_collectives, std::move(result_kinds), compiler_options,
                               program->fingerprint, std::move(local_devices)}));
  program->stats = executable->stats();
  program->cost.add("flops", static_cast<float>(program->stats.flops));
  program->device_assignment =
      serialize_device_assignment(options.replica_count, options.partition_count, ids);
  loaded->executable = std::move(executable);
  loaded->program = std::move(program);
  return loaded;
}

// `make`: Result<std::shared_ptr<Program>>().
template <typename Make>
Result<std::unique_ptr<PJRT_LoadedExecutable>> compile(const StateRef& state, const Make& make) {
  const HostSpan span;
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Program> program, make());
  HEKLA_ASSIGN_OR_RETURN(auto loaded, load(state, std::move(program)));
  if (span.is_on()) {
    const std::string& name = loaded->program->name;
    span.end(std::make_shared<const TraceDetail>(
        TraceDetail{"compile " + name, {{"hlo_module", name}}}));
  }
  return loaded;
}

Status Client_Compile(PJRT_Client_Compile_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_Compile_Args, executable);
  args->executable = nullptr;
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(std::string_view code, program_code(args->program));
  HEKLA_ASSIGN_OR_RETURN(const std::string_view options,
                         options_bytes(args->compile_options, args->compile_options_size));
  HEKLA_ASSIGN_OR_RETURN(auto loaded,
                         compile(args->client->state, [&] { return make_program(code, options); }));
  args->executable = loaded.release();
  return ok_status();
}

Status Compile(PJRT_Compile_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Compile_Args, executable);
  args->executable = nullptr;
  HEKLA_REQUIRE_HANDLE(args, topology);
  HEKLA_ASSIGN_OR_RETURN(std::string_view code, program_code(args->program));
  HEKLA_ASSIGN_OR_RETURN(const std::string_view options,
                         options_bytes(args->compile_options, args->compile_options_size));
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Program> program, make_program(code, options));
  args->executable = new PJRT_Executable{std::move(program)};
  return ok_status();
}

Status Client_Load(PJRT_Client_Load_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_Load_Args, loaded_executable);
  args->loaded_executable = nullptr;
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_REQUIRE_HANDLE(args, executable);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  const Program& from = *args->executable->program;
  std::string_view options = from.options;
  if (args->compile_options != nullptr && args->compile_options_size > 0) {
    options = {args->compile_options, args->compile_options_size};
  }
  const std::string& platform = backend_factory().platform_name;
  HEKLA_ASSIGN_OR_RETURN(auto loaded, compile(args->client->state, [&] {
                           return from.partitioned.has_custom_partitions
                                      ? deserialize_program(serialize_program(from, platform),
                                                            platform, options)
                                      : make_program(from.code, options);
                         }));
  args->loaded_executable = loaded.release();
  return ok_status();
}

Status Executable_Destroy(PJRT_Executable_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_Destroy_Args, executable);
  delete args->executable;
  return ok_status();
}

Status LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_Destroy_Args, executable);
  HEKLA_KEEP_IF_INHERITED(args->executable);
  delete args->executable;
  return ok_status();
}

Status LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_GetExecutable_Args, executable);
  HEKLA_REQUIRE_HANDLE(args, loaded_executable);
  args->executable = new PJRT_Executable{args->loaded_executable->program};
  return ok_status();
}

void keep_assignment(PJRT_DeviceAssignmentSerialized*) {}

Status LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_GetDeviceAssignment_Args,
                serialized_device_assignment_deleter);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const std::string& bytes = args->executable->program->device_assignment;
  args->serialized_bytes = bytes.data();
  args->serialized_bytes_size = bytes.size();
  args->serialized_device_assignment = nullptr;  // the executable owns the bytes
  args->serialized_device_assignment_deleter = keep_assignment;
  return ok_status();
}

Status LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_AddressableDevices_Args, num_addressable_devices);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->addressable_devices = args->executable->devices.data();
  args->num_addressable_devices = args->executable->devices.size();
  return ok_status();
}

Status LoadedExecutable_AddressableDeviceLogicalIds(
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args,
                num_addressable_device_logical_ids);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->addressable_device_logical_ids = args->executable->logical_ids.data();
  args->num_addressable_device_logical_ids = args->executable->logical_ids.size();
  return ok_status();
}

Status LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_Delete_Args, executable);
  HEKLA_REQUIRE_HANDLE(args, executable);
  HEKLA_KEEP_IF_INHERITED(args->executable);
  std::shared_ptr<BackendExecutable> freed;  // outside of the lock
  std::lock_guard lock(args->executable->mutex);
  freed.swap(args->executable->executable);  // running launches hold their own reference
  return ok_status();
}

Status LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_IsDeleted_Args, is_deleted);
  HEKLA_REQUIRE_HANDLE(args, executable);
  std::lock_guard lock(args->executable->mutex);
  args->is_deleted = args->executable->executable == nullptr;
  return ok_status();
}

Status LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args* args) {
  HEKLA_REQUIRE(args, PJRT_LoadedExecutable_Fingerprint_Args, executable_fingerprint_size);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->executable_fingerprint = args->executable->program->fingerprint.c_str();
  args->executable_fingerprint_size = args->executable->program->fingerprint.size();
  return ok_status();
}

Status Executable_Name(PJRT_Executable_Name_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_Name_Args, executable_name_size);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->executable_name = args->executable->program->name.c_str();
  args->executable_name_size = args->executable->program->name.size();
  return ok_status();
}

Status Executable_NumReplicas(PJRT_Executable_NumReplicas_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_NumReplicas_Args, num_replicas);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->num_replicas = static_cast<size_t>(args->executable->program->parsed_options.replica_count);
  return ok_status();
}

Status Executable_NumPartitions(PJRT_Executable_NumPartitions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_NumPartitions_Args, num_partitions);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->num_partitions =
      static_cast<size_t>(args->executable->program->parsed_options.partition_count);
  return ok_status();
}

Status Executable_NumOutputs(PJRT_Executable_NumOutputs_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_NumOutputs_Args, num_outputs);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->num_outputs = args->executable->program->results.size();
  return ok_status();
}

Status Executable_SizeOfGeneratedCodeInBytes(
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, size_in_bytes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->size_in_bytes = args->executable->program->stats.generated_code_bytes;
  return ok_status();
}

Status Executable_Fingerprint(PJRT_Executable_Fingerprint_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_Fingerprint_Args, executable_fingerprint_size);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->executable_fingerprint = args->executable->program->fingerprint.c_str();
  args->executable_fingerprint_size = args->executable->program->fingerprint.size();
  return ok_status();
}

Status Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_GetCostAnalysis_Args, properties);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->properties = args->executable->program->cost.values.data();
  args->num_properties = args->executable->program->cost.values.size();
  return ok_status();
}

Status Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_GetCompiledMemoryStats_Args, alias_size_in_bytes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  // Of the device's memory, and of the host's.
  struct Sizes {
    int64_t arguments = 0, outputs = 0, aliased = 0;
  };
  Sizes device, host;
  const auto sizes_of = [&](const ArrayInfo& info) -> Sizes& {
    return info.memory_kind == "device" ? device : host;
  };
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const ArrayInfo& parameter = program.parameters[i];
    sizes_of(parameter).arguments += parameter.size_bytes();
    if (program.is_donated[i]) sizes_of(parameter).aliased += parameter.size_bytes();
  }
  for (const ArrayInfo& result : program.results) sizes_of(result).outputs += result.size_bytes();
  for (Sizes* sizes : {&device, &host}) sizes->aliased = std::min(sizes->aliased, sizes->outputs);
  const int64_t total =
      device.arguments + device.outputs - device.aliased + program.stats.temporary_bytes;
  // In the order of the struct; the caller's may end earlier.
  const int64_t values[] = {program.stats.generated_code_bytes,
                            device.arguments,
                            device.outputs,
                            device.aliased,
                            program.stats.temporary_bytes,
                            0,
                            host.arguments,
                            host.outputs,
                            host.aliased,
                            0,
                            total,
                            total,
                            total,
                            0,
                            total};
  int64_t* field = &args->generated_code_size_in_bytes;
  const size_t start =
      offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, generated_code_size_in_bytes);
  for (size_t i = 0; i < std::size(values); ++i) {
    if (args->struct_size < start + (i + 1) * sizeof(int64_t)) break;
    field[i] = values[i];
  }
  return ok_status();
}

Status Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_OutputElementTypes_Args, num_output_types);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  args->output_types = const_cast<PJRT_Buffer_Type*>(program.result_types.data());
  args->num_output_types = program.result_types.size();
  return ok_status();
}

Status Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_OutputDimensions_Args, dim_sizes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  args->num_outputs = program.results.size();
  args->dims = program.result_dims.data();
  args->dim_sizes = program.result_ranks.data();
  return ok_status();
}

Status Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_OutputMemoryKinds_Args, memory_kind_sizes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  args->num_outputs = program.results.size();
  args->memory_kinds = program.result_kinds.data();
  args->memory_kind_sizes = program.result_kind_sizes.data();
  return ok_status();
}

Status Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_ParameterMemoryKinds_Args, memory_kind_sizes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  args->num_parameters = program.parameters.size();
  args->memory_kinds = program.parameter_kinds.data();
  args->memory_kind_sizes = program.parameter_kind_sizes.data();
  return ok_status();
}

// The program as it was compiled; clients read its attributes and print it.
Status Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_OptimizedProgram_Args, program);
  HEKLA_REQUIRE_HANDLE(args, executable);
  HEKLA_REQUIRE_HANDLE(args, program);
  const auto [format, code] = args->executable->program->optimized();
  args->program->format = format.data();
  args->program->format_size = format.size();
  if (args->program->code == nullptr) {
    args->program->code_size = code.size();
    return ok_status();
  }
  if (args->program->code_size < code.size()) {
    return invalid_argument("code_size {} is below the program's {} bytes",
                            args->program->code_size, code.size());
  }
  std::memcpy(args->program->code, code.data(), code.size());
  args->program->code_size = code.size();
  return ok_status();
}

void delete_executable_bytes(PJRT_SerializedExecutable* bytes) {
  delete reinterpret_cast<std::string*>(bytes);
}

Status Executable_Serialize(PJRT_Executable_Serialize_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_Serialize_Args, serialized_executable_deleter);
  HEKLA_REQUIRE_HANDLE(args, executable);
  auto bytes = std::make_unique<std::string>(
      serialize_program(*args->executable->program, backend_factory().platform_name));
  args->serialized_bytes = bytes->data();
  args->serialized_bytes_size = bytes->size();
  args->serialized_executable = reinterpret_cast<PJRT_SerializedExecutable*>(bytes.release());
  args->serialized_executable_deleter = delete_executable_bytes;
  return ok_status();
}

Status Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_DeserializeAndLoad_Args, loaded_executable);
  args->loaded_executable = nullptr;
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_REQUIRE_HANDLE(args, serialized_executable);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  const std::string_view bytes(args->serialized_executable, args->serialized_executable_size);
  std::string_view options;
  using Args = PJRT_Executable_DeserializeAndLoad_Args;
  if (HEKLA_COVERS(args, Args, overridden_serialized_compile_options_size) &&
      args->overridden_serialized_compile_options != nullptr &&
      args->overridden_serialized_compile_options_size > 0) {
    options = {args->overridden_serialized_compile_options,
               args->overridden_serialized_compile_options_size};
  }
  HEKLA_ASSIGN_OR_RETURN(auto loaded, compile(args->client->state, [&] {
                           return deserialize_program(bytes, backend_factory().platform_name,
                                                      options);
                         }));
  args->loaded_executable = loaded.release();
  return ok_status();
}

void keep_options(PJRT_SerializedCompileOptions*) {}

Status Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Executable_GetCompileOptions_Args, serialized_compile_options_deleter);
  HEKLA_REQUIRE_HANDLE(args, executable);
  args->serialized_bytes = args->executable->program->options.data();
  args->serialized_bytes_size = args->executable->program->options.size();
  args->serialized_compile_options = nullptr;  // the executable owns the bytes
  args->serialized_compile_options_deleter = keep_options;
  return ok_status();
}

}  // namespace

void add_executable_slots(PJRT_Api& api) {
  api.PJRT_Client_Compile = Slot<Client_Compile>::call;
  api.PJRT_Compile = Slot<Compile>::call;
  api.PJRT_Client_Load = Slot<Client_Load>::call;
  api.PJRT_Executable_Destroy = Slot<Executable_Destroy>::call;
  api.PJRT_Executable_Name = Slot<Executable_Name>::call;
  api.PJRT_Executable_NumReplicas = Slot<Executable_NumReplicas>::call;
  api.PJRT_Executable_NumPartitions = Slot<Executable_NumPartitions>::call;
  api.PJRT_Executable_NumOutputs = Slot<Executable_NumOutputs>::call;
  api.PJRT_Executable_SizeOfGeneratedCodeInBytes =
      Slot<Executable_SizeOfGeneratedCodeInBytes>::call;
  api.PJRT_Executable_Fingerprint = Slot<Executable_Fingerprint>::call;
  api.PJRT_Executable_GetCostAnalysis = Slot<Executable_GetCostAnalysis>::call;
  api.PJRT_Executable_GetCompiledMemoryStats = Slot<Executable_GetCompiledMemoryStats>::call;
  api.PJRT_Executable_OutputElementTypes = Slot<Executable_OutputElementTypes>::call;
  api.PJRT_Executable_OutputDimensions = Slot<Executable_OutputDimensions>::call;
  api.PJRT_Executable_OutputMemoryKinds = Slot<Executable_OutputMemoryKinds>::call;
  api.PJRT_Executable_ParameterMemoryKinds = Slot<Executable_ParameterMemoryKinds>::call;
  api.PJRT_Executable_OptimizedProgram = Slot<Executable_OptimizedProgram>::call;
  api.PJRT_Executable_Serialize = Slot<Executable_Serialize>::call;
  api.PJRT_Executable_DeserializeAndLoad = Slot<Executable_DeserializeAndLoad>::call;
  api.PJRT_Executable_GetCompileOptions = Slot<Executable_GetCompileOptions>::call;
  api.PJRT_LoadedExecutable_Destroy = Slot<LoadedExecutable_Destroy>::call;
  api.PJRT_LoadedExecutable_GetExecutable = Slot<LoadedExecutable_GetExecutable>::call;
  api.PJRT_LoadedExecutable_GetDeviceAssignment = Slot<LoadedExecutable_GetDeviceAssignment>::call;
  api.PJRT_LoadedExecutable_AddressableDevices = Slot<LoadedExecutable_AddressableDevices>::call;
  api.PJRT_LoadedExecutable_AddressableDeviceLogicalIds =
      Slot<LoadedExecutable_AddressableDeviceLogicalIds>::call;
  api.PJRT_LoadedExecutable_Delete = Slot<LoadedExecutable_Delete>::call;
  api.PJRT_LoadedExecutable_IsDeleted = Slot<LoadedExecutable_IsDeleted>::call;
  api.PJRT_LoadedExecutable_Fingerprint = Slot<LoadedExecutable_Fingerprint>::call;
}

}  // namespace hekla::pjrt
