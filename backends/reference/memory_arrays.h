// SPDX-License-Identifier: Apache-2.0
// Memory as the arguments and results of a program: for host steps.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

// Arrays on `arguments`, one for each flat parameter of the module's entry; nobody writes them.
// INTERNAL: arguments or results of other numbers or sizes than the entry's.
Result<std::vector<HostArray>> arrays_on(const ir::Module& module,
                                         std::span<const std::span<std::byte>> arguments,
                                         std::span<const std::span<std::byte>> results);

// `values` go where they belong, but for those that are there. INTERNAL: another size.
Status copy_out(const std::vector<HostArray>& values,
                std::span<const std::span<std::byte>> results);

}  // namespace hekla::reference
