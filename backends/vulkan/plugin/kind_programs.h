// SPDX-License-Identifier: Apache-2.0
// KindPrograms: a client's program for each kind of device that runs it. Devices are of one kind
// whose targets are equal; they share a program.
//
// It is compiled for the kinds of the devices that it was assigned to, so that what another device
// of the client cannot do fails no program that never runs there; for other kinds when it first
// runs on one, on the thread that launches. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/pjrt/backend.h"
#include "backends/vulkan/codegen/target.h"
#include "backends/vulkan/launch/launch_program.h"

namespace hekla::vulkan {

// What a plan may ask of each of these, of all that plans ask for; not empty.
Target common_target(std::span<const Target> targets);

class KindPrograms {
 public:
  using ProgramRef = std::shared_ptr<const LaunchProgram>;
  struct Options {
    // By logical device.
    std::vector<Target> targets;
    std::vector<int64_t> memory_limits;
    bool fail_on_fallback = false;
  };

  // compile_program's errors.
  static Result<std::unique_ptr<KindPrograms>> compile(const pjrt::CompileRequest& request,
                                                       Options options);

  // One device of each kind that it was assigned to; the first is the first that it was assigned
  // to.
  const std::vector<size_t>& devices() const { return devices_; }
  const ProgramRef& first() const { return first_; }
  Result<ProgramRef> of(size_t device);

 private:
  KindPrograms(const pjrt::CompileRequest& request, Options options)
      : request_(request), options_(std::move(options)), programs_(options_.targets.size()) {}
  size_t kind_of(size_t device) const;  // the first device of its kind

  const pjrt::CompileRequest request_;
  const Options options_;
  // Of devices that meet in the program; else null, and each kind has its own.
  std::shared_ptr<const plan::LaunchPlan> plan_;
  std::vector<size_t> devices_;
  ProgramRef first_;
  std::mutex mutex_;
  std::vector<ProgramRef> programs_;  // guarded by mutex_; by kind_of
};

}  // namespace hekla::vulkan
