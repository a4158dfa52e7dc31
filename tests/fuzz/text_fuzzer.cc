// SPDX-License-Identifier: Apache-2.0
// Any text through the text reader, the verifier and the printer. Nothing may crash, hang or take
// memory beyond measure, errors must be INVALID_ARGUMENT with a place, and what is printed must
// read back to the same module.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/text/text_reader.h"
#include "tests/fuzz/text_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hekla;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<std::unique_ptr<ir::Module>> module = stablehlo::read_text(text);
  if (!module.ok()) {
    const Status& status = module.status();
    if (status.code() == StatusCode::kInvalidArgument && status.message().starts_with("text ")) {
      return 0;
    }
    std::fprintf(stderr, "not a clear error: %s\n", status.to_string().c_str());
    std::abort();
  }
  const Status valid = ir::verify(**module);
  if (!valid.ok() && valid.code() != StatusCode::kInvalidArgument) {
    std::fprintf(stderr, "not a clear error: %s\n", valid.to_string().c_str());
    std::abort();
  }
  check_text_round_trip(**module);
  return 0;
}
