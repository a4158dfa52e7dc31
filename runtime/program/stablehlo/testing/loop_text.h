// SPDX-License-Identifier: Apache-2.0
// The text of a counted loop, for tests that are about its body.
#pragma once

#include <string>

namespace hekla::stablehlo::testing {

// A value goes round a loop, `type`; %r#1 is what it is in the end.
struct LoopText {
  int trips = 1;
  std::string type;
  std::string initial;
  std::string carried;  // what the body calls it
  std::string next;     // what the body makes of it
};

// Operations of a function that count %i from 0 to `trips`; names are without '%'. The body, whole
// lines, also finds a %one of i32.
std::string counted_loop(const LoopText& loop, const std::string& body);

}  // namespace hekla::stablehlo::testing
