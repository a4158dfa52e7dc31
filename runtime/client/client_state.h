// SPDX-License-Identifier: Apache-2.0
// ClientState: what all objects of one client share. Internal to this folder.
//
// Filled once by Client::create and constant afterwards, so it is read without locks. Its
// destructor destroys the client; every Buffer and Executable holds it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin_api/hekla_inspection.h"
#include "runtime/client/client.h"

namespace hekla::runtime {

struct ClientState {
  struct MemoryFacts {
    std::string kind;
    int id = 0;
  };
  struct DeviceFacts {
    int id = 0;
    int process_index = 0;
    bool is_addressable = true;
    std::string kind;
    std::string debug_string;
    Options attributes;
    std::vector<Memory> memories;
    PJRT_Memory* default_memory = nullptr;
  };

  std::shared_ptr<const Plugin> plugin;
  std::shared_ptr<rendezvous::KeyValueStore> store;  // which the plugin's client calls; may be null
  PJRT_Client* client = nullptr;
  std::string platform;
  std::string platform_version;
  int process_index = 0;
  std::vector<Device> devices;
  std::vector<Device> addressable_devices;
  std::map<PJRT_Device*, DeviceFacts> device_facts;
  std::map<PJRT_Memory*, MemoryFacts> memory_facts;

  ClientState() = default;
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;
  ~ClientState();

  // Fills everything from `client`.
  Status read();
  Result<Device> find_device(PJRT_Device* handle) const;
  // INVALID_ARGUMENT: the C API has no such type; UNIMPLEMENTED: it is newer than the plugin, and
  // plugins were seen to crash on types that they do not know.
  Result<PJRT_Buffer_Type> buffer_type(DType dtype) const;
  Result<Memory> find_memory(PJRT_Memory* handle) const;

 private:
  Status read_device(PJRT_Device* handle, DeviceFacts& facts);
  Status read_memories(PJRT_Device* handle, DeviceFacts& facts);
  void read_live_attributes(PJRT_Device* handle, DeviceFacts& facts) const;
};

// The node that Hekla's plugins have; null for others.
const Hekla_Inspection_Extension* find_inspection(const Plugin& plugin);

// UNIMPLEMENTED answers of optional calls count as "not there".
inline bool is_missing(const Status& status) { return status.code() == StatusCode::kUnimplemented; }

}  // namespace hekla::runtime
