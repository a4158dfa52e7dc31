// SPDX-License-Identifier: Apache-2.0
// Backends by name, and groups over a table that has streams of bytes alone; that table is of this
// process. tools' group_check_backend has a library and processes.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/process_group/backend_registry.h"
#include "runtime/process_group/process_group.h"
#include "runtime/rendezvous/store_key_values.h"

namespace hekla::process_group {
namespace {

// Streams between threads.
struct Streams {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<char>> bytes;  // guarded by mutex, as the next
  std::set<int> gone;
};

Streams& streams() {
  static auto* const all = new Streams();
  return *all;
}

struct End {
  int rank;
};

int create_end(const hekla_backend_args* args, void** backend, char* error) {
  const std::string key = std::to_string(args->rank);
  if (args->store.put(args->store.context, key.c_str(), "x", 1, error) != 0) return 1;
  for (int r = 0; r < args->size; ++r) {
    char value[8];
    size_t bytes = sizeof(value);
    if (args->store.get(args->store.context, std::to_string(r).c_str(), args->timeout_ms, value,
                        &bytes, error) != 0) {
      return 1;
    }
  }
  *backend = new End{args->rank};
  return 0;
}

void destroy_end(void* backend) { delete static_cast<End*>(backend); }

int send_bytes(void* backend, int32_t to, const void* data, size_t bytes, char* error) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  const int own = static_cast<End*>(backend)->rank;
  if (all.gone.contains(to) || all.gone.contains(own)) {
    std::strcpy(error, "nobody is there");
    return 1;
  }
  const char* const from = static_cast<const char*>(data);
  all.bytes[{own, to}].insert(all.bytes[{own, to}].end(), from, from + bytes);
  all.changed.notify_all();
  return 0;
}

int64_t receive_bytes(void* backend, int32_t from, void* data, size_t capacity, int64_t timeout_ms,
                      char* error) {
  Streams& all = streams();
  std::unique_lock lock(all.mutex);
  const int own = static_cast<End*>(backend)->rank;
  std::deque<char>& there = all.bytes[{from, own}];
  const auto is_over = [&] { return all.gone.contains(from) || all.gone.contains(own); };
  all.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                       [&] { return !there.empty() || is_over(); });
  // In pieces, so that no frame comes whole.
  const size_t count = std::min({there.size(), capacity, size_t{1000}});
  if (count == 0 && is_over()) {
    std::strcpy(error, "the stream has ended");
    return -1;
  }
  std::copy(there.begin(), there.begin() + static_cast<int64_t>(count), static_cast<char*>(data));
  there.erase(there.begin(), there.begin() + static_cast<int64_t>(count));
  return static_cast<int64_t>(count);
}

void shut_end(void* backend) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  all.gone.insert(static_cast<End*>(backend)->rank);
  all.changed.notify_all();
}

const hekla_backend_table kTable = {sizeof(hekla_backend_table),
                                    HEKLA_GROUP_BACKEND_ABI,
                                    "threads",
                                    "cpu",
                                    create_end,
                                    destroy_end,
                                    send_bytes,
                                    receive_bytes,
                                    shut_end};

const Status& register_table() {
  static const Status registered = register_backend(&kTable);
  return registered;
}

// What each rank's body returns, over that table.
template <typename Body>
std::vector<Status> over_table(int size, const Body& body) {
  EXPECT_TRUE(register_table().ok()) << register_table().to_string();
  {
    const std::lock_guard lock(streams().mutex);
    streams().bytes.clear();
    streams().gone.clear();
  }
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::vector<Status> ends(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        Options options;
        options.engine = "cpu:threads";
        options.timeout = std::chrono::seconds(20);
        auto group = ProcessGroup::create(
            std::make_shared<rendezvous::StoreKeyValues>(store, "table/"), rank, size, options);
        ends[static_cast<size_t>(rank)] = group.ok() ? body(**group) : group.status();
      });
    }
  }
  return ends;
}

TEST(Backend, CollectivesAreMadeOfItsStreams) {
  const auto ends = over_table(3, [](ProcessGroup& group) -> Status {
    for (const size_t count : {size_t{0}, size_t{7}, size_t{300'000}}) {
      std::vector<float> x(count, static_cast<float>(group.rank() + 1));
      HEKLA_RETURN_IF_ERROR(group.all_reduce(elements(std::span(x))).wait());
      for (const float value : x) {
        if (value != 6) return internal_error("{} in a sum of {}", value, count);
      }
    }
    std::vector<int32_t> token = {group.rank()};
    HEKLA_RETURN_IF_ERROR(
        group.send(elements(std::span<const int32_t>(token)), (group.rank() + 1) % 3).wait());
    HEKLA_RETURN_IF_ERROR(group.receive(elements(std::span(token))).wait());
    if (token[0] != (group.rank() + 2) % 3) return internal_error("a message of {}", token[0]);
    return group.barrier().wait();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(Backend, AStreamThatEndsIsALostRank) {
  const auto ends = over_table(2, [](ProcessGroup& group) -> Status {
    if (group.rank() == 1) return ok_status();  // leaves
    std::vector<float> x(10);
    return group.all_reduce(elements(std::span(x))).wait();
  });
  EXPECT_FALSE(ends[0].ok());
  EXPECT_NE(ends[0].message().find("rank 1 "), std::string::npos) << ends[0].to_string();
}

// A backend that keeps nothing and whose errors fill their room.
struct Seen {
  std::string address;
  int creations = 0, shuts = 0, ends = 0;
};

Seen& seen() {
  static Seen all;
  return all;
}

Status over_bare_table(const Options& options) {
  hekla_backend_table bare = kTable;
  bare.name = "tubes";
  bare.create = [](const hekla_backend_args* args, void** backend, char* error) {
    seen().address = args->address;
    *backend = nullptr;
    std::memset(error, 'x', HEKLA_GROUP_BACKEND_ERROR_BYTES);
    return seen().creations++ == 0 ? 0 : 1;
  };
  bare.shut = [](void*) { ++seen().shuts; };
  bare.destroy = [](void*) { ++seen().ends; };
  static const hekla_backend_table kBare = bare;
  static const Status registered = register_backend(&kBare);
  HEKLA_RETURN_IF_ERROR(registered);
  return ProcessGroup::create(std::make_shared<rendezvous::StoreKeyValues>(
                                  std::make_shared<rendezvous::LocalStore>(), "bare/"),
                              0, 1, options)
      .status();
}

TEST(Backend, OneWithoutAHandleIsEndedAndErrorsMayFillTheirRoom) {
  seen() = {};
  Options options;
  options.engine = "tubes";
  options.coordinator = "127.0.0.1:1";
  EXPECT_TRUE(over_bare_table(options).ok());
  EXPECT_EQ(seen().address, "127.0.0.1");  // of the route there
  EXPECT_EQ(seen().shuts, 1);
  EXPECT_EQ(seen().ends, 1);
  options.address = "lo";
  EXPECT_EQ(over_bare_table(options).message(),
            "tubes: " + std::string(HEKLA_GROUP_BACKEND_ERROR_BYTES, 'x'));
  EXPECT_EQ(seen().address, "127.0.0.1");
  EXPECT_EQ(seen().ends, 1);
}

TEST(Backend, NamesAreFoundByDevice) {
  EXPECT_TRUE(find_backend("auto").ok());
  EXPECT_EQ(find_backend("cpu:shm, gpu:gloo")->name, "shm");
  EXPECT_EQ(find_backend("gpu:gloo").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_backend("shm", "gpu").status().code(), StatusCode::kFailedPrecondition);
  const Status unknown = find_backend("pigeons").status();
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_NE(unknown.message().find("there are auto, auto_ucx, gloo, shm"), std::string::npos)
      << unknown.message();
}

TEST(Backend, WrongOnesAreRefused) {
  EXPECT_EQ(register_backend(static_cast<const hekla_backend_table*>(nullptr)).code(),
            StatusCode::kFailedPrecondition);
  hekla_backend_table wrong = kTable;
  wrong.name = "wrong";
  wrong.abi = HEKLA_GROUP_BACKEND_ABI + 1;
  EXPECT_EQ(register_backend(&wrong).code(), StatusCode::kFailedPrecondition);
  wrong.abi = HEKLA_GROUP_BACKEND_ABI;
  wrong.receive = nullptr;
  EXPECT_EQ(register_backend(&wrong).code(), StatusCode::kInvalidArgument);
  wrong = kTable;
  wrong.name = "gloo";
  EXPECT_EQ(register_backend(&wrong).code(), StatusCode::kAlreadyExists);
  wrong.name = "a b";
  EXPECT_EQ(register_backend(&wrong).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::process_group
