// SPDX-License-Identifier: Apache-2.0
// What a plugin's one source file needs: its table.
//
//   extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
//     static constexpr hekla::pjrt::BackendFactory kFactory = {"reference", create_backend};
//     return hekla::pjrt::plugin_table(kFactory);
//   }
#pragma once

#include "backends/pjrt/backend.h"
#include "plugin_api/pjrt_c_api.h"

namespace hekla::pjrt {

// The whole table, every slot filled; static storage. One plugin library has one factory, which
// outlives everything; later calls return the same table.
const PJRT_Api* plugin_table(const BackendFactory& factory);

}  // namespace hekla::pjrt
