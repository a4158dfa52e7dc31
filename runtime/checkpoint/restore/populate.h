// SPDX-License-Identifier: Apache-2.0
// Populate: takes the pages of fresh arrays while others fill them.
//
// Clearing fresh memory costs a third of the processor time of a restore. Where it happens within
// direct reads the disk waits for it; a thread that runs ahead of them does it meanwhile. It writes
// nothing: what is there already stays.
#pragma once

#include <cstddef>
#include <span>
#include <thread>
#include <vector>

namespace hekla::checkpoint {

class Populate {
 public:
  // Arrays in the order in which they are filled; they outlive it. Small ones are left alone, and
  // everything on kernels that cannot do it (before Linux 5.14).
  explicit Populate(std::vector<std::span<std::byte>> arrays);
  ~Populate() = default;  // ends early
  Populate(const Populate&) = delete;
  Populate& operator=(const Populate&) = delete;

 private:
  std::vector<std::span<std::byte>> arrays_;
  std::jthread thread_;
};

}  // namespace hekla::checkpoint
