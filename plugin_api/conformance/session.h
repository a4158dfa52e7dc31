// SPDX-License-Identifier: Apache-2.0
// What the checks share: a loaded plugin, calls with errors turned into reasons, uploads,
// downloads, compilation and launches. Internal to this folder.
//
// A Session belongs to one check in one process. It owns what its helpers create and destroys it in
// the order that clients use (events, buffers, executables, clients) in finish(). Its functions may
// be called from several threads. Failure and NotOffered are thrown inside the suite only; never
// from a callback that the plugin calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin_api/pjrt_c_api.h"

// A slot of the table with its name: session.call(HEKLA_SLOT(PJRT_Client_Create), &args).
#define HEKLA_SLOT(name) &PJRT_Api::name, #name

namespace hekla::conformance {

struct Failure {
  std::string reason;
};
struct NotOffered {
  std::string reason;
};

// A PJRT_Error after it has been read and destroyed.
struct ErrorInfo {
  int code = 0;
  std::string message;
  std::string text() const;  // "INVALID_ARGUMENT: ..."
};
std::string code_name(int code);

[[noreturn]] void fail(std::string reason);
void require(bool condition, const std::string& reason);
void require_equal(int64_t got, int64_t want, const std::string& what);

// An argument struct with zeroed fields. struct_size is sizeof: larger than the end of the last
// field is always legal.
template <class Args>
Args make_args() {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof(args));
  args.struct_size = sizeof(Args);
  return args;
}

// Host data of a buffer, dense row-major unless strides are given.
struct HostData {
  PJRT_Buffer_Type type = PJRT_Buffer_Type_F32;
  std::vector<int64_t> dims;
  const void* data = nullptr;
  std::vector<int64_t> byte_strides;
  PJRT_HostBufferSemantics semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  PJRT_Device* device = nullptr;
  PJRT_Memory* memory = nullptr;  // both null: the default memory of the first device
  PJRT_Buffer_MemoryLayout* device_layout = nullptr;
};

// Counts calls of PJRT_Event_OnReady's callback and keeps what the last one brought.
class ReadyCounter {
 public:
  explicit ReadyCounter(class Session& session) : session_(session) {}
  static void callback(PJRT_Error* error, void* self);
  // Waits until the callback has run `calls` times, then long enough to notice a surplus call.
  // Returns the number of calls seen.
  int wait(int calls);
  std::optional<ErrorInfo> error();

 private:
  Session& session_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  std::optional<ErrorInfo> error_;
};

struct Launch {
  std::vector<PJRT_Buffer*> outputs;
  PJRT_Event* done = nullptr;  // null when no event was asked for
};

struct LaunchOptions {
  bool want_event = true;
  int launch_id = 0;
  std::vector<int64_t> non_donatable;
  PJRT_Device* execute_device = nullptr;
  PJRT_ExecuteContext* context = nullptr;
  size_t options_size = sizeof(PJRT_ExecuteOptions);
  PJRT_Extension_Base* extension = nullptr;
  const char* call_location = nullptr;
  int num_outputs = -1;  // -1: ask the executable
};

class Session {
 public:
  // Opens the library and looks up the table; throws Failure with the loader's words.
  Session(const std::string& library,
          const std::vector<std::pair<std::string, std::string>>& create_options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const PJRT_Api* api() const { return api_; }
  const std::string& library() const { return library_; }
  const std::vector<std::pair<std::string, std::string>>& create_options() const {
    return create_options_;
  }
  int minor() const { return api_->pjrt_api_version.minor_version; }
  // Calls PJRT_Plugin_Initialize once.
  void initialize();

  // A remark that is shown beside a pass.
  void remark(const std::string& text);
  const std::string& remarks() const { return remarks_; }

  // ---- Calls. A slot beyond the end of the plugin's table counts as null.

  template <class Function>
  Function* find(Function* PJRT_Api::*member) const {
    const auto offset = static_cast<size_t>(reinterpret_cast<const char*>(&(api_->*member)) -
                                            reinterpret_cast<const char*>(api_));
    if (offset + sizeof(void*) > api_->struct_size) return nullptr;
    return api_->*member;
  }
  // Calls a slot and returns its error, if any. A slot that is not there throws NotOffered.
  template <class Args>
  std::optional<ErrorInfo> try_call(PJRT_Error* (*PJRT_Api::*member)(Args*), const char* name,
                                    Args* args) {
    auto* function = find(member);
    if (function == nullptr) throw NotOffered{absent(name)};
    return take(function(args));
  }
  // The call must succeed.
  template <class Args>
  void call(PJRT_Error* (*PJRT_Api::*member)(Args*), const char* name, Args* args) {
    if (auto error = try_call(member, name, args)) fail(std::string(name) + ": " + error->text());
  }
  // The call must succeed or return UNIMPLEMENTED with words (then NotOffered).
  template <class Args>
  void call_optional(PJRT_Error* (*PJRT_Api::*member)(Args*), const char* name, Args* args) {
    if (auto error = try_call(member, name, args)) refuse_unless_unimplemented(name, *error);
  }
  // The call must return an error of this code (0: any code) with a message.
  template <class Args>
  ErrorInfo call_fails(PJRT_Error* (*PJRT_Api::*member)(Args*), const char* name, Args* args,
                       int code, const std::string& what) {
    auto error = try_call(member, name, args);
    require(error.has_value(), std::string(name) + " succeeded for " + what);
    if (code != 0 && error->code != code) {
      fail(std::string(name) + " for " + what + ": " + code_name(code) + " expected, got " +
           error->text());
    }
    require(!error->message.empty(), std::string(name) + ": error without a message for " + what);
    return *error;
  }
  // Reads and destroys an error; empty for null.
  std::optional<ErrorInfo> take(PJRT_Error* error);
  [[noreturn]] void refuse_unless_unimplemented(const char* name, const ErrorInfo& error);

  // ---- Clients and what is in them.

  PJRT_Client* client();  // created at the first call
  PJRT_Client* create_client();
  std::optional<ErrorInfo> try_create_client(PJRT_Client_Create_Args* args);
  void destroy_client(PJRT_Client* client);
  std::vector<PJRT_Device*> devices(PJRT_Client* client = nullptr);
  std::vector<PJRT_Device*> addressable_devices(PJRT_Client* client = nullptr);
  std::vector<PJRT_Memory*> memories(PJRT_Device* device);
  PJRT_Device* device(size_t index = 0);
  PJRT_DeviceDescription* description(PJRT_Device* device);
  int device_id(PJRT_Device* device);
  // The default memory of a device; null when the plugin has no memories.
  PJRT_Memory* default_memory(PJRT_Device* device);
  std::string memory_kind(PJRT_Memory* memory);
  std::string platform_name(PJRT_Client* client);

  // ---- Events.

  std::optional<ErrorInfo> await(PJRT_Event* event);
  bool is_ready(PJRT_Event* event);
  void on_ready(PJRT_Event* event, ReadyCounter* counter);
  void destroy_event(PJRT_Event* event);
  // Awaits, destroys and returns the event's error.
  std::optional<ErrorInfo> finish_event(PJRT_Event* event);
  PJRT_Event* ready_event(PJRT_Buffer* buffer);
  // A buffer of four f32 whose ready event brings an error.
  PJRT_Buffer* error_buffer(PJRT_Error_Code code, const std::string& message);

  // ---- Buffers.

  PJRT_Client_BufferFromHostBuffer_Args upload_args(const HostData& host,
                                                    PJRT_Client* client = nullptr);
  // Uploads; the done event is awaited and destroyed.
  PJRT_Buffer* upload(const HostData& host, PJRT_Client* client = nullptr);
  PJRT_Buffer* upload_f32(const std::vector<float>& values, std::vector<int64_t> dims,
                          PJRT_Device* device = nullptr, PJRT_Client* client = nullptr);
  // Reads bytes in the given host layout (null: the plugin's natural order).
  std::vector<uint8_t> download(PJRT_Buffer* buffer, size_t size,
                                PJRT_Buffer_MemoryLayout* layout = nullptr);
  std::vector<float> download_f32(PJRT_Buffer* buffer, size_t count);
  // The error that a read of the buffer brings, from the call or from its event.
  std::optional<ErrorInfo> download_error(PJRT_Buffer* buffer, size_t size);
  bool is_deleted(PJRT_Buffer* buffer);
  void delete_buffer(PJRT_Buffer* buffer);
  void destroy_buffer(PJRT_Buffer* buffer);
  void own(PJRT_Buffer* buffer);

  // ---- Programs.

  PJRT_LoadedExecutable* compile(std::string_view code, std::string_view options = {},
                                 PJRT_Client* client = nullptr);
  std::optional<ErrorInfo> try_compile(std::string_view code, std::string_view format,
                                       std::string_view options, PJRT_LoadedExecutable** executable,
                                       PJRT_Client* client = nullptr);
  void destroy_executable(PJRT_LoadedExecutable* executable);
  void own(PJRT_LoadedExecutable* executable);
  PJRT_Executable* executable_of(PJRT_LoadedExecutable* loaded);
  void destroy_executable(PJRT_Executable* executable);
  size_t num_outputs(PJRT_LoadedExecutable* loaded);
  std::optional<ErrorInfo> try_execute(PJRT_LoadedExecutable* executable,
                                       const std::vector<PJRT_Buffer*>& arguments,
                                       const LaunchOptions& options, Launch* launch);
  Launch execute(PJRT_LoadedExecutable* executable, const std::vector<PJRT_Buffer*>& arguments,
                 const LaunchOptions& options = {});
  // Executes, awaits the event and returns the outputs.
  std::vector<PJRT_Buffer*> run(PJRT_LoadedExecutable* executable,
                                const std::vector<PJRT_Buffer*>& arguments,
                                const LaunchOptions& options = {});
  // Where a launch failed: from the call, its event or the output's ready event. Empty: it did not.
  std::optional<ErrorInfo> execute_error(PJRT_LoadedExecutable* executable,
                                         const std::vector<PJRT_Buffer*>& arguments,
                                         const LaunchOptions& options = {});

  // Destroys what is still owned; every call must succeed.
  void finish();

 private:
  std::string absent(const char* name) const;

  std::string library_;
  void* handle_ = nullptr;
  const PJRT_Api* api_ = nullptr;
  std::vector<std::pair<std::string, std::string>> create_options_;
  std::vector<int64_t> option_integers_;
  std::vector<PJRT_NamedValue> option_values_;
  bool initialized_ = false;
  std::string remarks_;
  std::mutex mutex_;  // guards what follows
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Client*> clients_;
  std::set<PJRT_Buffer*> buffers_;
  std::set<PJRT_LoadedExecutable*> loaded_;
  std::set<PJRT_Executable*> executables_;
  std::map<PJRT_LoadedExecutable*, size_t> output_counts_;
};

// A tiled layout record whose struct_size fields hold garbage, as clients send it.
struct TiledLayout {
  explicit TiledLayout(std::vector<int64_t> order);
  std::vector<int64_t> minor_to_major;
  PJRT_Buffer_MemoryLayout layout;
};

// "a" or "a, b and 3 more" for reasons that list names.
std::string join(const std::vector<std::string>& names, size_t limit = 6);
// 1, 2, 3 and so on.
std::vector<float> counted(size_t count);

}  // namespace hekla::conformance
