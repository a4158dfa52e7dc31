// SPDX-License-Identifier: Apache-2.0
// Opens libhekla_gloo.so or libhekla_ucx.so when it is first asked for. Thread-safe; it stays open.
//
// Looked for beside the library or program that holds this code, then in ../lib/hekla of it.
// HEKLA_GLOO and HEKLA_UCX name other files.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/collectives/carrier.h"

namespace hekla::collectives {

enum class CarrierKind : uint8_t { kGloo, kUcx };

// FAILED_PRECONDITION: there is none of this version, in words with remedies.
Result<const carrier::Table*> carrier_table(CarrierKind kind);

}  // namespace hekla::collectives
