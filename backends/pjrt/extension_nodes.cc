// SPDX-License-Identifier: Apache-2.0
// The extensions that every plugin serves: layouts, shardings, memory descriptions; and the chain
// of all.
#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

Result<PJRT_Layouts_MemoryLayout*> make_layout(size_t rank, const Order& order = {}) {
  HEKLA_RETURN_IF_ERROR(check_rank(rank));
  return new PJRT_Layouts_MemoryLayout{layout_text(order, rank)};
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
  HEKLA_ASSIGN_OR_RETURN(args->layout, make_layout(args->num_dims));
  return ok_status();
}

Status Topology_GetDefaultLayout(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, layout);
  HEKLA_ASSIGN_OR_RETURN(args->layout, make_layout(args->num_dims));
  return ok_status();
}

Status Buffer_MemoryLayout(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, layout);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_ASSIGN_OR_RETURN(args->layout, make_layout(args->buffer->dims.size(), args->buffer->order));
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

PJRT_MemoryDescriptions_Extension memory_descriptions_node = {
    {PJRT_STRUCT_SIZE(PJRT_MemoryDescriptions_Extension, PJRT_MemoryDescription_Kind),
     PJRT_Extension_Type_MemoryDescriptions, nullptr},  // extension_chain() hangs the next one here
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
  PJRT_Extension_Base* last = &memory_descriptions_node.base;
  for (PJRT_Extension_Base* next : {profiler_extension(), inspection_extension(), holds_extension(),
                                    partitioner_extension(), ffi_extension()}) {
    last->next = next;
    last = next;
  }
  return &layouts_node.base;
}

}  // namespace hekla::pjrt
