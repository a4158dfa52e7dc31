// SPDX-License-Identifier: Apache-2.0
// Errors, plugin initialisation and attributes, events.
#include <new>

#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

bool is_shared(const PJRT_Error* error);

void destroy_error(PJRT_Error* error) {
  if (!is_shared(error)) delete static_cast<ErrorObject*>(error);
}

void error_message(const PJRT_Error* error, const char** message, size_t* size) {
  const std::string& text = static_cast<const ErrorObject*>(error)->status.message();
  *message = text.c_str();
  *size = text.size();
}

PJRT_Error_Code error_code(const PJRT_Error* error) {
  return static_cast<PJRT_Error_Code>(static_cast<const ErrorObject*>(error)->status.code());
}

void for_each_payload(const PJRT_Error*, PJRT_Error_PayloadVisitor, void*) {}

constexpr PJRT_Error_FunctionTable kErrorTable = {
    PJRT_STRUCT_SIZE(PJRT_Error_FunctionTable, for_each_payload),
    sizeof(PJRT_Error),
    nullptr,
    destroy_error,
    error_message,
    error_code,
    for_each_payload,
};

// Made when the table is, since later there may be no memory for it.
ErrorObject& out_of_memory() {
  static ErrorObject& error = *[] {
    auto* made = new ErrorObject;
    made->vtable = &kErrorTable;
    made->status = out_of_host_memory();
    return made;
  }();
  return error;
}

bool is_shared(const PJRT_Error* error) { return error == &out_of_memory(); }

void Error_Destroy(PJRT_Error_Destroy_Args* args) {
  if (args != nullptr && args->error != nullptr) destroy_error(args->error);
}

void Error_Message(PJRT_Error_Message_Args* args) {
  if (args == nullptr) return;
  if (args->error == nullptr) {
    args->message = "";
    args->message_size = 0;
    return;
  }
  error_message(args->error, &args->message, &args->message_size);
}

Status Error_GetCode(PJRT_Error_GetCode_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Error_GetCode_Args, code);
  args->code = args->error == nullptr ? PJRT_Error_Code_OK : error_code(args->error);
  return ok_status();
}

Status Error_ForEachPayload(PJRT_Error_ForEachPayload_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Error_ForEachPayload_Args, error);
  return ok_status();
}

Status Plugin_Initialize(PJRT_Plugin_Initialize_Args*) { return ok_status(); }

// The newest versions that the program reader knows.
NamedValues& plugin_attributes() {
  static NamedValues& values = *[] {
    auto* made = new NamedValues;
    made->add("xla_version", int64_t{2});
    made->add("stablehlo_current_version", std::vector<int64_t>{1, 20, 0});
    made->add("stablehlo_minimum_version", std::vector<int64_t>{0, 9, 0});
    made->add("sdy_current_version", std::vector<int64_t>{0, 0, 2});
    return made;
  }();
  return values;
}

Status Plugin_Attributes(PJRT_Plugin_Attributes_Args* args) {
  if (args == nullptr) return invalid_argument("PJRT_Plugin_Attributes: no arguments");
  // jaxlib up to 0.6 states a size of 24 but has room for all fields, and reads them.
  args->attributes = plugin_attributes().values.data();
  args->num_attributes = plugin_attributes().values.size();
  return ok_status();
}

Status Event_Destroy(PJRT_Event_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_Destroy_Args, event);
  HEKLA_KEEP_IF_INHERITED(args->event);
  delete args->event;
  return ok_status();
}

Status Event_IsReady(PJRT_Event_IsReady_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_IsReady_Args, is_ready);
  HEKLA_REQUIRE_HANDLE(args, event);
  args->is_ready = args->event->completion->is_done();
  return ok_status();
}

Status Event_Error(PJRT_Event_Error_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_Error_Args, event);
  HEKLA_REQUIRE_HANDLE(args, event);
  return args->event->completion->status();
}

Status Event_Await(PJRT_Event_Await_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_Await_Args, event);
  HEKLA_REQUIRE_HANDLE(args, event);
  // The handle may be destroyed by another thread as soon as the event is done.
  const CompletionRef completion = args->event->completion;
  if (args->event->state != nullptr && !completion->is_done()) {
    HEKLA_RETURN_IF_ERROR(args->event->state->check_process());
  }
  return completion->await();
}

Status Event_OnReady(PJRT_Event_OnReady_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_OnReady_Args, user_arg);
  HEKLA_REQUIRE_HANDLE(args, event);
  if (args->callback == nullptr) return invalid_argument("PJRT_Event_OnReady: no callback");
  const auto callback = args->callback;
  void* const user_arg = args->user_arg;
  const CompletionRef completion = args->event->completion;
  if (completion->is_done()) {
    callback(to_error(completion->status()), user_arg);
    return ok_status();
  }
  // The client's thread calls back: the one that completes has a device to serve.
  const StateRef state = args->event->state;
  if (state != nullptr && state->is_inherited()) {
    callback(to_error(state->check_process()), user_arg);
    return ok_status();
  }
  completion->on_done([callback, user_arg, state](const Status& status) {
    const Status posted = status_of_work([&] {
      if (state == nullptr) return cancelled("no thread calls back for this event");
      state->callbacks.post([callback, user_arg, status] { callback(to_error(status), user_arg); });
      return ok_status();
    });
    // Where there is no such thread, or no memory for the job, this one does it.
    if (!posted.ok()) callback(to_error(status), user_arg);
  });
  return ok_status();
}

Status Event_Create(PJRT_Event_Create_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_Create_Args, event);
  args->event = make_event(Completion::make(), nullptr);
  return ok_status();
}

Status Event_Set(PJRT_Event_Set_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Event_Set_Args, error_message_size);
  HEKLA_REQUIRE_HANDLE(args, event);
  // A callback may destroy the event.
  const CompletionRef completion = args->event->completion;
  if (completion->complete(
          status_of(args->error_code, args->error_message, args->error_message_size))) {
    return ok_status();
  }
  return failed_precondition("PJRT_Event_Set: the event was set before");
}

}  // namespace

Status status_of(PJRT_Error_Code code, const char* message, size_t size) {
  if (code == PJRT_Error_Code_OK) return ok_status();
  std::string words = message == nullptr ? std::string() : std::string(message, size);
  if (code > PJRT_Error_Code_OK && code <= PJRT_Error_Code_UNAUTHENTICATED) {
    return Status(static_cast<StatusCode>(code), std::move(words));
  }
  return Status(StatusCode::kUnknown,
                fmt::format("error code {}: {}", static_cast<int>(code), words));
}

PJRT_Error* to_error(Status status) noexcept {
  if (status.ok()) return nullptr;
  auto* error = new (std::nothrow) ErrorObject;
  if (error == nullptr) return &out_of_memory();
  error->vtable = &kErrorTable;
  error->status = std::move(status);
  return error;
}

PJRT_Event* make_event(CompletionRef completion, StateRef state) {
  return new PJRT_Event{std::move(completion), std::move(state)};
}

void NamedValues::add(std::string name, OptionValue value) {
  auto& [key, held] = owned.emplace_back(std::move(name), std::move(value));
  PJRT_NamedValue out = {};
  out.struct_size = PJRT_STRUCT_SIZE(PJRT_NamedValue, value_size);
  out.name = key.c_str();
  out.name_size = key.size();
  out.value_size = 1;
  if (const auto* text = std::get_if<std::string>(&held)) {
    out.type = PJRT_NamedValue_kString;
    out.string_value = text->c_str();
    out.value_size = text->size();
  } else if (const auto* integer = std::get_if<int64_t>(&held)) {
    out.type = PJRT_NamedValue_kInt64;
    out.int64_value = *integer;
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&held)) {
    out.type = PJRT_NamedValue_kInt64List;
    out.int64_array_value = list->data();
    out.value_size = list->size();
  } else if (const auto* number = std::get_if<float>(&held)) {
    out.type = PJRT_NamedValue_kFloat;
    out.float_value = *number;
  } else {
    out.type = PJRT_NamedValue_kBool;
    out.bool_value = std::get<bool>(held);
  }
  values.push_back(out);
}

void add_error_and_event_slots(PJRT_Api& api) {
  static_cast<void>(out_of_memory());
  api.PJRT_Error_Destroy = Error_Destroy;
  api.PJRT_Error_Message = Error_Message;
  api.PJRT_Error_GetCode = Slot<Error_GetCode>::call;
  api.PJRT_Error_ForEachPayload = Slot<Error_ForEachPayload>::call;
  api.PJRT_Plugin_Initialize = Slot<Plugin_Initialize>::call;
  api.PJRT_Plugin_Attributes = Slot<Plugin_Attributes>::call;
  api.PJRT_Event_Destroy = Slot<Event_Destroy>::call;
  api.PJRT_Event_IsReady = Slot<Event_IsReady>::call;
  api.PJRT_Event_Error = Slot<Event_Error>::call;
  api.PJRT_Event_Await = Slot<Event_Await>::call;
  api.PJRT_Event_OnReady = Slot<Event_OnReady>::call;
  api.PJRT_Event_Create = Slot<Event_Create>::call;
  api.PJRT_Event_Set = Slot<Event_Set>::call;
}

}  // namespace hekla::pjrt
