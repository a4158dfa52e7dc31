// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/sum_parts.h"

#include <algorithm>

namespace hekla::passes {

using ir::GraphBuilder;
using ir::Value;

int64_t equal_parts(int64_t size, int64_t most) {
  for (int64_t parts = std::min(most, size); parts > 1; --parts) {
    if (size % parts == 0) return parts;
  }
  return 1;
}

Parts nearly_equal_parts(int64_t size, int64_t most) {
  const int64_t equal = equal_parts(size, most);
  if (size == 0 || 2 * equal >= std::min(most, size)) return {equal, size / equal, 0};
  const int64_t length = size / most;
  const int64_t count = size / length;
  return {count, length, size - count * length};
}

Value* slice_dimension(GraphBuilder& g, Value* x, size_t d, int64_t begin, int64_t end) {
  const Dims& dims = x->type().dims();
  if (begin == 0 && end == dims[d]) return x;
  Dims from(dims.size(), 0), to = dims;
  from[d] = begin;
  to[d] = end;
  return g.slice(x, from, to);
}

Value* cut_dimension(GraphBuilder& g, Value* x, size_t d, int64_t parts) {
  Dims dims = x->type().dims();
  dims[d] /= parts;
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(d), parts);
  return g.reshape(x, dims);
}

std::vector<int64_t> behind_cut(std::vector<int64_t> dimensions, int64_t at) {
  for (int64_t& d : dimensions) d += d >= at;
  return dimensions;
}

Value* add_up(GraphBuilder& g, Value* x, size_t d) {
  Value* initial = x->type().dtype() == DType::kI32 ? g.integer_constant(DType::kI32, {}, 0)
                                                    : g.constant(x->type().dtype(), {}, 0);
  return g.reduce({x}, {initial}, {static_cast<int64_t>(d)},
                  [](GraphBuilder& body, const GraphBuilder::Values& v) {
                    return GraphBuilder::Values{body.add(v[0], v[1])};
                  })[0];
}

}  // namespace hekla::passes
