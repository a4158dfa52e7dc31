// SPDX-License-Identifier: Apache-2.0
// The plugin's one exported symbol.
#include "backends/pjrt/plugin.h"
#include "backends/reference/plugin/backend.h"

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static constexpr hekla::pjrt::BackendFactory kFactory = {"reference",
                                                           hekla::reference::create_backend};
  return hekla::pjrt::plugin_table(kFactory);
}
