// SPDX-License-Identifier: Apache-2.0
// The border of the C ABI: struct sizes, errors, exceptions. Internal to this folder.
#pragma once

#include "backends/pjrt/handles.h"
#include "runtime/base/exceptions.h"

namespace hekla::pjrt {

// Null for ok. Where there is no memory for another object: one error of all, which says so.
PJRT_Error* to_error(Status status) noexcept;
// An error as a caller passes it in; `message` may be null, UNKNOWN stands for codes that there are
// not.
Status status_of(PJRT_Error_Code code, const char* message, size_t size);
PJRT_Buffer_Type to_buffer_type(DType dtype);
// kInvalid for types that the back ends do not have (tokens are kInvalid too).
Result<DType> to_dtype(PJRT_Buffer_Type type);

// Whether the caller's struct reaches to the end of `field`.
#define HEKLA_COVERS(args, Struct, field) ((args)->struct_size >= PJRT_STRUCT_SIZE(Struct, field))

// Returns INVALID_ARGUMENT from the function unless the struct reaches to the end of `field`, the
// last one that every caller since API 0.29 has.
#define HEKLA_REQUIRE(args, Struct, field)                                            \
  do {                                                                                \
    if ((args) == nullptr || !HEKLA_COVERS(args, Struct, field)) {                    \
      return invalid_argument(#Struct                                                 \
                              ": the struct has {} bytes, {} are needed; the caller " \
                              "is older than API 0.29 or wrote no struct_size",       \
                              (args) == nullptr ? size_t{0} : (args)->struct_size,    \
                              PJRT_STRUCT_SIZE(Struct, field));                       \
    }                                                                                 \
  } while (false)

#define HEKLA_REQUIRE_HANDLE(args, field)                                     \
  do {                                                                        \
    if ((args)->field == nullptr) return invalid_argument(#field " is null"); \
  } while (false)

// Ends a function that destroys `object`, which has a `state`, where this process is a fork of its
// client's: what it holds has threads and locks that are not there.
#define HEKLA_KEEP_IF_INHERITED(object)                                                         \
  do {                                                                                          \
    if ((object) != nullptr && (object)->state != nullptr && (object)->state->is_inherited()) { \
      return ok_status();                                                                       \
    }                                                                                           \
  } while (false)

// Turns `Status function(Args*)` into a slot of the table: no exception passes.
template <auto Function>
struct Slot;
template <typename Args, Status (*Function)(Args*)>
struct Slot<Function> {
  static PJRT_Error* call(Args* args) {
    return to_error(status_of_work([args] { return Function(args); }));
  }
};

// For callbacks on threads of ours and of the client's, where nobody catches: runs `work`, which
// begins what will complete `done`; what it throws completes `done`.
template <typename Work>
void begin_or_fail(const CompletionRef& done, const Work& work) {
  Status status = status_of_work([&work] {
    work();
    return ok_status();
  });
  if (!status.ok()) done->complete(std::move(status));
}

// A new handle of an event; `state` may be null.
PJRT_Event* make_event(CompletionRef completion, StateRef state);

// Fills the table; one function per file of slots.
void add_error_and_event_slots(PJRT_Api& api);
void add_client_slots(PJRT_Api& api);
void add_device_slots(PJRT_Api& api);
void add_topology_slots(PJRT_Api& api);
void add_buffer_slots(PJRT_Api& api);
void add_transfer_slots(PJRT_Api& api);
void add_stream_slots(PJRT_Api& api);
void add_executable_slots(PJRT_Api& api);
void add_execute_slots(PJRT_Api& api);
PJRT_Extension_Base* extension_chain();
PJRT_Extension_Base* inspection_extension();
PJRT_Extension_Base* holds_extension();
PJRT_Extension_Base* profiler_extension();
PJRT_Extension_Base* partitioner_extension();
// Two nodes; the second one's `next` is free.
PJRT_Extension_Base* ffi_extension();

// Empty for null.
inline std::string_view text_of(const char* text, size_t size) {
  return text == nullptr ? std::string_view() : std::string_view(text, size);
}

// The factory of this plugin.
const BackendFactory& backend_factory();

// Shared between files of slots.
// INVALID_ARGUMENT: no name, nothing where `count` or a size says that there is something, an
// unknown type.
Result<Options> read_options(const PJRT_NamedValue* values, size_t count);
// `devices`: of each process.
std::shared_ptr<PJRT_TopologyDescription> make_topology(
    const Backend& backend, const std::vector<std::vector<DeviceInfo>>& devices);
// The i-th of `count` devices when nobody chooses them: this process's own where there are as many,
// else from id 0 on; more than there are, too.
int default_device_id(const ClientState& state, int64_t count, int64_t i);
// INVALID_ARGUMENT: a device of another process.
Result<int> local_index_of(const PJRT_Device& device);
// A fingerprint of the kind's name, never 0.
int memory_kind_id(const std::string& kind);
// Allocates and describes a buffer; `ready` says when its bytes are valid.
PJRT_Buffer* make_buffer(const StateRef& state, MemoryObject* memory, PJRT_Device* device,
                         DType dtype, Dims dims, StorageRef storage, CompletionRef ready,
                         Order order = {});
// INVALID_ARGUMENT "Buffer has been deleted or donated", the words that clients look for.
Status deleted_or_donated();
// Whether the calling thread wants holds instead of addresses (plugin_api/hekla_holds.h).
bool wants_holds();
// A new hold, as a number; the error of storage_of.
Result<uintptr_t> make_hold(PJRT_Buffer& buffer);
// The storage, or deleted_or_donated().
Result<StorageRef> storage_of(PJRT_Buffer& buffer);
// The storage, and whether the buffer gave it up to a caller that may consume it; one with
// references from outside, or whose storage is held, does not. The question and the taking are one
// step: of all who want to take, refer to or delete a buffer at a time, each comes before or after
// the others.
struct TakenStorage {
  StorageRef storage;
  bool is_taken = false;
};
Result<TakenStorage> take_storage(PJRT_Buffer& buffer, bool may_take);
// Undoes the taking, unless the buffer was deleted meanwhile.
void give_back(PJRT_Buffer& buffer, StorageRef storage);
// `memory` wins when it is given, else the device's default one.
Result<std::pair<PJRT_Device*, MemoryObject*>> target_of(PJRT_Client* client, PJRT_Device* device,
                                                         PJRT_Memory* memory);
// Shows a profiler that a transfer of a device begins here, and ends with `done`.
void show_transfer(const PJRT_Device& device, const char* what, int64_t bytes,
                   const CompletionRef& done);
// What a profiler calls a device of this process from now on.
void set_traced_name(int local_index, const std::string& name);
// Of arrays of clients and of programs.
constexpr size_t kMaxRank = 1024;
Status check_rank(size_t rank);
Status check_shape(DType dtype, const int64_t* dims, size_t rank);
// INVALID_ARGUMENT for a handle that came from another client than the one it is used with.
Status of_another_client(std::string_view what);
// UNIMPLEMENTED: the buffer's bytes do not do for elements of this type, which has fewer bits than
// a byte, whose others must be extended.
Status check_bits(const PJRT_Buffer& buffer, DType dtype);

}  // namespace hekla::pjrt
