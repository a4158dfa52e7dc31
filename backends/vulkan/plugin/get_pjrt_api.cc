// SPDX-License-Identifier: Apache-2.0
// The plugin's one exported symbol. Nothing of Vulkan is touched before a client is created.
#include "backends/pjrt/plugin.h"
#include "backends/vulkan/plugin/backend.h"

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static constexpr hekla::pjrt::BackendFactory kFactory = {"vulkan", hekla::vulkan::create_backend};
  return hekla::pjrt::plugin_table(kFactory);
}
