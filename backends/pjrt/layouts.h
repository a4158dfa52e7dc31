// SPDX-License-Identifier: Apache-2.0
// Layouts: in which order the dimensions of an array lie in memory, where a client asks for one.
//
// An Order is a permutation of the dimensions from the fastest to the slowest one, as clients write
// it; none at all is row-major, and the row-major permutation is written that way. Arrays are
// dense: in memory one is a row-major array of its dimensions in another order. Devices know of
// nothing else, so a program whose parameters or results have an Order begins or ends with
// transposes, which the compiler puts into the kernels that read or write. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin_api/pjrt_c_api.h"
#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::pjrt {

using Order = std::vector<int64_t>;

// "{1,0}", as XLA writes it.
std::string layout_text(const Order& order, size_t rank);
// INVALID_ARGUMENT: no permutation of `rank` dimensions; UNIMPLEMENTED: tiles.
Result<Order> read_layout(std::string_view text, size_t rank);
// Of a layout on a device, which may be null: row-major. The same errors; UNIMPLEMENTED also where
// strides leave gaps or overlap.
Result<Order> read_layout(const PJRT_Buffer_MemoryLayout* layout, DType dtype,
                          std::span<const int64_t> dims);

// What belongs to the dimensions of an array in the order in which they lie in memory, the slowest
// first.
std::vector<int64_t> in_memory(std::span<const int64_t> per_dimension, const Order& order);

// The Order in which a result of the module's entry, where the client leaves the choice, needs no
// transpose: that of a transpose which makes it; else row-major.
Order free_order(const ir::Module& module, size_t result);

// The program on arrays as they lie in memory. `parameters` and `results`: per parameter and result
// of the entry, which has arrays only where an Order is not row-major.
void apply_orders(ir::Module& module, std::span<const Order> parameters,
                  std::span<const Order> results);

}  // namespace hekla::pjrt
