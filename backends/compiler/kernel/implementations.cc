// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/implementations.h"

namespace hekla::kernel {

bool Implementations::ask(std::string_view name, Refusal refusal) {
  if (has_taken_) {
    if (refusal.empty()) refusal = "not needed: " + asked_[taken_].name + " is preferred";
  } else if (refusal.empty()) {
    has_taken_ = true;
    taken_ = asked_.size();
  }
  asked_.push_back({std::string(name), std::move(refusal)});
  return has_taken_ && taken_ + 1 == asked_.size();
}

std::string_view Implementations::taken() const {
  return has_taken_ ? std::string_view(asked_[taken_].name) : std::string_view();
}

std::string to_string(const std::vector<Implementation>& implementations) {
  std::string text;
  for (const Implementation& each : implementations) {
    text += "  " + each.name + ": " + (each.refusal.empty() ? "taken" : each.refusal) + "\n";
  }
  return text;
}

}  // namespace hekla::kernel
