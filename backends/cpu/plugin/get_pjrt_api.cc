// SPDX-License-Identifier: Apache-2.0
// The plugin's one exported symbol.
#include "backends/cpu/plugin/backend.h"
#include "backends/pjrt/plugin.h"

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static constexpr hekla::pjrt::BackendFactory kFactory = {"tbb", hekla::cpu::create_backend};
  return hekla::pjrt::plugin_table(kFactory);
}
