// SPDX-License-Identifier: Apache-2.0
// Any bytes as an HloModuleProto: reading, verifier, and the way through the text printer and
// reader where the program is valid. Nothing may crash, hang or take memory beyond measure, errors
// must say what is wrong, and text must mean the same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/program/hlo/read_hlo.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/text/print.h"
#include "tests/fuzz/text_round_trip.h"

namespace {

void check(const hekla::Status& status) {
  if (status.ok()) return;
  const bool is_clear = status.code() == hekla::StatusCode::kInvalidArgument ||
                        status.code() == hekla::StatusCode::kUnimplemented;
  if (is_clear && !status.message().empty()) return;
  std::fprintf(stderr, "not a clear error: %s\n", status.to_string().c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hekla;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!hlo::is_hlo_module(bytes) && !hlo::is_hlo_with_config(bytes))
    return -1;  // not for the corpus
  Result<std::unique_ptr<ir::Module>> module = hlo::read_hlo(bytes);
  check(module.status());
  if (!module.ok()) return 0;
  (void)stablehlo::print_module(**module, {.with_locations = true, .max_elements = 16});
  const Status valid = ir::verify(**module);
  check(valid);
  if (valid.ok()) check_text_round_trip(**module);
  return 0;
}
