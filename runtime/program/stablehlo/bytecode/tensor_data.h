// SPDX-License-Identifier: Apache-2.0
// tensor_elements: the elements of a stored dense tensor.
#pragma once

#include <string_view>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/type.h"

namespace hekla::stablehlo {

// `blob` as VHLO's TensorV1 and MLIR's dense elements store it (splats as one element, booleans
// packed or not). `type` is a static tensor. Gives an array of the type's shape, or of rank 0 for a
// splat of a type with more than one element. Large blobs are read in place when `owner`, which
// keeps them alive, is given. INVALID_ARGUMENT when the size does not fit.
Result<HostArray> tensor_elements(const ir::Type& type, std::string_view blob,
                                  std::shared_ptr<const void> owner = nullptr);

// The same with the bits of elements below eight bits as they are stored: the upper ones hold
// anything, where tensor_elements extends them as dtype.h says.
Result<HostArray> stored_elements(const ir::Type& type, std::string_view blob,
                                  std::shared_ptr<const void> owner = nullptr);

}  // namespace hekla::stablehlo
