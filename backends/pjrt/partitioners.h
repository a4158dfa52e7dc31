// SPDX-License-Identifier: Apache-2.0
// Functions of the client's that partition its custom calls (extension Custom_Partitioner): what
// JAX's custom_partitioning registers.
//
// One registry a process, filled through the extension; thread-safe. The functions are the
// client's and run on the threads that compile.
#pragma once

#include "backends/compiler/spmd/custom_partitioner.h"

namespace hekla::pjrt {

// Of a custom call's target; null: none is registered.
std::shared_ptr<const spmd::CustomPartitioner> find_partitioner(std::string_view target);

// The bytes of an xla.ShapeProto: of one array, or of a tuple where there is not just one.
std::string encode_shapes(std::span<const ir::Type> types);

}  // namespace hekla::pjrt
