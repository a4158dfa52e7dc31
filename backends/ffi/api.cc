// SPDX-License-Identifier: Apache-2.0
#include "backends/ffi/api.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "backends/ffi/registry.h"
#include "backends/ffi/task_pool.h"

namespace hekla::ffi {
namespace {

// Where structs ended in minor version 2; the other members follow at once.
struct StateArgs2 {
  size_t struct_size;
  XLA_FFI_Extension_Base* extension_start;
  XLA_FFI_ExecutionContext* ctx;
  XLA_FFI_TypeId* type_id;
  void* state;
};

template <auto Function>
struct Entry;
template <typename Args, Status (*Function)(Args&)>
struct Entry<Function> {
  static XLA_FFI_Error* call(Args* args) {
    try {
      return make_error(Function(*args));
    } catch (const std::exception& error) {
      return make_error(internal_error("unexpected exception: {}", error.what()));
    }
  }
};

XLA_FFI_Error* error_create(XLA_FFI_Error_Create_Args* args) {
  const int code = static_cast<int>(args->errc);
  const bool is_known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return new XLA_FFI_Error{Status(is_known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                                  args->message == nullptr ? "" : args->message)};
}
void error_message(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->status.message().c_str();
  if (args->struct_size > offsetof(XLA_FFI_Error_GetMessage_Args, errc)) {
    args->errc = static_cast<XLA_FFI_Error_Code>(args->error->status.code());
  }
}
void error_destroy(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

std::string_view text_of(const XLA_FFI_ByteSpan& span) { return {span.ptr, span.len}; }

Status handler_register(XLA_FFI_Handler_Register_Args& args) {
  return Registry::of_process().add_handler(text_of(args.name), args.bundle);
}

Status type_register(XLA_FFI_Type_Register_Args& args) {
  auto* const deleter = args.type_info == nullptr ? nullptr : args.type_info->deleter;
  HEKLA_ASSIGN_OR_RETURN(
      args.type_id->type_id,
      Registry::of_process().add_type(text_of(args.name), args.type_id->type_id, deleter));
  return ok_status();
}

Status stream_get(XLA_FFI_Stream_Get_Args&) {
  return unimplemented("handlers of this platform run on the host, where there is no stream");
}

Result<const LaunchInfo*> launch_of(const XLA_FFI_ExecutionContext& context) {
  if (context.launch != nullptr) return context.launch;
  return failed_precondition("the stage instantiate belongs to no launch");
}

Status context_get(XLA_FFI_ExecutionContext_Get_Args& args) {
  HEKLA_ASSIGN_OR_RETURN(const LaunchInfo* launch, launch_of(*args.ctx));
  if (launch->user_data != nullptr) {
    const auto it = launch->user_data->find(args.type_id->type_id);
    if (it != launch->user_data->end()) {
      args.data = it->second;
      return ok_status();
    }
  }
  return not_found("the launch has no user data of the type number {}", args.type_id->type_id);
}

constexpr const char* kStages[] = {"instantiate", "prepare", "initialize"};

Result<State*> state_of(const XLA_FFI_ExecutionContext& context, int stage) {
  if (stage < 0 || stage >= static_cast<int>(context.states.size())) {
    return invalid_argument("stage {} has no state", stage);
  }
  State* const state = context.states[static_cast<size_t>(stage)];
  if (state != nullptr) return state;
  return failed_precondition("there is no state of the stage {} yet", kStages[stage]);
}

// Up to minor version 2 states were those of instantiate.
template <typename Args>
StateArgs2 state_args(const Args& args, int& stage) {
  if (args.struct_size < sizeof(Args)) {
    stage = XLA_FFI_ExecutionStage_INSTANTIATE;
    return reinterpret_cast<const StateArgs2&>(args);
  }
  stage = args.stage;
  return {args.struct_size, args.extension_start, args.ctx, args.type_id, args.state};
}

Status state_set(XLA_FFI_State_Set_Args& args) {
  int stage = 0;
  const StateArgs2 given = state_args(args, stage);
  HEKLA_ASSIGN_OR_RETURN(State * state, state_of(*given.ctx, stage));
  return state->set(given.type_id->type_id, given.state);
}

Status state_get(XLA_FFI_State_Get_Args& args) {
  int stage = 0;
  const StateArgs2 given = state_args(args, stage);
  HEKLA_ASSIGN_OR_RETURN(State * state, state_of(*given.ctx, stage));
  HEKLA_ASSIGN_OR_RETURN(void* const data, state->get(given.type_id->type_id));
  if (args.struct_size < sizeof(args)) {
    reinterpret_cast<StateArgs2&>(args).state = data;
  } else {
    args.state = data;
  }
  return ok_status();
}

Status memory_allocate(XLA_FFI_DeviceMemory_Allocate_Args& args) {
  args.data = nullptr;
  if (args.size == 0) return ok_status();
  constexpr size_t kLeastAlignment = 64;
  const size_t alignment = std::max(kLeastAlignment, args.alignment);
  if ((alignment & (alignment - 1)) != 0) {
    return invalid_argument("memory aligned to {} bytes, which is no power of two", alignment);
  }
  if (posix_memalign(&args.data, alignment, args.size) != 0) {
    args.data = nullptr;
    return resource_exhausted("no host memory for {} bytes of a custom call", args.size);
  }
  return ok_status();
}

Status memory_free(XLA_FFI_DeviceMemory_Free_Args& args) {
  std::free(args.data);
  return ok_status();
}

Status pool_schedule(XLA_FFI_ThreadPool_Schedule_Args& args) {
  return TaskPool::of_process().post([task = args.task, data = args.data] { task(data); });
}

Status pool_threads(XLA_FFI_ThreadPool_NumThreads_Args& args) {
  *args.num_threads = TaskPool::of_process().thread_count();
  return ok_status();
}

Status future_create(XLA_FFI_Future_Create_Args& args) {
  args.future = new XLA_FFI_Future;
  return ok_status();
}

Status complete(const XLA_FFI_Future& future, Status result) {
  // The waiting thread may delete the future as soon as the lock is free.
  const std::shared_ptr<XLA_FFI_Future::Shared> shared = future.shared;
  const std::lock_guard lock(shared->mutex);
  if (shared->result) return failed_precondition("the future was set before");
  shared->result = std::move(result);
  shared->changed.notify_all();
  return ok_status();
}

Status future_available(XLA_FFI_Future_SetAvailable_Args& args) {
  return complete(*args.future, ok_status());
}

Status future_error(XLA_FFI_Future_SetError_Args& args) {
  Status status = take_error(args.error);
  if (status.ok()) return invalid_argument("the error of a future is null");
  return complete(*args.future, std::move(status));
}

Status run_id(XLA_FFI_RunId_Get_Args& args) {
  HEKLA_ASSIGN_OR_RETURN(const LaunchInfo* launch, launch_of(*args.ctx));
  args.run_id = launch->run_id;
  return ok_status();
}

Status device_ordinal(XLA_FFI_DeviceOrdinal_Get_Args& args) {
  HEKLA_ASSIGN_OR_RETURN(const LaunchInfo* launch, launch_of(*args.ctx));
  args.device_ordinal = launch->device_ordinal;
  return ok_status();
}

Status find_extension(XLA_FFI_InvokeContext_FindExtension_Args& args) {
  args.extension = nullptr;
  return ok_status();
}

constexpr XLA_FFI_Api kTable = {
    sizeof(XLA_FFI_Api),
    nullptr,
    {sizeof(XLA_FFI_Api_Version), nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR},
    nullptr,  // XLA's own C++ functions
    error_create,
    error_message,
    error_destroy,
    Entry<handler_register>::call,
    Entry<stream_get>::call,
    Entry<type_register>::call,
    Entry<context_get>::call,
    Entry<state_set>::call,
    Entry<state_get>::call,
    Entry<memory_allocate>::call,
    Entry<memory_free>::call,
    Entry<pool_schedule>::call,
    Entry<pool_threads>::call,
    Entry<future_create>::call,
    Entry<future_available>::call,
    Entry<future_error>::call,
    Entry<run_id>::call,
    Entry<device_ordinal>::call,
    Entry<find_extension>::call,
};

}  // namespace

const XLA_FFI_Api& api_table() { return kTable; }

XLA_FFI_CallFrame empty_frame() {
  XLA_FFI_CallFrame frame{};
  frame.struct_size = offsetof(XLA_FFI_CallFrame, future);
  frame.api = &kTable;
  frame.args.struct_size = sizeof(frame.args);
  frame.rets.struct_size = sizeof(frame.rets);
  frame.attrs.struct_size = sizeof(frame.attrs);
  return frame;
}

Status take_error(XLA_FFI_Error* error) {
  if (error == nullptr) return ok_status();
  const std::unique_ptr<XLA_FFI_Error> owned(error);
  return owned->status;
}

XLA_FFI_Error* make_error(const Status& status) {
  return status.ok() ? nullptr : new XLA_FFI_Error{status};
}

State::~State() {
  if (data_ == nullptr) return;
  if (auto* const deleter = Registry::of_process().deleter_of(type_id_)) deleter(data_);
}

Status State::set(int64_t type_id, void* data) {
  if (data_ != nullptr) return failed_precondition("the state is set already");
  if (data == nullptr) return invalid_argument("the state is null");
  if (!Registry::of_process().has_type(type_id)) {
    return invalid_argument(
        "the state's type (number {}) is not registered; jax.ffi.register_ffi_type does that",
        type_id);
  }
  type_id_ = type_id;
  data_ = data;
  return ok_status();
}

Result<void*> State::get(int64_t type_id) const {
  if (data_ == nullptr) return not_found("the state was not set");
  if (type_id != type_id_) {
    return invalid_argument("the state is of the type number {}, not {}", type_id_, type_id);
  }
  return data_;
}

}  // namespace hekla::ffi
