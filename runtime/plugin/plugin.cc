// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "runtime/base/log.h"

namespace hekla::runtime {
namespace {

// The libraries of this process, by canonical path; never emptied. A failed load is kept as its
// Status, since a library must not be initialised twice.
struct Loaded {
  std::mutex mutex;
  std::map<std::string, Result<std::shared_ptr<const Plugin>>> plugins;
};
Loaded& loaded() {
  static Loaded* instance = new Loaded;  // leaked: plugins outlive static destruction
  return *instance;
}

StatusCode code_of(PJRT_Error_Code code) {
  const int number = static_cast<int>(code);
  return number >= 1 && number <= 16 ? static_cast<StatusCode>(number) : StatusCode::kUnknown;
}

}  // namespace

Result<std::shared_ptr<const Plugin>> Plugin::load(std::string_view name, const std::string& path) {
  std::error_code error;
  const std::string canonical = std::filesystem::canonical(path, error).string();
  if (error) {
    return not_found("plugin '{}': there is no library {} ({})", name, path, error.message());
  }
  Loaded& all = loaded();
  // Held during initialisation: a second caller waits for the first one's result.
  std::lock_guard lock(all.mutex);
  if (auto known = all.plugins.find(canonical); known != all.plugins.end()) return known->second;

  std::shared_ptr<Plugin> plugin(new Plugin);
  plugin->name_ = name;
  plugin->path_ = canonical;
  // Without this libtpu asks a metadata server for minutes; it reads the variable when it starts.
  if (std::filesystem::path(canonical).filename().string().find("libtpu") != std::string::npos) {
    setenv("TPU_SKIP_MDS_QUERY", "1", /*overwrite=*/0);
  }
  Status status = plugin->open();
  if (status.ok()) status = plugin->check_version();
  if (status.ok()) status = plugin->initialize();
  Result<std::shared_ptr<const Plugin>> result =
      status.ok() ? Result<std::shared_ptr<const Plugin>>(plugin)
                  : status.with_context(fmt::format("plugin '{}' ({})", name, canonical));
  all.plugins.emplace(canonical, result);
  return result;
}

Status Plugin::open() {
  // RTLD_LOCAL keeps the LLVM and protobuf of several plugins apart.
  void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("the dynamic linker refuses it: {}; install what is missing or put "
                              "its directory on LD_LIBRARY_PATH",
                              reason == nullptr ? "no reason given" : reason));
  }
  auto* get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    return failed_precondition("it has no symbol GetPjrtApi, so it is not a PJRT plugin");
  }
  api_ = get_api();
  if (api_ == nullptr) return failed_precondition("its GetPjrtApi returned null");
  return ok_status();
}

Status Plugin::check_version() {
  table_size_ = api_->struct_size;
  constexpr size_t kVersionEnd = PJRT_STRUCT_SIZE(PJRT_Api, pjrt_api_version);
  if (table_size_ < kVersionEnd) {
    return failed_precondition("its function table has {} bytes; {} are needed to read its version",
                               table_size_, kVersionEnd);
  }
  const int major = api_->pjrt_api_version.major_version;
  api_minor_ = api_->pjrt_api_version.minor_version;
  if (major != PJRT_API_MAJOR || api_minor_ < kMinApiMinor) {
    return failed_precondition(
        "it speaks version {}.{} of the PJRT C API; this runtime needs {}.{} or a newer {}.x; get "
        "a {} build of the plugin",
        major, api_minor_, PJRT_API_MAJOR, kMinApiMinor, PJRT_API_MAJOR,
        major > PJRT_API_MAJOR ? "compatible" : "newer");
  }
  if (api_minor_ == 56) {
    return failed_precondition(
        "it speaks version 0.56 of the PJRT C API, the one version whose table has a slot in "
        "another place; get a build with 0.57 or newer");
  }
  // Errors must be readable before anything else is called.
  if (!has(&PJRT_Api::PJRT_Error_Message) || !has(&PJRT_Api::PJRT_Error_GetCode) ||
      !has(&PJRT_Api::PJRT_Error_Destroy) || !has(&PJRT_Api::PJRT_Client_Create)) {
    return failed_precondition(
        "its function table ({} bytes) ends before, or has null for, the functions that read "
        "errors and create a client",
        table_size_);
  }
  return ok_status();
}

Status Plugin::initialize() {
  if (has(&PJRT_Api::PJRT_Plugin_Initialize)) {
    HEKLA_PJRT_ARGS(PJRT_Plugin_Initialize_Args, args, extension_start);
    HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*this, PJRT_Plugin_Initialize, &args));
  }
  if (has(&PJRT_Api::PJRT_Plugin_Attributes)) {
    HEKLA_PJRT_ARGS(PJRT_Plugin_Attributes_Args, args, num_attributes);
    // Attributes inform; a plugin without them still runs programs.
    if (Status status = HEKLA_PJRT_CALL(*this, PJRT_Plugin_Attributes, &args); status.ok()) {
      for (size_t i = 0; args.attributes != nullptr && i < args.num_attributes; ++i) {
        attributes_.push_back(from_named_value(args.attributes[i]));
      }
    } else {
      log_message(LogLevel::kVerbose, "plugin '{}': {}", name_, status.to_string());
    }
  }
  return ok_status();
}

Status Plugin::missing(const char* slot_name) const {
  return unimplemented("plugin '{}' (PJRT C API 0.{}) does not offer {}", name_, api_minor_,
                       slot_name);
}

Status Plugin::take_error(PJRT_Error* error, std::string_view context) const {
  if (error == nullptr) return ok_status();
  HEKLA_PJRT_ARGS(PJRT_Error_Message_Args, text, message_size);
  text.error = error;
  api_->PJRT_Error_Message(&text);
  std::string message(text.message == nullptr ? "" : text.message,
                      text.message == nullptr ? 0 : text.message_size);
  HEKLA_PJRT_ARGS(PJRT_Error_GetCode_Args, code, code);
  code.error = error;
  // An error about an error is dropped: the first one is what the caller asked about.
  PJRT_Error* second = api_->PJRT_Error_GetCode(&code);
  const StatusCode status_code = second == nullptr ? code_of(code.code) : StatusCode::kUnknown;
  for (PJRT_Error* each : {second, error}) {
    if (each == nullptr) continue;
    HEKLA_PJRT_ARGS(PJRT_Error_Destroy_Args, destroy, error);
    destroy.error = each;
    api_->PJRT_Error_Destroy(&destroy);
  }
  if (message.empty()) message = "the plugin gave no message";
  Status status(status_code, std::move(message));
  return context.empty() ? status : status.with_context(context);
}

}  // namespace hekla::runtime
