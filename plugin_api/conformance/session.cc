// SPDX-License-Identifier: Apache-2.0
#include "plugin_api/conformance/session.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "plugin_api/conformance/programs.h"

namespace hekla::conformance {
namespace {

// Long enough to notice a callback that is called once too often, short enough for a hundred
// checks.
constexpr std::chrono::milliseconds kSurplusWait{30};
// An event that has not fired after this long is reported by the check itself; the child's own time
// limit is the last resort.
constexpr std::chrono::seconds kCallbackWait{20};

constexpr const char* kCodeNames[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

bool parse_integer(const std::string& text, int64_t* value) {
  if (text.empty()) return false;
  char* end = nullptr;
  *value = std::strtoll(text.c_str(), &end, 10);
  return *end == '\0';
}

}  // namespace

std::string code_name(int code) {
  if (code >= 0 && code < static_cast<int>(std::size(kCodeNames))) return kCodeNames[code];
  return "code " + std::to_string(code);
}

std::string ErrorInfo::text() const { return code_name(code) + ": " + message; }

void fail(std::string reason) { throw Failure{std::move(reason)}; }

void require(bool condition, const std::string& reason) {
  if (!condition) throw Failure{reason};
}

void require_equal(int64_t got, int64_t want, const std::string& what) {
  if (got != want) {
    fail(what + ": " + std::to_string(want) + " expected, got " + std::to_string(got));
  }
}

std::string join(const std::vector<std::string>& names, size_t limit) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), limit); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > limit) text += " and " + std::to_string(names.size() - limit) + " more";
  return text;
}

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TiledLayout::TiledLayout(std::vector<int64_t> order) : minor_to_major(std::move(order)) {
  std::memset(static_cast<void*>(&layout), 0, sizeof(layout));
  layout.struct_size = 0x5a5a5a5a;
  layout.tiled.struct_size = 0xa5a5a5a5;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
}

void ReadyCounter::callback(PJRT_Error* error, void* self) {
  auto* counter = static_cast<ReadyCounter*>(self);
  std::optional<ErrorInfo> info = counter->session_.take(error);
  std::lock_guard lock(counter->mutex_);
  ++counter->calls_;
  counter->error_ = std::move(info);
  counter->changed_.notify_all();
}

int ReadyCounter::wait(int calls) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kCallbackWait, [&] { return calls_ >= calls; });
  changed_.wait_for(lock, kSurplusWait, [&] { return calls_ > calls; });
  return calls_;
}

std::optional<ErrorInfo> ReadyCounter::error() {
  std::lock_guard lock(mutex_);
  return error_;
}

Session::Session(const std::string& library,
                 const std::vector<std::pair<std::string, std::string>>& create_options)
    : library_(library), create_options_(create_options) {
  handle_ = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* reason = dlerror();
    fail("cannot be opened: " + std::string(reason != nullptr ? reason : "no reason given"));
  }
  auto* get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(handle_, "GetPjrtApi"));
  require(get_api != nullptr, "the library has no symbol GetPjrtApi");
  api_ = get_api();
  require(api_ != nullptr, "GetPjrtApi returned null");
  require(api_->struct_size >= PJRT_STRUCT_SIZE(PJRT_Api, pjrt_api_version),
          "the table's struct_size " + std::to_string(api_->struct_size) +
              " does not reach the version fields");
  require_equal(api_->pjrt_api_version.major_version, PJRT_API_MAJOR, "API major version");
  require(minor() >= 29, "API minor version " + std::to_string(minor()) +
                             " is older than 29, which clients refuse");
  // In 0.56 one slot sat in the middle of the table.
  require(minor() != 56, "API 0.56 orders its slots in its own way and cannot be called");

  option_integers_.resize(create_options_.size());
  for (size_t i = 0; i < create_options_.size(); ++i) {
    const auto& [key, value] = create_options_[i];
    auto named = make_args<PJRT_NamedValue>();
    named.name = key.c_str();
    named.name_size = key.size();
    if (parse_integer(value, &option_integers_[i])) {
      named.type = PJRT_NamedValue_kInt64;
      named.int64_value = option_integers_[i];
      named.value_size = 1;
    } else if (value == "true" || value == "false") {
      named.type = PJRT_NamedValue_kBool;
      named.bool_value = value == "true";
      named.value_size = 1;
    } else {
      named.type = PJRT_NamedValue_kString;
      named.string_value = value.c_str();
      named.value_size = value.size();
    }
    option_values_.push_back(named);
  }
}

void Session::initialize() {
  if (initialized_) return;
  initialized_ = true;
  auto args = make_args<PJRT_Plugin_Initialize_Args>();
  call(HEKLA_SLOT(PJRT_Plugin_Initialize), &args);
}

void Session::remark(const std::string& text) {
  std::lock_guard lock(mutex_);
  remarks_ += (remarks_.empty() ? "" : "; ") + text;
}

std::string Session::absent(const char* name) const {
  return std::string(name) + " is not in the plugin's table (API 0." + std::to_string(minor()) +
         ")";
}

std::optional<ErrorInfo> Session::take(PJRT_Error* error) {
  if (error == nullptr) return std::nullopt;
  ErrorInfo info;
  auto code = make_args<PJRT_Error_GetCode_Args>();
  code.error = error;
  if (api_->PJRT_Error_GetCode(&code) != nullptr) {
    info.code = PJRT_Error_Code_UNKNOWN;
  } else {
    info.code = code.code;
  }
  auto message = make_args<PJRT_Error_Message_Args>();
  message.error = error;
  api_->PJRT_Error_Message(&message);
  if (message.message != nullptr) info.message.assign(message.message, message.message_size);
  auto destroy = make_args<PJRT_Error_Destroy_Args>();
  destroy.error = error;
  api_->PJRT_Error_Destroy(&destroy);
  return info;
}

void Session::refuse_unless_unimplemented(const char* name, const ErrorInfo& error) {
  if (error.code == PJRT_Error_Code_UNIMPLEMENTED) {
    require(!error.message.empty(), std::string(name) + ": UNIMPLEMENTED without words");
    throw NotOffered{std::string(name) + ": " + error.message};
  }
  fail(std::string(name) + ": " + error.text());
}

std::optional<ErrorInfo> Session::try_create_client(PJRT_Client_Create_Args* args) {
  initialize();
  args->create_options = option_values_.data();
  args->num_options = option_values_.size();
  auto error = try_call(HEKLA_SLOT(PJRT_Client_Create), args);
  if (!error && args->client != nullptr) {
    std::lock_guard lock(mutex_);
    clients_.push_back(args->client);
  }
  return error;
}

PJRT_Client* Session::create_client() {
  auto args = make_args<PJRT_Client_Create_Args>();
  if (auto error = try_create_client(&args)) fail("PJRT_Client_Create: " + error->text());
  require(args.client != nullptr, "PJRT_Client_Create returned a null client");
  return args.client;
}

PJRT_Client* Session::client() {
  if (client_ == nullptr) client_ = create_client();
  return client_;
}

void Session::destroy_client(PJRT_Client* client) {
  {
    std::lock_guard lock(mutex_);
    std::erase(clients_, client);
    if (client_ == client) client_ = nullptr;
  }
  auto args = make_args<PJRT_Client_Destroy_Args>();
  args.client = client;
  call(HEKLA_SLOT(PJRT_Client_Destroy), &args);
}

std::vector<PJRT_Device*> Session::devices(PJRT_Client* client) {
  auto args = make_args<PJRT_Client_Devices_Args>();
  args.client = client != nullptr ? client : this->client();
  call(HEKLA_SLOT(PJRT_Client_Devices), &args);
  return {args.devices, args.devices + args.num_devices};
}

std::vector<PJRT_Device*> Session::addressable_devices(PJRT_Client* client) {
  auto args = make_args<PJRT_Client_AddressableDevices_Args>();
  args.client = client != nullptr ? client : this->client();
  call(HEKLA_SLOT(PJRT_Client_AddressableDevices), &args);
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}

std::vector<PJRT_Memory*> Session::memories(PJRT_Device* device) {
  auto args = make_args<PJRT_Device_AddressableMemories_Args>();
  args.device = device;
  call_optional(HEKLA_SLOT(PJRT_Device_AddressableMemories), &args);
  return {args.memories, args.memories + args.num_memories};
}

PJRT_Device* Session::device(size_t index) {
  auto all = addressable_devices();
  require(!all.empty(), "the client has no addressable device");
  if (index >= all.size()) {
    throw NotOffered{"needs " + std::to_string(index + 1) + " devices, the client has " +
                     std::to_string(all.size())};
  }
  return all[index];
}

PJRT_DeviceDescription* Session::description(PJRT_Device* device) {
  auto args = make_args<PJRT_Device_GetDescription_Args>();
  args.device = device;
  call(HEKLA_SLOT(PJRT_Device_GetDescription), &args);
  require(args.device_description != nullptr, "PJRT_Device_GetDescription returned null");
  return args.device_description;
}

int Session::device_id(PJRT_Device* device) {
  auto args = make_args<PJRT_DeviceDescription_Id_Args>();
  args.device_description = description(device);
  call(HEKLA_SLOT(PJRT_DeviceDescription_Id), &args);
  return args.id;
}

PJRT_Memory* Session::default_memory(PJRT_Device* device) {
  if (find(&PJRT_Api::PJRT_Device_DefaultMemory) == nullptr) return nullptr;
  auto args = make_args<PJRT_Device_DefaultMemory_Args>();
  args.device = device;
  auto error = try_call(HEKLA_SLOT(PJRT_Device_DefaultMemory), &args);
  if (error && error->code == PJRT_Error_Code_UNIMPLEMENTED) return nullptr;
  if (error) fail("PJRT_Device_DefaultMemory: " + error->text());
  return args.memory;
}

std::string Session::memory_kind(PJRT_Memory* memory) {
  auto args = make_args<PJRT_Memory_Kind_Args>();
  args.memory = memory;
  call(HEKLA_SLOT(PJRT_Memory_Kind), &args);
  return {args.kind, args.kind_size};
}

std::string Session::platform_name(PJRT_Client* client) {
  auto args = make_args<PJRT_Client_PlatformName_Args>();
  args.client = client;
  call(HEKLA_SLOT(PJRT_Client_PlatformName), &args);
  return {args.platform_name, args.platform_name_size};
}

std::optional<ErrorInfo> Session::await(PJRT_Event* event) {
  auto args = make_args<PJRT_Event_Await_Args>();
  args.event = event;
  return try_call(HEKLA_SLOT(PJRT_Event_Await), &args);
}

bool Session::is_ready(PJRT_Event* event) {
  auto args = make_args<PJRT_Event_IsReady_Args>();
  args.event = event;
  call(HEKLA_SLOT(PJRT_Event_IsReady), &args);
  return args.is_ready;
}

void Session::on_ready(PJRT_Event* event, ReadyCounter* counter) {
  auto args = make_args<PJRT_Event_OnReady_Args>();
  args.event = event;
  args.callback = &ReadyCounter::callback;
  args.user_arg = counter;
  call(HEKLA_SLOT(PJRT_Event_OnReady), &args);
}

void Session::destroy_event(PJRT_Event* event) {
  auto args = make_args<PJRT_Event_Destroy_Args>();
  args.event = event;
  call(HEKLA_SLOT(PJRT_Event_Destroy), &args);
}

std::optional<ErrorInfo> Session::finish_event(PJRT_Event* event) {
  auto error = await(event);
  destroy_event(event);
  return error;
}

PJRT_Event* Session::ready_event(PJRT_Buffer* buffer) {
  auto args = make_args<PJRT_Buffer_ReadyEvent_Args>();
  args.buffer = buffer;
  call(HEKLA_SLOT(PJRT_Buffer_ReadyEvent), &args);
  require(args.event != nullptr, "PJRT_Buffer_ReadyEvent returned a null event");
  return args.event;
}

PJRT_Buffer* Session::error_buffer(PJRT_Error_Code code, const std::string& message) {
  const int64_t dims[] = {4};
  auto args = make_args<PJRT_Client_CreateErrorBuffer_Args>();
  args.client = client();
  args.error_code = code;
  args.error_message = message.data();
  args.error_message_size = message.size();
  args.shape_dims = dims;
  args.shape_num_dims = 1;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.memory = default_memory(device());
  call_optional(HEKLA_SLOT(PJRT_Client_CreateErrorBuffer), &args);
  require(args.buffer != nullptr, "the buffer is null");
  own(args.buffer);
  return args.buffer;
}

PJRT_Client_BufferFromHostBuffer_Args Session::upload_args(const HostData& host,
                                                           PJRT_Client* client) {
  auto args = make_args<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = client != nullptr ? client : this->client();
  args.data = host.data;
  args.type = host.type;
  args.dims = host.dims.data();
  args.num_dims = host.dims.size();
  args.byte_strides = host.byte_strides.empty() ? nullptr : host.byte_strides.data();
  args.num_byte_strides = host.byte_strides.size();
  args.host_buffer_semantics = host.semantics;
  args.device = host.device;
  args.memory = host.memory;
  args.device_layout = host.device_layout;
  // Clients set exactly one of device and memory.
  if (args.device == nullptr && args.memory == nullptr) {
    PJRT_Device* first = addressable_devices(args.client).at(0);
    args.memory = default_memory(first);
    if (args.memory == nullptr) args.device = first;
  }
  return args;
}

PJRT_Buffer* Session::upload(const HostData& host, PJRT_Client* client) {
  auto args = upload_args(host, client);
  call(HEKLA_SLOT(PJRT_Client_BufferFromHostBuffer), &args);
  require(args.buffer != nullptr, "PJRT_Client_BufferFromHostBuffer returned a null buffer");
  own(args.buffer);
  require(args.done_with_host_buffer != nullptr,
          "PJRT_Client_BufferFromHostBuffer returned a null done_with_host_buffer event");
  // A plugin that aliases host memory fires the event when the buffer dies; the helper's callers
  // keep their data, so it is enough to drop the handle.
  if (host.semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy ||
      host.semantics == PJRT_HostBufferSemantics_kMutableZeroCopy) {
    destroy_event(args.done_with_host_buffer);
  } else if (auto error = finish_event(args.done_with_host_buffer)) {
    fail("done_with_host_buffer brought " + error->text());
  }
  return args.buffer;
}

PJRT_Buffer* Session::upload_f32(const std::vector<float>& values, std::vector<int64_t> dims,
                                 PJRT_Device* device, PJRT_Client* client) {
  HostData host;
  host.dims = std::move(dims);
  host.data = values.data();
  host.device = device;
  return upload(host, client);
}

std::vector<uint8_t> Session::download(PJRT_Buffer* buffer, size_t size,
                                       PJRT_Buffer_MemoryLayout* layout) {
  // Room behind the end shows a plugin that writes too much.
  constexpr size_t kGuard = 64;
  constexpr uint8_t kGuardByte = 0xc3;
  std::vector<uint8_t> bytes(size + kGuard, kGuardByte);
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.host_layout = layout;
  args.dst = bytes.data();
  args.dst_size = size;
  call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args);
  require(args.event != nullptr, "PJRT_Buffer_ToHostBuffer returned a null event");
  if (auto error = finish_event(args.event)) {
    fail("the event of PJRT_Buffer_ToHostBuffer brought " + error->text());
  }
  for (size_t i = size; i < bytes.size(); ++i) {
    require(bytes[i] == kGuardByte, "PJRT_Buffer_ToHostBuffer wrote behind the end of dst");
  }
  bytes.resize(size);
  return bytes;
}

std::vector<float> Session::download_f32(PJRT_Buffer* buffer, size_t count) {
  std::vector<uint8_t> bytes = download(buffer, count * sizeof(float));
  std::vector<float> values(count);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::optional<ErrorInfo> Session::download_error(PJRT_Buffer* buffer, size_t size) {
  std::vector<uint8_t> bytes(size + 1);
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.dst = bytes.data();
  args.dst_size = size;
  if (auto error = try_call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args)) return error;
  require(args.event != nullptr, "PJRT_Buffer_ToHostBuffer returned a null event");
  return finish_event(args.event);
}

bool Session::is_deleted(PJRT_Buffer* buffer) {
  auto args = make_args<PJRT_Buffer_IsDeleted_Args>();
  args.buffer = buffer;
  call(HEKLA_SLOT(PJRT_Buffer_IsDeleted), &args);
  return args.is_deleted;
}

void Session::delete_buffer(PJRT_Buffer* buffer) {
  auto args = make_args<PJRT_Buffer_Delete_Args>();
  args.buffer = buffer;
  call(HEKLA_SLOT(PJRT_Buffer_Delete), &args);
}

void Session::destroy_buffer(PJRT_Buffer* buffer) {
  {
    std::lock_guard lock(mutex_);
    buffers_.erase(buffer);
  }
  auto args = make_args<PJRT_Buffer_Destroy_Args>();
  args.buffer = buffer;
  call(HEKLA_SLOT(PJRT_Buffer_Destroy), &args);
}

void Session::own(PJRT_Buffer* buffer) {
  std::lock_guard lock(mutex_);
  require(buffers_.insert(buffer).second, "the plugin returned one buffer handle twice");
}

std::optional<ErrorInfo> Session::try_compile(std::string_view code, std::string_view format,
                                              std::string_view options,
                                              PJRT_LoadedExecutable** executable,
                                              PJRT_Client* client) {
  auto program = make_args<PJRT_Program>();
  // The field is not const in the C API; a plugin must not write it.
  std::string copy(code);
  program.code = copy.data();
  program.code_size = copy.size();
  program.format = format.data();
  program.format_size = format.size();
  auto args = make_args<PJRT_Client_Compile_Args>();
  args.client = client != nullptr ? client : this->client();
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  auto error = try_call(HEKLA_SLOT(PJRT_Client_Compile), &args);
  *executable = args.executable;
  if (!error) {
    require(args.executable != nullptr, "PJRT_Client_Compile returned a null executable");
    own(args.executable);
  }
  return error;
}

PJRT_LoadedExecutable* Session::compile(std::string_view code, std::string_view options,
                                        PJRT_Client* client) {
  const std::string default_options = compile_options({});
  if (options.empty()) options = default_options;
  PJRT_LoadedExecutable* executable = nullptr;
  if (auto error = try_compile(code, "mlir", options, &executable, client)) {
    fail("PJRT_Client_Compile: " + error->text());
  }
  return executable;
}

void Session::own(PJRT_LoadedExecutable* executable) {
  std::lock_guard lock(mutex_);
  require(loaded_.insert(executable).second, "the plugin returned one executable handle twice");
}

void Session::destroy_executable(PJRT_LoadedExecutable* executable) {
  {
    std::lock_guard lock(mutex_);
    loaded_.erase(executable);
    output_counts_.erase(executable);
  }
  auto args = make_args<PJRT_LoadedExecutable_Destroy_Args>();
  args.executable = executable;
  call(HEKLA_SLOT(PJRT_LoadedExecutable_Destroy), &args);
}

PJRT_Executable* Session::executable_of(PJRT_LoadedExecutable* loaded) {
  auto args = make_args<PJRT_LoadedExecutable_GetExecutable_Args>();
  args.loaded_executable = loaded;
  call(HEKLA_SLOT(PJRT_LoadedExecutable_GetExecutable), &args);
  require(args.executable != nullptr, "PJRT_LoadedExecutable_GetExecutable returned null");
  std::lock_guard lock(mutex_);
  executables_.insert(args.executable);
  return args.executable;
}

void Session::destroy_executable(PJRT_Executable* executable) {
  {
    std::lock_guard lock(mutex_);
    executables_.erase(executable);
  }
  auto args = make_args<PJRT_Executable_Destroy_Args>();
  args.executable = executable;
  call(HEKLA_SLOT(PJRT_Executable_Destroy), &args);
}

size_t Session::num_outputs(PJRT_LoadedExecutable* loaded) {
  {
    std::lock_guard lock(mutex_);
    auto known = output_counts_.find(loaded);
    if (known != output_counts_.end()) return known->second;
  }
  PJRT_Executable* executable = executable_of(loaded);
  auto args = make_args<PJRT_Executable_NumOutputs_Args>();
  args.executable = executable;
  call(HEKLA_SLOT(PJRT_Executable_NumOutputs), &args);
  destroy_executable(executable);
  std::lock_guard lock(mutex_);
  output_counts_[loaded] = args.num_outputs;
  return args.num_outputs;
}

std::optional<ErrorInfo> Session::try_execute(PJRT_LoadedExecutable* executable,
                                              const std::vector<PJRT_Buffer*>& arguments,
                                              const LaunchOptions& options, Launch* launch) {
  auto execute_options = make_args<PJRT_ExecuteOptions>();
  execute_options.struct_size = options.options_size;
  execute_options.launch_id = options.launch_id;
  execute_options.non_donatable_input_indices = options.non_donatable.data();
  execute_options.num_non_donatable_input_indices = options.non_donatable.size();
  execute_options.context = options.context;
  execute_options.call_location = options.call_location;
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = executable;
  args.options = &execute_options;
  args.extension_start = options.extension;
  PJRT_Buffer* const* argument_list = arguments.data();
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = arguments.size();
  const size_t outputs =
      options.num_outputs >= 0 ? static_cast<size_t>(options.num_outputs) : num_outputs(executable);
  // One more entry shows a plugin that writes too many outputs.
  std::vector<PJRT_Buffer*> output_list(outputs + 1, nullptr);
  PJRT_Buffer** output_pointer = output_list.data();
  args.output_lists = &output_pointer;
  PJRT_Event* event = nullptr;
  args.device_complete_events = options.want_event ? &event : nullptr;
  args.execute_device = options.execute_device;
  auto error = try_call(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args);
  if (error) {
    require(event == nullptr, "a failed Execute wrote device_complete_events");
    return error;
  }
  require(output_list.back() == nullptr, "Execute wrote more outputs than NumOutputs says");
  output_list.pop_back();
  for (PJRT_Buffer* output : output_list) {
    require(output != nullptr, "Execute left an output null");
    own(output);
  }
  if (options.want_event) require(event != nullptr, "Execute left device_complete_events null");
  launch->outputs = std::move(output_list);
  launch->done = event;
  return std::nullopt;
}

Launch Session::execute(PJRT_LoadedExecutable* executable,
                        const std::vector<PJRT_Buffer*>& arguments, const LaunchOptions& options) {
  Launch launch;
  if (auto error = try_execute(executable, arguments, options, &launch)) {
    fail("PJRT_LoadedExecutable_Execute: " + error->text());
  }
  return launch;
}

std::vector<PJRT_Buffer*> Session::run(PJRT_LoadedExecutable* executable,
                                       const std::vector<PJRT_Buffer*>& arguments,
                                       const LaunchOptions& options) {
  Launch launch = execute(executable, arguments, options);
  if (launch.done != nullptr) {
    if (auto error = finish_event(launch.done)) {
      fail("the device-complete event brought " + error->text());
    }
  }
  return launch.outputs;
}

std::optional<ErrorInfo> Session::execute_error(PJRT_LoadedExecutable* executable,
                                                const std::vector<PJRT_Buffer*>& arguments,
                                                const LaunchOptions& options) {
  Launch launch;
  if (auto error = try_execute(executable, arguments, options, &launch)) return error;
  std::optional<ErrorInfo> result;
  if (launch.done != nullptr) result = finish_event(launch.done);
  for (PJRT_Buffer* output : launch.outputs) {
    auto error = finish_event(ready_event(output));
    if (error && !result) result = error;
  }
  return result;
}

void Session::finish() {
  std::set<PJRT_Buffer*> buffers;
  std::set<PJRT_Executable*> executables;
  std::set<PJRT_LoadedExecutable*> loaded;
  std::vector<PJRT_Client*> clients;
  {
    std::lock_guard lock(mutex_);
    buffers = buffers_;
    executables = executables_;
    loaded = loaded_;
    clients = clients_;
  }
  for (PJRT_Buffer* buffer : buffers) destroy_buffer(buffer);
  for (PJRT_Executable* executable : executables) destroy_executable(executable);
  for (PJRT_LoadedExecutable* executable : loaded) destroy_executable(executable);
  for (PJRT_Client* client : clients) destroy_client(client);
}

}  // namespace hekla::conformance
