// SPDX-License-Identifier: Apache-2.0
// The CPU device (platform "tbb"): compiled programs behind the Backend interface.
//
// Buffers are host memory from a pool; host memory is used in place where its owner lets us. All
// logical devices share one pool of threads and one set of generated code.
//
// docs/options.md has its client options. HEKLA_NUM_THREADS is the size of the pool of threads.
// Generated code is kept in the folder cpu of default_cache_folder() (runtime/base/file_cache.h).
#pragma once

#include "backends/pjrt/backend.h"
#include "backends/pjrt/client_options.h"

namespace hekla::cpu {

struct CpuOptions {
  pjrt::CommonOptions common;
  bool fail_on_fallback = false;
  std::string isa = "native";
};
pjrt::OptionTable option_table(CpuOptions& options);

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options);

}  // namespace hekla::cpu
