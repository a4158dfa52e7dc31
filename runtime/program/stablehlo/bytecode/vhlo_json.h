// SPDX-License-Identifier: Apache-2.0
// vhlo_json: a bytecode file as it is, for tests and for looking at what a client sent.
//
// One JSON object: container_version, producer, dialects, numbers of attributes, types and values,
// op_counts, bytes, sha256, and `module`, a tree of operations. An operation is
//   {"op", "operands": [numbers], "results": [[number, type]], "props": {declared attributes},
//    "attrs": {the others}, "regions": [[{"args": [[number, type]], "ops": [...]}]]}
// with empty parts left out. Values are numbered over the file in order of definition. Tensors of
// more than 64 bytes are given by the SHA-256 of their elements; splats beyond all measure by
// "splat", their one element.
#pragma once

#include <string>

#include "runtime/program/stablehlo/bytecode/raw_module.h"

namespace hekla::stablehlo {

// `indent` < 0: one line. INVALID_ARGUMENT when an attribute is malformed or expands beyond reason.
Result<std::string> vhlo_json(const RawModule& module, int indent = -1);

}  // namespace hekla::stablehlo
