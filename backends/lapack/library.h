// SPDX-License-Identifier: Apache-2.0
// Opens libhekla_lapack.so when it is first asked for. Thread-safe; it stays open.
//
// Looked for beside the library or program that holds this code, then in ../lib/hekla of it.
// HEKLA_LAPACK names another file; "off" goes on as if there were none.
#pragma once

#include <string>

#include "backends/lapack/abi.h"

namespace hekla::lapack {

// Null when there is none of this version: why_missing() says in words why.
const Table* table();
const std::string& why_missing();

}  // namespace hekla::lapack
