// SPDX-License-Identifier: Apache-2.0
// Clients of one process and of several, through the C API.
#include "backends/pjrt/processes.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/testing/fake_backend.h"
#include "runtime/rendezvous/log_store.h"

namespace hekla::pjrt {
namespace {

// What a coordination service is to the processes of a run; a key is written once.
class Coordinator {
 public:
  static PJRT_Error* get(PJRT_KeyValueGetCallback_Args* args) {
    auto& self = *static_cast<Coordinator*>(args->user_arg);
    std::unique_lock lock(self.mutex_);
    const std::string key(args->key, args->key_size);
    if (!self.changed_.wait_for(lock, std::chrono::milliseconds(args->timeout_in_ms),
                                [&] { return self.values_.contains(key) || self.is_down; })) {
      return error(*args->callback_error, PJRT_Error_Code_DEADLINE_EXCEEDED, "timed out");
    }
    if (self.is_down) return error(*args->callback_error, PJRT_Error_Code_UNAVAILABLE, "is down");
    give(self.values_[key], *args);
    return nullptr;
  }
  static PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* args) {
    auto& self = *static_cast<Coordinator*>(args->user_arg);
    const std::lock_guard lock(self.mutex_);
    const auto it = self.values_.find(std::string(args->key, args->key_size));
    if (it == self.values_.end()) {
      return error(*args->callback_error, PJRT_Error_Code_NOT_FOUND, "no such key");
    }
    give(it->second, *args);
    return nullptr;
  }
  static PJRT_Error* put(PJRT_KeyValuePutCallback_Args* args) {
    auto& self = *static_cast<Coordinator*>(args->user_arg);
    const std::lock_guard lock(self.mutex_);
    const std::string key(args->key, args->key_size);
    if (!self.values_.try_emplace(key, args->value, args->value_size).second) {
      return error(*args->callback_error, PJRT_Error_Code_ALREADY_EXISTS, "is there already");
    }
    self.changed_.notify_all();
    return nullptr;
  }
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }

  bool is_down = false;

 private:
  static PJRT_Error* error(PJRT_CallbackError make, PJRT_Error_Code code, const char* message) {
    return make(code, message, std::strlen(message));
  }
  template <class Args>
  static void give(const std::string& value, Args& args) {
    args.value = static_cast<char*>(std::malloc(value.size() + 1));
    std::memcpy(args.value, value.data(), value.size());
    args.value_size = value.size();
    args.value_deleter_callback = [](char* v) { std::free(v); };
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
};

struct CloseClient {
  void operator()(PJRT_Client* client) const {
    PJRT_Client_Destroy_Args args = {};
    args.struct_size = sizeof(args);
    args.client = client;
    EXPECT_EQ(FakeBackend::api().PJRT_Client_Destroy(&args), nullptr);
  }
};
using ClientRef = std::unique_ptr<PJRT_Client, CloseClient>;

PJRT_NamedValue number(const char* name, int64_t value) {
  PJRT_NamedValue named = {};
  named.struct_size = sizeof(named);
  named.name = name;
  named.name_size = std::strlen(name);
  named.type = PJRT_NamedValue_kInt64;
  named.int64_value = value;
  named.value_size = 1;
  return named;
}

Status take(PJRT_Error* error) {
  if (error == nullptr) return ok_status();
  const std::unique_ptr<ErrorObject> object(static_cast<ErrorObject*>(error));
  return object->status;
}

Result<ClientRef> create(std::vector<PJRT_NamedValue> options, Coordinator* coordinator) {
  PJRT_Client_Create_Args args = {};
  args.struct_size = sizeof(args);
  args.create_options = options.data();
  args.num_options = options.size();
  if (coordinator != nullptr) {
    args.kv_get_callback = Coordinator::get;
    args.kv_put_callback = Coordinator::put;
    args.kv_try_get_callback = Coordinator::try_get;
    args.kv_get_user_arg = args.kv_put_user_arg = args.kv_try_get_user_arg = coordinator;
  }
  HEKLA_RETURN_IF_ERROR(take(FakeBackend::api().PJRT_Client_Create(&args)));
  return ClientRef(args.client);
}

// Process 0 with two devices and process 1 with three, created at the same time.
std::vector<ClientRef> create_both(Coordinator& coordinator) {
  std::vector<ClientRef> clients(2);
  std::vector<std::thread> threads;
  for (size_t p = 0; p < 2; ++p) {
    threads.emplace_back([&, p] {
      Result<ClientRef> client =
          create({number("node_id", static_cast<int64_t>(p)), number("num_nodes", 2),
                  number("num_devices", static_cast<int64_t>(2 + p)),
                  number("partition_index", static_cast<int64_t>(7 + p))},
                 &coordinator);
      ASSERT_TRUE(client.ok()) << client.status().to_string();
      clients[p] = *std::move(client);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return clients;
}

TEST(Processes, OneProcessTouchesNoCallback) {
  std::vector<PJRT_NamedValue> options = {number("node_id", 0), number("num_nodes", 1),
                                          number("num_devices", 2)};
  PJRT_Client_Create_Args args = {};
  args.struct_size = sizeof(args);
  args.create_options = options.data();
  args.num_options = options.size();
  args.kv_get_callback = reinterpret_cast<PJRT_KeyValueGetCallback>(1);
  args.kv_put_callback = reinterpret_cast<PJRT_KeyValuePutCallback>(1);
  ASSERT_TRUE(take(FakeBackend::api().PJRT_Client_Create(&args)).ok());
  const ClientRef client(args.client);
  EXPECT_EQ(client->state->store, nullptr);
  EXPECT_EQ(client->state->addressable_pointers, client->state->device_pointers);
  EXPECT_EQ(client->state->devices[1]->local_index, 1);
}

TEST(Processes, EachSeesAllDevicesAndUsesItsOwn) {
  Coordinator coordinator;
  const std::vector<ClientRef> clients = create_both(coordinator);
  const std::vector<int> processes = {0, 0, 1, 1, 1};
  for (int p = 0; p < 2; ++p) {
    const ClientState& state = *clients[static_cast<size_t>(p)]->state;
    EXPECT_EQ(state.process.index, p);
    ASSERT_EQ(state.devices.size(), 5U);
    EXPECT_EQ(state.addressable_pointers.size(), static_cast<size_t>(2 + p));
    EXPECT_EQ(state.memories.size(), static_cast<size_t>(2 + p));
    int local = 0;
    for (size_t d = 0; d < 5; ++d) {
      const PJRT_Device& device = *state.devices[d];
      const PJRT_DeviceDescription& description = *device.description;
      EXPECT_EQ(description.id, static_cast<int>(d));
      EXPECT_EQ(description.process_index, processes[d]);
      EXPECT_EQ(description.debug_string, fmt::format("fake:{}", d));
      EXPECT_EQ(description.to_string, fmt::format("FakeDevice(id={})", d));
      EXPECT_EQ(description.info.kind, "Fake");
      EXPECT_EQ(device.is_addressable(), processes[d] == p);
      EXPECT_EQ(device.local_index, processes[d] == p ? local++ : -1);
      EXPECT_EQ(device.memories.size(), processes[d] == p ? 1U : 0U);
      // Attributes of the others' devices come with them.
      const auto& attributes = description.info.attributes;
      ASSERT_EQ(attributes.size(), 4U);
      EXPECT_EQ(std::get<int64_t>(attributes[1].second), 4);
      EXPECT_EQ(std::get<std::vector<int64_t>>(attributes[2].second), (std::vector<int64_t>{1, 2}));
      EXPECT_EQ(std::get<int64_t>(attributes[3].second), 7 + processes[d]);
    }
  }
}

TEST(Processes, TheStoreIsKept) {
  Coordinator coordinator;
  const std::vector<ClientRef> clients = create_both(coordinator);
  KeyValueStore& first = *clients[0]->state->store;
  KeyValueStore& second = *clients[1]->state->store;
  EXPECT_EQ(first.try_get("colour").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(first.put("colour", std::string_view("\0red", 4)).ok());
  EXPECT_EQ(*second.try_get("colour"), std::string("\0red", 4));
  EXPECT_EQ(*second.get("colour", std::chrono::milliseconds(1)), std::string("\0red", 4));
  EXPECT_EQ(second.get("shape", std::chrono::milliseconds(1)).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(second.put("colour", "blue").code(), StatusCode::kAlreadyExists);
}

// The client's callbacks are enough for all that processes agree upon.
TEST(Processes, TheCallbacksCarryAStore) {
  Coordinator coordinator;
  const std::vector<ClientRef> clients = create_both(coordinator);
  auto first = rendezvous::LogStore::open(clients[0]->state->store, "hekla");
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  auto second = rendezvous::LogStore::open(clients[1]->state->store, "hekla");
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  const uint64_t ticket = (*second)->ticket();
  ASSERT_TRUE((*first)->set("a", std::string_view("\0b", 2)).ok());
  (*second)->wait_change(ticket, Deadline::in(std::chrono::seconds(20)));
  EXPECT_EQ(**(*second)->get("a"), std::string("\0b", 2));
  EXPECT_EQ(*(*second)->add("n", 2), 2);
  EXPECT_EQ(*(*first)->add("n", 3), 5);
  EXPECT_FALSE((*first)->compare_set("n", "2", "7")->swapped);
}

TEST(Processes, ASecondClientOfAProcessFindsTheSame) {
  Coordinator coordinator;
  { const std::vector<ClientRef> clients = create_both(coordinator); }
  const std::vector<ClientRef> again = create_both(coordinator);
  EXPECT_EQ(again[1]->state->devices.size(), 5U);
}

TEST(Processes, DevicesOfOthersCannotBeUsedHere) {
  Coordinator coordinator;
  const std::vector<ClientRef> clients = create_both(coordinator);
  const PJRT_Api& api = FakeBackend::api();
  PJRT_Device* remote = clients[0]->state->device_pointers[4];

  PJRT_Client_BufferFromHostBuffer_Args upload = {};
  upload.struct_size = sizeof(upload);
  upload.client = clients[0].get();
  const float value = 1;
  upload.data = &value;
  upload.type = PJRT_Buffer_Type_F32;
  upload.device = remote;
  const Status refused = take(api.PJRT_Client_BufferFromHostBuffer(&upload));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "fake:4 belongs to process 1, which alone can use it");

  PJRT_Device_DefaultMemory_Args memory = {};
  memory.struct_size = sizeof(memory);
  memory.device = remote;
  EXPECT_FALSE(take(api.PJRT_Device_DefaultMemory(&memory)).ok());
  PJRT_Device_MemoryStats_Args stats = {};
  stats.struct_size = sizeof(stats);
  stats.device = remote;
  EXPECT_FALSE(take(api.PJRT_Device_MemoryStats(&stats)).ok());
  // Clients ask for attributes of every device and take an error for fatal.
  PJRT_Device_GetAttributes_Args attributes = {};
  attributes.struct_size = sizeof(attributes);
  attributes.device = remote;
  ASSERT_TRUE(take(api.PJRT_Device_GetAttributes(&attributes)).ok());
  attributes.attributes_deleter(attributes.device_attributes);

  PJRT_Client_LookupAddressableDevice_Args lookup = {};
  lookup.struct_size = sizeof(lookup);
  lookup.client = clients[1].get();
  lookup.local_hardware_id = 1;
  ASSERT_TRUE(take(api.PJRT_Client_LookupAddressableDevice(&lookup)).ok());
  EXPECT_EQ(lookup.addressable_device, clients[1]->state->device_pointers[3]);
}

TEST(Processes, ATopologyKeepsWhoseDevicesTheyAre) {
  Coordinator coordinator;
  const std::vector<ClientRef> clients = create_both(coordinator);
  const PJRT_Api& api = FakeBackend::api();
  PJRT_TopologyDescription_Serialize_Args bytes = {};
  bytes.struct_size = sizeof(bytes);
  bytes.topology = clients[0]->state->topology.get();
  ASSERT_TRUE(take(api.PJRT_TopologyDescription_Serialize(&bytes)).ok());
  PJRT_TopologyDescription_Deserialize_Args back = {};
  back.struct_size = sizeof(back);
  back.serialized_topology = bytes.serialized_bytes;
  back.serialized_topology_size = bytes.serialized_bytes_size;
  const Status read = take(api.PJRT_TopologyDescription_Deserialize(&back));
  bytes.serialized_topology_deleter(bytes.serialized_topology);
  ASSERT_TRUE(read.ok()) << read.to_string();
  const std::unique_ptr<PJRT_TopologyDescription> topology(back.topology);
  ASSERT_EQ(topology->descriptions.size(), 5U);
  EXPECT_EQ(topology->descriptions[1]->process_index, 0);
  EXPECT_EQ(topology->descriptions[2]->process_index, 1);
  EXPECT_EQ(topology->descriptions[2]->id, 2);
}

TEST(Processes, WhatIsWrongIsSaid) {
  const auto refuse = [](std::vector<PJRT_NamedValue> options, Coordinator* coordinator) {
    return create(std::move(options), coordinator).status();
  };
  Coordinator coordinator;
  EXPECT_EQ(refuse({number("node_id", 2), number("num_nodes", 2)}, &coordinator).message(),
            "node_id is 2, and there are 2 processes (num_nodes)");
  EXPECT_EQ(refuse({number("num_nodes", 0)}, nullptr).code(), StatusCode::kInvalidArgument);
  const Status no_store = refuse({number("num_nodes", 2)}, nullptr);
  EXPECT_EQ(no_store.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(no_store.message().find("key-value callbacks"), std::string::npos);

  coordinator.set("hekla/fake/devices/1", "nonsense");
  const Status malformed = refuse({number("num_nodes", 2)}, &coordinator);
  EXPECT_EQ(malformed.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(malformed.message().find("the devices of process 1"), std::string::npos);

  Coordinator down;
  down.is_down = true;
  EXPECT_EQ(refuse({number("num_nodes", 2)}, &down).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hekla::pjrt
