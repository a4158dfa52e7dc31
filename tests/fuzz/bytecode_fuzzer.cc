// SPDX-License-Identifier: Apache-2.0
// Any bytes through the bytecode reader: raw reading, JSON, conversion, printer, verifier, and
// through the text printer and reader where the program is valid. Nothing may crash, hang or take
// memory beyond measure, errors must be INVALID_ARGUMENT with a message, and text must mean the
// same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_json.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/print.h"
#include "tests/fuzz/clear_error.h"
#include "tests/fuzz/text_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hekla;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!stablehlo::is_bytecode(bytes)) return -1;  // not for the corpus
  Result<stablehlo::RawModule> raw = stablehlo::read_bytecode(bytes);
  check_clear(raw.status());
  if (!raw.ok()) return 0;
  check_clear(stablehlo::vhlo_json(*raw).status());
  Result<std::unique_ptr<ir::Module>> module = stablehlo::read_program(bytes);
  check_clear(module.status());
  if (!module.ok()) return 0;
  (void)stablehlo::print_module(**module, {.with_locations = true, .max_elements = 16});
  const Status valid = ir::verify(**module);
  check_clear(valid);
  if (valid.ok()) check_text_round_trip(**module);
  Result<std::unique_ptr<ir::Module>> again = stablehlo::read_program(bytes);
  if (!again.ok() || stablehlo::first_difference(**module, **again).has_value()) {
    std::fprintf(stderr, "reading twice gives two programs\n");
    std::abort();
  }
  return 0;
}
