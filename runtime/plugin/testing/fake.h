// SPDX-License-Identifier: Apache-2.0
// The plugins that tests load; see fake_plugin.cc.
#pragma once

#include <string>

namespace hekla::runtime {

inline std::string fake(const std::string& kind) {
  return HEKLA_BINARY_DIR "/tests/plugins/fake_" + kind + ".so";
}

}  // namespace hekla::runtime
