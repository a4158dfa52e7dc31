// SPDX-License-Identifier: Apache-2.0
// For tests: the ranks of a group as threads of this process, each with a transport of its own, or
// as forked processes where they die.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/process_group/process_group.h"
#include "runtime/rendezvous/store_key_values.h"

namespace hekla::process_group {

using Body = std::function<void(ProcessGroup&)>;

// Runs body on each of `size` ranks.
inline void on_ranks(int size, const Body& body, const Options& options = {}) {
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = ProcessGroup::create(
          std::make_shared<rendezvous::StoreKeyValues>(store, "test/"), rank, size, options);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same with processes, whose exit codes come back by rank: 0, or what body says. Before this
// process has threads.
inline std::vector<int> on_processes(int size, const std::function<int(ProcessGroup&)>& body,
                                     const Options& options = {}) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(start_child([&] {
      auto store = rendezvous::open_store("file:" + folder.file("store"));
      if (!store.ok()) return 101;
      auto group = ProcessGroup::create(
          std::make_shared<rendezvous::StoreKeyValues>(*store, "test/"), rank, size, options);
      return group.ok() ? body(**group) : 102;
    }));
  }
  std::vector<int> exits;
  for (const pid_t child : children) exits.push_back(wait_for_child(child));
  return exits;
}

}  // namespace hekla::process_group
