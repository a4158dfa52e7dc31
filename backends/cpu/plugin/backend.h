// SPDX-License-Identifier: Apache-2.0
// The CPU device (platform "tbb"): compiled programs behind the Backend interface.
//
// Buffers are host memory from a pool; host memory is used in place where its owner lets us. All
// logical devices share one pool of threads and one set of generated code.
//
// Client options: num_devices (1), memory_limit_bytes per device (the machine's memory),
// fail_on_fallback (false): programs with operations that have no kernel are refused, and isa
// ("native", or "sse2", "avx2", "avx512"): code for a lesser processor. The environment variables
// HEKLA_NUM_DEVICES, HEKLA_MEMORY_LIMIT, HEKLA_FAIL_ON_FALLBACK and HEKLA_CPU_ISA give their
// defaults; HEKLA_NUM_THREADS is the size of the pool of threads. Generated code is kept in the
// folder cpu of default_cache_folder() (runtime/base/file_cache.h).
#pragma once

#include "backends/pjrt/backend.h"

namespace hekla::cpu {

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options);

}  // namespace hekla::cpu
