// SPDX-License-Identifier: Apache-2.0
// Constants: xla.LiteralProto as values of `stablehlo.constant`.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/program/hlo/shape.h"
#include "runtime/program/ir/attribute.h"

namespace hekla::hlo {

// The leaves of a literal, whose shape must be `shape` but for the layout. Elements, which literals
// hold in the order of their layout, are brought into row-major order. INVALID_ARGUMENT where the
// elements do not fill the shape; memory is bounded by the bytes.
Result<std::vector<ir::Attribute>> read_literal(std::string_view bytes, const Shape& shape);

}  // namespace hekla::hlo
