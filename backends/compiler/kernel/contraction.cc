// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/contraction.h"

#include <fmt/format.h>

namespace hekla::kernel {

int64_t axes_size(const std::vector<Contraction::Axis>& axes) {
  int64_t size = 1;
  for (const Contraction::Axis& axis : axes) size *= axis.size;
  return size;
}

double contraction_work(const Contraction& c) {
  return static_cast<double>(axes_size(c.batch)) * static_cast<double>(axes_size(c.rows)) *
         static_cast<double>(axes_size(c.columns)) * static_cast<double>(axes_size(c.depth));
}

std::string to_string(const Contraction& c) {
  std::string text = fmt::format("{} x {} x {} x {} {}", axes_size(c.batch), axes_size(c.rows),
                                 axes_size(c.columns), axes_size(c.depth), dtype_name(c.lhs_dtype));
  if (c.rhs_dtype != c.lhs_dtype) text += fmt::format(" {}", dtype_name(c.rhs_dtype));
  for (size_t w = 0; w < c.windows.size(); ++w) {
    text += w == 0 ? ", window " : "x";
    text += std::to_string(c.depth[static_cast<size_t>(c.windows[w].depth)].size);
  }
  return text;
}

}  // namespace hekla::kernel
