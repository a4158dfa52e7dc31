// SPDX-License-Identifier: Apache-2.0
// Opens libhekla_gloo.so when it is first asked for. Thread-safe; it stays open.
//
// Looked for beside the library or program that holds this code, then in ../lib/hekla of it.
// HEKLA_GLOO names another file.
#pragma once

#include "runtime/base/status.h"
#include "runtime/collectives/carrier.h"

namespace hekla::collectives {

// FAILED_PRECONDITION: there is none of this version, in words with remedies.
Result<const carrier::Table*> carrier_table();

}  // namespace hekla::collectives
