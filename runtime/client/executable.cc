// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "plugin_api/hekla_inspection.h"
#include "runtime/base/log.h"
#include "runtime/client/client_state.h"
#include "runtime/client/element_type.h"

namespace hekla::runtime {
namespace {

// Version 0.116 reads two more words of the options; clients of that version send zeros (observed
// with jaxlib 0.12.0.1). Plugins refuse structs that are shorter than theirs.
struct ExecuteOptionsWithTail {
  PJRT_ExecuteOptions options;
  uint64_t tail[2];
};

}  // namespace

Status Launch::await(Deadline deadline) const {
  Status first;
  for (const Event& event : done) {
    if (Status status = event.await(deadline); first.ok()) first = std::move(status);
  }
  return first;
}

Result<Executable> Executable::adopt(std::shared_ptr<ClientState> state,
                                     PJRT_LoadedExecutable* handle) {
  if (handle == nullptr) {
    return internal_error("plugin '{}' gave a null executable", state->plugin->name());
  }
  Executable executable;
  executable.state_ = std::move(state);
  executable.handle_ = handle;
  HEKLA_RETURN_IF_ERROR(executable.read_description());
  return executable;
}

Status Executable::read_description() {
  const Plugin& plugin = *state_->plugin;
  HEKLA_PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args, get, executable);
  get.loaded_executable = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_LoadedExecutable_GetExecutable, &get));
  executable_ = get.executable;

  HEKLA_PJRT_ARGS(PJRT_Executable_Name_Args, name, executable_name_size);
  name.executable = executable_;
  if (HEKLA_PJRT_CALL(plugin, PJRT_Executable_Name, &name).ok() &&
      name.executable_name != nullptr) {
    name_.assign(name.executable_name, name.executable_name_size);
  }
  HEKLA_PJRT_ARGS(PJRT_Executable_NumOutputs_Args, outputs, num_outputs);
  outputs.executable = executable_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_Executable_NumOutputs, &outputs));
  output_count_ = outputs.num_outputs;

  HEKLA_PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices_Args, devices, num_addressable_devices);
  devices.executable = handle_;
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(plugin, PJRT_LoadedExecutable_AddressableDevices, &devices));
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    HEKLA_ASSIGN_OR_RETURN(Device device, state_->find_device(devices.addressable_devices[i]));
    devices_.push_back(device);
  }
  return ok_status();
}

Executable& Executable::operator=(Executable&& other) noexcept {
  if (this != &other) {
    destroy();
    state_ = std::move(other.state_);
    handle_ = std::exchange(other.handle_, nullptr);
    executable_ = std::exchange(other.executable_, nullptr);
    name_ = std::move(other.name_);
    devices_ = std::move(other.devices_);
    output_count_ = other.output_count_;
  }
  return *this;
}

void Executable::destroy() {
  if (executable_ != nullptr) {
    HEKLA_PJRT_ARGS(PJRT_Executable_Destroy_Args, args, executable);
    args.executable = std::exchange(executable_, nullptr);
    if (Status status = HEKLA_PJRT_CALL(*state_->plugin, PJRT_Executable_Destroy, &args);
        !status.ok()) {
      log_message(LogLevel::kWarning, "{}", status.to_string());
    }
  }
  if (handle_ != nullptr) {
    HEKLA_PJRT_ARGS(PJRT_LoadedExecutable_Destroy_Args, args, executable);
    args.executable = std::exchange(handle_, nullptr);
    if (Status status = HEKLA_PJRT_CALL(*state_->plugin, PJRT_LoadedExecutable_Destroy, &args);
        !status.ok()) {
      log_message(LogLevel::kWarning, "{}", status.to_string());
    }
  }
}

Result<std::vector<Executable::OutputShape>> Executable::output_shapes() const {
  const Plugin& plugin = *state_->plugin;
  HEKLA_PJRT_ARGS(PJRT_Executable_OutputElementTypes_Args, types, num_output_types);
  types.executable = executable_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_Executable_OutputElementTypes, &types));
  HEKLA_PJRT_ARGS(PJRT_Executable_OutputDimensions_Args, dims, dim_sizes);
  dims.executable = executable_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_Executable_OutputDimensions, &dims));
  if (types.num_output_types != dims.num_outputs) {
    return internal_error("plugin '{}' tells {} output types and {} output shapes", plugin.name(),
                          types.num_output_types, dims.num_outputs);
  }
  std::vector<OutputShape> shapes(dims.num_outputs);
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].dtype = from_buffer_type(types.output_types[i]);
    shapes[i].dims.assign(next, next + dims.dim_sizes[i]);
    next += dims.dim_sizes[i];
  }
  return shapes;
}

Result<std::string> Executable::fingerprint() const {
  HEKLA_PJRT_ARGS(PJRT_Executable_Fingerprint_Args, args, executable_fingerprint_size);
  args.executable = executable_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Executable_Fingerprint, &args));
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

Result<std::string> Executable::serialize() const {
  HEKLA_PJRT_ARGS(PJRT_Executable_Serialize_Args, args, serialized_executable_deleter);
  args.executable = executable_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Executable_Serialize, &args));
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter != nullptr) {
    args.serialized_executable_deleter(args.serialized_executable);
  }
  return bytes;
}

Result<Launch> Executable::launch(std::span<const Buffer> arguments,
                                  const LaunchOptions& options) const {
  std::vector<const Buffer*> list;
  for (const Buffer& buffer : arguments) list.push_back(&buffer);
  return launch(std::span(&list, 1), options);
}

Result<Launch> Executable::launch(std::span<const std::vector<const Buffer*>> arguments,
                                  const LaunchOptions& options) const {
  if (options.device && *options.device >= devices_.size()) {
    return invalid_argument("program '{}' runs on {} devices; there is no number {}", name_,
                            devices_.size(), *options.device);
  }
  const size_t device_count = options.device ? 1 : devices_.size();
  if (arguments.size() != device_count || device_count == 0) {
    return invalid_argument("program '{}' runs on {} devices; arguments for {} were given", name_,
                            device_count, arguments.size());
  }
  const size_t argument_count = arguments[0].size();
  std::vector<std::vector<PJRT_Buffer*>> inputs(device_count);
  std::vector<PJRT_Buffer* const*> input_lists(device_count);
  for (size_t d = 0; d < device_count; ++d) {
    if (arguments[d].size() != argument_count) {
      return invalid_argument("program '{}': {} arguments for device {}, {} for the first", name_,
                              arguments[d].size(), d, argument_count);
    }
    for (size_t a = 0; a < argument_count; ++a) {
      if (arguments[d][a] == nullptr || arguments[d][a]->is_empty()) {
        return invalid_argument("program '{}': argument {} is empty", name_, a);
      }
      inputs[d].push_back(arguments[d][a]->handle());
    }
    input_lists[d] = inputs[d].data();
  }
  std::vector<std::vector<PJRT_Buffer*>> outputs(device_count,
                                                 std::vector<PJRT_Buffer*>(output_count_));
  std::vector<PJRT_Buffer**> output_lists(device_count);
  for (size_t d = 0; d < device_count; ++d) output_lists[d] = outputs[d].data();
  std::vector<PJRT_Event*> events(device_count, nullptr);

  ExecuteOptionsWithTail execute = {};
  execute.options.struct_size =
      state_->plugin->api_minor() > PJRT_API_MINOR + 1
          ? sizeof(ExecuteOptionsWithTail)
          : PJRT_STRUCT_SIZE(PJRT_ExecuteOptions, num_hlo_output_callbacks);
  execute.options.launch_id = options.launch_id;
  execute.options.non_donatable_input_indices = options.non_donatable_inputs.data();
  execute.options.num_non_donatable_input_indices = options.non_donatable_inputs.size();
  for (const size_t lists : {options.sends.size(), options.receives.size()}) {
    if (lists == 0 || lists == device_count) continue;
    return invalid_argument("program '{}' runs on {} devices; callbacks for {} were given", name_,
                            device_count, lists);
  }
  std::vector<PJRT_SendCallbackInfo*> sends;
  std::vector<PJRT_RecvCallbackInfo*> receives;
  // The C API promises to leave them as they are.
  for (const auto& list : options.sends) {
    sends.push_back(const_cast<PJRT_SendCallbackInfo*>(list.data()));
  }
  for (const auto& list : options.receives) {
    receives.push_back(const_cast<PJRT_RecvCallbackInfo*>(list.data()));
  }
  if (!sends.empty()) {
    execute.options.send_callbacks = sends.data();
    execute.options.num_send_ops = options.sends[0].size();
  }
  if (!receives.empty()) {
    execute.options.recv_callbacks = receives.data();
    execute.options.num_recv_ops = options.receives[0].size();
  }
  execute.options.use_major_to_minor_data_layout_for_callbacks =
      !sends.empty() || !receives.empty();
  HEKLA_PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args, execute_device);
  args.executable = handle_;
  args.options = &execute.options;
  args.argument_lists = input_lists.data();
  args.num_devices = device_count;
  if (options.device) args.execute_device = devices_[*options.device].handle();
  args.num_args = argument_count;
  args.output_lists = output_lists.data();
  args.device_complete_events = events.data();
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_LoadedExecutable_Execute, &args));

  Launch launch;
  launch.outputs.resize(device_count);
  Status first_error;
  for (size_t d = 0; d < device_count; ++d) {
    launch.done.emplace_back(state_->plugin, events[d]);
    // All handles are adopted, also behind a bad one, so that none is lost.
    for (PJRT_Buffer* handle : outputs[d]) {
      Result<Buffer> buffer = Buffer::adopt(state_, handle);
      if (!buffer.ok()) {
        if (first_error.ok()) first_error = buffer.status();
        continue;
      }
      launch.outputs[d].push_back(*std::move(buffer));
    }
  }
  if (!first_error.ok()) return first_error;
  return launch;
}

const Hekla_Inspection_Extension* find_inspection(const Plugin& plugin) {
  for (const PJRT_Extension_Base* node = plugin.api().extension_start; node != nullptr;
       node = node->next) {
    if (static_cast<int>(node->type) == Hekla_Extension_Type_Inspection) {
      return reinterpret_cast<const Hekla_Inspection_Extension*>(node);
    }
  }
  return nullptr;
}

namespace {

Status no_inspection(const Plugin& plugin) {
  return unimplemented("the plugin '{}' does not show its executables", plugin.name());
}

}  // namespace

Result<std::string> Executable::artefact(std::string_view form) const {
  const Plugin& plugin = *state_->plugin;
  const Hekla_Inspection_Extension* extension = find_inspection(plugin);
  if (extension == nullptr) return no_inspection(plugin);
  HEKLA_PJRT_ARGS(Hekla_Executable_Artefact_Args, args, holder_deleter);
  args.executable = handle_;
  args.form = form.data();
  args.form_size = form.size();
  HEKLA_RETURN_IF_ERROR(plugin.take_error(extension->executable_artefact(&args)));
  std::string bytes(args.bytes, args.bytes_size);
  args.holder_deleter(args.holder);
  return bytes;
}

Result<std::vector<std::pair<std::string, int64_t>>> Executable::statistics() const {
  const Plugin& plugin = *state_->plugin;
  const Hekla_Inspection_Extension* extension = find_inspection(plugin);
  if (extension == nullptr) return no_inspection(plugin);
  HEKLA_PJRT_ARGS(Hekla_Executable_Statistics_Args, args, holder_deleter);
  args.executable = handle_;
  HEKLA_RETURN_IF_ERROR(plugin.take_error(extension->executable_statistics(&args)));
  std::vector<std::pair<std::string, int64_t>> values;
  for (size_t i = 0; i < args.num_values; ++i) {
    const PJRT_NamedValue& value = args.values[i];
    values.emplace_back(std::string(value.name, value.name_size), value.int64_value);
  }
  args.holder_deleter(args.holder);
  return values;
}

}  // namespace hekla::runtime
