// SPDX-License-Identifier: Apache-2.0
// Savers of several ranks in one process, and states of known values for them. For tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/io/file.h"
#include "runtime/base/io/io.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/restore/testing/written_state.h"
#include "runtime/checkpoint/save/saver.h"
#include "runtime/checkpoint/save/state.h"

namespace hekla::checkpoint::testing {

// Where tests keep their steps.
inline constexpr char kRoot[] = "/run";
inline std::string folder_of(int64_t step) { return join_path(kRoot, step_name(step)); }

// Instrumented code is twenty times as slow: it tries a part of the points.
#ifdef HEKLA_SANITIZED
inline constexpr int64_t kStride = 9;
#else
inline constexpr int64_t kStride = 1;
#endif

// Items of 1 MiB, 3 MiB of staging, deadlines that a test can wait for. `State` is here that of
// written_state.h, what a save takes is checkpoint::State.
SaverOptions small_options();

// An array that is not in this process's memory: a device.
class ElsewhereSource final : public ArraySource {
 public:
  explicit ElsewhereSource(HostArray array) : array_(std::move(array)) {}
  const std::byte* host_data() const override { return nullptr; }
  bool is_mutable() const override { return false; }
  int64_t size_bytes() const override { return array_.size_bytes(); }
  Status read(int64_t offset, std::span<std::byte> into, std::stop_token) override;

 private:
  HostArray array_;
};

using MakeSource = std::function<std::shared_ptr<ArraySource>(HostArray)>;
// Memory of its own that may change.
std::shared_ptr<ArraySource> mutable_copy(const HostArray& array);

// What one of `world` ranks holds of the values.
checkpoint::State state_of(const State& values, int rank, int world,
                           const MakeSource& make = host_source);

// Saves, waits and expects that all went well.
void save(Saver& saver, int64_t step, checkpoint::State state);

// The step is intact and holds the values.
void expect_step(Io& io, const std::string& root, int64_t step, const State& values);

// Runs `body` on `world` threads, each with its group and saver.
void with_savers(Io& io, const std::string& root, int world, const SaverOptions& options,
                 const std::function<void(int rank, Saver&)>& body);

// How often the newest step was 1 or 2 after a power cut.
struct PowerCuts {
  int64_t old_steps = 0;
  int64_t new_steps = 0;
};
// Of the disks that a cut after `from` changes or more can leave, every so many and all at the end:
// after recovery step 1 with the values `first` or step 2 with `second` is the newest, intact.
PowerCuts check_power_cuts(const MemoryIo& disk, const std::string& root, int64_t from,
                           int64_t every, const State& first, const State& second);

}  // namespace hekla::checkpoint::testing
