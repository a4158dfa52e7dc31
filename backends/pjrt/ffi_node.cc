// SPDX-License-Identifier: Apache-2.0
// The two extensions that register functions of the user's for custom calls: FFI, which takes
// handlers of the stage execute, types and user data of launches, and the one that began as that of
// GPUs' custom calls, which takes handlers of all stages and untyped functions. Both fill the
// registry of backends/ffi. Functions stay the client's.
#include "backends/ffi/registry.h"
#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

template <typename Function>
Function* function_at(void* address) {
  return reinterpret_cast<Function*>(address);
}

Status Type_Register(PJRT_FFI_Type_Register_Args* args) {
  HEKLA_REQUIRE(args, PJRT_FFI_Type_Register_Args, type_id);
  const bool has_info =
      HEKLA_COVERS(args, PJRT_FFI_Type_Register_Args, type_info) && args->type_info != nullptr;
  HEKLA_ASSIGN_OR_RETURN(args->type_id,
                         ffi::Registry::of_process().add_type(
                             text_of(args->type_name, args->type_name_size), args->type_id,
                             has_info ? args->type_info->deleter : nullptr));
  return ok_status();
}

Status UserData_Add(PJRT_FFI_UserData_Add_Args* args) {
  HEKLA_REQUIRE(args, PJRT_FFI_UserData_Add_Args, user_data);
  HEKLA_REQUIRE_HANDLE(args, context);
  if (args->user_data.type_id == 0) return invalid_argument("user data of the type number 0");
  const bool is_new =
      args->context->user_data->emplace(args->user_data.type_id, args->user_data.data).second;
  if (is_new) return ok_status();
  return Status(StatusCode::kAlreadyExists,
                fmt::format("user data of the type number {} is there", args->user_data.type_id));
}

Status Register_Handler(PJRT_FFI_Register_Handler_Args* args) {
  HEKLA_REQUIRE(args, PJRT_FFI_Register_Handler_Args, traits);
  const std::string_view platform = text_of(args->platform_name, args->platform_name_size);
  if (platform != backend_factory().platform_name) {
    return invalid_argument("a handler for the platform {}; this plugin is that of {}", platform,
                            backend_factory().platform_name);
  }
  XLA_FFI_Handler_Bundle bundle{};
  bundle.execute = function_at<XLA_FFI_Handler>(args->handler);
  return ffi::Registry::of_process().add_handler(text_of(args->target_name, args->target_name_size),
                                                 bundle);
}

Status Register_Custom_Call(PJRT_Gpu_Register_Custom_Call_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Gpu_Register_Custom_Call_Args, handler_execute);
  const std::string_view name = text_of(args->function_name, args->function_name_size);
  ffi::Registry& registry = ffi::Registry::of_process();
  if (args->api_version == 0) return registry.add_untyped(name, args->handler_execute);
  if (args->api_version != 1) {
    return invalid_argument("custom call target {}: API version {}; 0 is untyped, 1 typed", name,
                            args->api_version);
  }
  XLA_FFI_Handler_Bundle bundle{};
  bundle.instantiate = function_at<XLA_FFI_Handler>(args->handler_instantiate);
  bundle.prepare = function_at<XLA_FFI_Handler>(args->handler_prepare);
  bundle.initialize = function_at<XLA_FFI_Handler>(args->handler_initialize);
  bundle.execute = function_at<XLA_FFI_Handler>(args->handler_execute);
  return registry.add_handler(name, bundle);
}

PJRT_Gpu_Custom_Call custom_call_node = {
    {PJRT_STRUCT_SIZE(PJRT_Gpu_Custom_Call, custom_call_handles_traits),
     PJRT_Extension_Type_Gpu_Custom_Call, nullptr},
    Slot<Register_Custom_Call>::call,
    // There is one, and nothing is recorded that would make it matter.
    true,
};

PJRT_FFI_Extension ffi_node = {
    {PJRT_STRUCT_SIZE(PJRT_FFI_Extension, register_handler), PJRT_Extension_Type_FFI,
     &custom_call_node.base},
    Slot<Type_Register>::call,
    Slot<UserData_Add>::call,
    Slot<Register_Handler>::call,
};

}  // namespace

PJRT_Extension_Base* ffi_extension() {
  ffi::Registry::of_process().set_platform(backend_factory().platform_name);
  return &ffi_node.base;
}

}  // namespace hekla::pjrt
