// SPDX-License-Identifier: Apache-2.0
// dump: a module, operation or attribute as plain text, for people and for messages.
//
// One line per operation, nested regions indented, values numbered per function in order of
// definition (results before the contents of regions). It shows the canonical attributes as they
// are stored, and locations when asked; it is not StableHLO text and is never read back (see
// stablehlo/ for a printer). Large constants are cut after `max_elements`. Pure; the time and the
// length of the text are bounded by the graph, not by the sizes of its tensors.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/program/ir/ir.h"

namespace hekla::ir {

struct DumpOptions {
  bool with_locations = true;
  size_t max_elements = 16;  // of a constant or list; the rest is given as a count
};

std::string dump(const Module& module, const DumpOptions& options = {});
std::string dump(const Function& function, const DumpOptions& options = {});
// `12 : i64`, `[0, 1]`, `conv<input = [b 0, f 3, spatial 1 2] ...>`, `absent`.
std::string dump(const Attribute& attribute, const DumpOptions& options = {});
// `{axis = 0 : i64, flag = true}`.
std::string dump(const AttributeMap& attributes, const DumpOptions& options = {});

}  // namespace hekla::ir
