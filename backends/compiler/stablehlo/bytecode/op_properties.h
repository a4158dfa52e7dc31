// SPDX-License-Identifier: Apache-2.0
// op_properties: the declared attributes of the operations that occur in portable artifacts. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace hekla::stablehlo {

// The names of the declared attributes of "vhlo.add_v1" and so on, in the order in which their
// references are stored; nullopt for an operation that we do not know.
std::optional<std::vector<std::string_view>> op_properties(std::string_view name);

}  // namespace hekla::stablehlo
