// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/read_program.h"

#include "runtime/program/hlo/read_hlo.h"
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {

bool is_bytecode(std::string_view bytes) { return bytes.starts_with("ML\xefR"); }

std::string_view program_format(std::string_view bytes) {
  if (is_bytecode(bytes)) return "mlir";
  if (hlo::is_hlo_module(bytes)) return "hlo";
  return hlo::is_hlo_with_config(bytes) ? "hlo_with_config" : "mlir";
}

Result<std::unique_ptr<ir::Module>> read_program(std::string_view bytes,
                                                 std::shared_ptr<const void> owner) {
  if (is_bytecode(bytes)) {
    HEKLA_ASSIGN_OR_RETURN(RawModule raw, read_bytecode(bytes));
    return vhlo_to_ir(raw, std::move(owner));
  }
  if (program_format(bytes) != "mlir") return hlo::read_hlo(bytes);
  return read_text(bytes);
}

}  // namespace hekla::stablehlo
