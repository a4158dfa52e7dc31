// SPDX-License-Identifier: Apache-2.0
// The extensions that every plugin serves: layouts, shardings, memory descriptions, profiler.
#include "backends/pjrt/abi.h"

struct PLUGIN_Profiler {};

struct PLUGIN_Profiler_Error {
  std::string message;
};

namespace hekla::pjrt {
namespace {

PJRT_Layouts_MemoryLayout* make_layout(size_t rank) {
  return new PJRT_Layouts_MemoryLayout{layout_text(rank)};
}

Status MemoryLayout_Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_MemoryLayout_Destroy_Args, layout);
  delete args->layout;
  return ok_status();
}

void keep_layout_text(PJRT_Layouts_SerializedLayout*) {}

Status MemoryLayout_Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_layout_deleter);
  HEKLA_REQUIRE_HANDLE(args, layout);
  args->serialized_bytes = args->layout->text.data();
  args->serialized_bytes_size = args->layout->text.size();
  args->serialized_layout = nullptr;  // the layout owns the text
  args->serialized_layout_deleter = keep_layout_text;
  return ok_status();
}

Status Client_GetDefaultLayout(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, layout);
  args->layout = make_layout(args->num_dims);
  return ok_status();
}

Status Topology_GetDefaultLayout(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, layout);
  args->layout = make_layout(args->num_dims);
  return ok_status();
}

Status Buffer_MemoryLayout(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, layout);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->layout = make_layout(args->buffer->dims.size());
  return ok_status();
}

Status Executable_GetOutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, layouts);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const auto& layouts = args->executable->program->result_layouts;
  args->layouts = const_cast<PJRT_Layouts_MemoryLayout**>(layouts.data());
  args->num_outputs = layouts.size();
  return ok_status();
}

Status Executable_GetParameterLayouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, layouts);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const auto& layouts = args->executable->program->parameter_layouts;
  args->layouts = const_cast<PJRT_Layouts_MemoryLayout**>(layouts.data());
  args->num_parameters = layouts.size();
  return ok_status();
}

Status Executable_ParameterShardings(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Shardings_PJRT_Executable_ParameterShardings_Args, sharding_sizes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  args->num_parameters = program.parameters.size();
  args->shardings = program.parameter_sharding_pointers.data();
  args->sharding_sizes = program.parameter_sharding_sizes.data();
  return ok_status();
}

Status Executable_OutputShardings(PJRT_Shardings_PJRT_Executable_OutputShardings_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Shardings_PJRT_Executable_OutputShardings_Args, sharding_sizes);
  HEKLA_REQUIRE_HANDLE(args, executable);
  const Program& program = *args->executable->program;
  args->num_outputs = program.results.size();
  args->shardings = program.result_sharding_pointers.data();
  args->sharding_sizes = program.result_sharding_sizes.data();
  return ok_status();
}

Status DeviceDescription_MemoryDescriptions(PJRT_DeviceDescription_MemoryDescriptions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_MemoryDescriptions_Args, default_memory_index);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  args->memory_descriptions = args->device_description->kind_pointers.data();
  args->num_memory_descriptions = args->device_description->kind_pointers.size();
  args->default_memory_index = 0;
  return ok_status();
}

Status MemoryDescription_Kind(PJRT_MemoryDescription_Kind_Args* args) {
  HEKLA_REQUIRE(args, PJRT_MemoryDescription_Kind_Args, kind_id);
  HEKLA_REQUIRE_HANDLE(args, memory_description);
  const auto& kind =
      *reinterpret_cast<const PJRT_DeviceDescription::Kind*>(args->memory_description);
  args->kind = kind.name.c_str();
  args->kind_size = kind.name.size();
  args->kind_id = kind.id;
  return ok_status();
}

// The profiler has nothing to report yet: an empty XSpace. Its callers leave struct sizes unset.
void profiler_error_destroy(PLUGIN_Profiler_Error_Destroy_Args* args) { delete args->error; }
void profiler_error_message(PLUGIN_Profiler_Error_Message_Args* args) {
  args->message = args->error->message.c_str();
  args->message_size = args->error->message.size();
}
PLUGIN_Profiler_Error* profiler_error_code(PLUGIN_Profiler_Error_GetCode_Args* args) {
  args->code = static_cast<int>(StatusCode::kInternal);
  return nullptr;
}
PLUGIN_Profiler_Error* profiler_create(PLUGIN_Profiler_Create_Args* args) {
  args->profiler = new PLUGIN_Profiler;
  return nullptr;
}
PLUGIN_Profiler_Error* profiler_destroy(PLUGIN_Profiler_Destroy_Args* args) {
  delete args->profiler;
  return nullptr;
}
PLUGIN_Profiler_Error* profiler_start(PLUGIN_Profiler_Start_Args*) { return nullptr; }
PLUGIN_Profiler_Error* profiler_stop(PLUGIN_Profiler_Stop_Args*) { return nullptr; }
PLUGIN_Profiler_Error* profiler_collect(PLUGIN_Profiler_CollectData_Args* args) {
  static uint8_t nothing = 0;
  args->buffer = &nothing;
  args->buffer_size_in_bytes = 0;
  return nullptr;
}

PLUGIN_Profiler_Api profiler_api = {
    // jaxlib up to 0.10 demands exactly the size of the first eight functions.
    PJRT_STRUCT_SIZE(PLUGIN_Profiler_Api, collect_data),
    nullptr,
    profiler_error_destroy,
    profiler_error_message,
    profiler_error_code,
    profiler_create,
    profiler_destroy,
    profiler_start,
    profiler_stop,
    profiler_collect,
    nullptr,
    nullptr,
    nullptr,
};

PJRT_Profiler_Extension profiler_node = {
    {PJRT_STRUCT_SIZE(PJRT_Profiler_Extension, traceme_context_id), PJRT_Extension_Type_Profiler,
     nullptr},  // extension_chain() hangs the next one here
    &profiler_api,
    0,
};

PJRT_MemoryDescriptions_Extension memory_descriptions_node = {
    {PJRT_STRUCT_SIZE(PJRT_MemoryDescriptions_Extension, PJRT_MemoryDescription_Kind),
     PJRT_Extension_Type_MemoryDescriptions, &profiler_node.base},
    Slot<DeviceDescription_MemoryDescriptions>::call,
    Slot<MemoryDescription_Kind>::call,
};

PJRT_Shardings_Extension shardings_node = {
    {PJRT_STRUCT_SIZE(PJRT_Shardings_Extension, PJRT_Shardings_PJRT_Executable_OutputShardings),
     PJRT_Extension_Type_Shardings, &memory_descriptions_node.base},
    Slot<Executable_ParameterShardings>::call,
    Slot<Executable_OutputShardings>::call,
};

PJRT_Layouts_Extension layouts_node = {
    {PJRT_STRUCT_SIZE(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetParameterLayouts),
     PJRT_Extension_Type_Layouts, &shardings_node.base},
    Slot<MemoryLayout_Destroy>::call,
    Slot<MemoryLayout_Serialize>::call,
    Slot<Client_GetDefaultLayout>::call,
    Slot<Buffer_MemoryLayout>::call,
    Slot<Topology_GetDefaultLayout>::call,
    Slot<Executable_GetOutputLayouts>::call,
    Slot<Executable_GetParameterLayouts>::call,
};

}  // namespace

PJRT_Extension_Base* extension_chain() {
  profiler_node.base.next = inspection_extension();
  profiler_node.base.next->next = holds_extension();
  profiler_node.base.next->next->next = ffi_extension();
  return &layouts_node.base;
}

}  // namespace hekla::pjrt
