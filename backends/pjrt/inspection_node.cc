// SPDX-License-Identifier: Apache-2.0
// The inspection extension: what the backend shows of an executable.
#include "backends/pjrt/abi.h"
#include "plugin_api/hekla_inspection.h"

struct Hekla_Inspection_Holder {
  std::string bytes;
  hekla::pjrt::NamedValues values;
};

namespace hekla::pjrt {
namespace {

void delete_holder(Hekla_Inspection_Holder* holder) { delete holder; }

Result<std::shared_ptr<BackendExecutable>> living(PJRT_LoadedExecutable* executable) {
  std::lock_guard lock(executable->mutex);
  if (executable->executable == nullptr) {
    return invalid_argument("the executable was deleted");
  }
  return executable->executable;
}

Status Executable_Artefact(Hekla_Executable_Artefact_Args* args) {
  HEKLA_REQUIRE(args, Hekla_Executable_Artefact_Args, holder_deleter);
  HEKLA_REQUIRE_HANDLE(args, executable);
  HEKLA_ASSIGN_OR_RETURN(const auto executable, living(args->executable));
  auto holder = std::make_unique<Hekla_Inspection_Holder>();
  HEKLA_ASSIGN_OR_RETURN(holder->bytes, executable->artefact(text_of(args->form, args->form_size)));
  args->bytes = holder->bytes.data();
  args->bytes_size = holder->bytes.size();
  args->holder = holder.release();
  args->holder_deleter = delete_holder;
  return ok_status();
}

Status Executable_Statistics(Hekla_Executable_Statistics_Args* args) {
  HEKLA_REQUIRE(args, Hekla_Executable_Statistics_Args, holder_deleter);
  HEKLA_REQUIRE_HANDLE(args, executable);
  HEKLA_ASSIGN_OR_RETURN(const auto executable, living(args->executable));
  auto holder = std::make_unique<Hekla_Inspection_Holder>();
  for (auto& [name, value] : executable->statistics()) holder->values.add(name, value);
  args->values = holder->values.values.data();
  args->num_values = holder->values.values.size();
  args->holder = holder.release();
  args->holder_deleter = delete_holder;
  return ok_status();
}

Hekla_Inspection_Extension inspection_node = {
    {PJRT_STRUCT_SIZE(Hekla_Inspection_Extension, executable_statistics),
     static_cast<PJRT_Extension_Type>(Hekla_Extension_Type_Inspection), nullptr},
    Slot<Executable_Artefact>::call,
    Slot<Executable_Statistics>::call,
};

}  // namespace

PJRT_Extension_Base* inspection_extension() { return &inspection_node.base; }

}  // namespace hekla::pjrt
