// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/read_program.h"

#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {

bool is_bytecode(std::string_view bytes) { return bytes.starts_with("ML\xefR"); }

Result<std::unique_ptr<ir::Module>> read_program(std::string_view bytes,
                                                 std::shared_ptr<const void> owner) {
  if (is_bytecode(bytes)) {
    HEKLA_ASSIGN_OR_RETURN(RawModule raw, read_bytecode(bytes));
    return vhlo_to_ir(raw, std::move(owner));
  }
  return read_text(bytes);
}

}  // namespace hekla::stablehlo
