// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host.h"

#include <sys/random.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <vector>

namespace hekla {

std::string random_hex(int bytes) {
  std::vector<unsigned char> drawn(static_cast<size_t>(bytes));
  size_t have = 0;
  while (have < drawn.size()) {
    const ssize_t got = ::getrandom(drawn.data() + have, drawn.size() - have, 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else {
      std::random_device device;  // seccomp filters may refuse getrandom
      for (; have < drawn.size(); ++have) drawn[have] = static_cast<unsigned char>(device());
    }
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(drawn.size() * 2);
  for (const unsigned char byte : drawn) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

const std::string& host_name() {
  static const std::string name = [] {
    char buffer[256] = {};
    return ::gethostname(buffer, sizeof(buffer) - 1) == 0 ? std::string(buffer) : "unknown";
  }();
  return name;
}

const std::string& boot_id() {
  static const std::string id = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    return text;
  }();
  return id;
}

}  // namespace hekla
