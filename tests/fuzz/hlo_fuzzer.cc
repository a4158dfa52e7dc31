// SPDX-License-Identifier: Apache-2.0
// Any bytes as an HloModuleProto: reading, verifier, and the way through the text printer and
// reader where the program is valid. Nothing may crash, hang or take memory beyond measure, errors
// must say what is wrong, and text must mean the same.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/program/hlo/read_hlo.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/text/print.h"
#include "tests/fuzz/clear_error.h"
#include "tests/fuzz/text_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hekla;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!hlo::is_hlo_module(bytes) && !hlo::is_hlo_with_config(bytes))
    return -1;  // not for the corpus
  Result<std::unique_ptr<ir::Module>> module = hlo::read_hlo(bytes);
  check_clear(module.status(), /*allows_unimplemented=*/true);
  if (!module.ok()) return 0;
  (void)stablehlo::print_module(**module, {.with_locations = true, .max_elements = 16});
  const Status valid = ir::verify(**module);
  check_clear(valid, /*allows_unimplemented=*/true);
  if (valid.ok()) check_text_round_trip(**module);
  return 0;
}
