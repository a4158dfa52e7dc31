// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/row_access.h"

#include <algorithm>
#include <span>

#include "backends/compiler/kernel/index_analysis.h"

namespace hekla::kernel {
namespace {

// Elements of a row when `slopes` walk through rows of `sizes` in row-major order; 0 if they do
// not.
int64_t row_stride(std::span<const int64_t> slopes, std::span<const int64_t> sizes) {
  int64_t stride = 0;
  __int128 inner = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (stride == 0) stride = slopes[d];
    if (stride <= 0 || slopes[d] != stride * inner) return 0;
    inner *= sizes[d];
  }
  return stride;
}

}  // namespace

std::optional<RowCut> cut_rows(const std::vector<int64_t>& grid, int64_t rows) {
  if (rows < 1) return std::nullopt;
  RowCut cut;
  for (; rows > 1; ++cut.leading) {
    if (cut.leading == grid.size()) return std::nullopt;
    const int64_t size = grid[cut.leading];
    if (rows % size != 0) {
      if (size % rows != 0) return std::nullopt;
      cut.parts = rows;
      return cut;
    }
    rows /= size;
  }
  return cut;
}

std::optional<std::vector<int64_t>> row_bytes(const Kernel& kernel, int64_t rows) {
  if (kernel.points() == 0) return std::nullopt;
  const std::optional<RowCut> cut = cut_rows(kernel.grid, rows);
  if (!cut) return std::nullopt;
  // The dimension after the leading ones lies within a row, or its blocks are rows.
  IndexBlocks blocks;
  if (cut->parts > 1) {
    blocks = {static_cast<int>(cut->leading), kernel.grid[cut->leading] / cut->parts};
  }
  const IndexAnalysis analysis(kernel, blocks);
  std::vector<IndexAnalysis::Variable> variables;
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < cut->leading; ++d) {
    variables.push_back(analysis.dimension(static_cast<int>(d)));
    sizes.push_back(kernel.grid[d]);
  }
  if (cut->parts > 1) {
    variables.push_back(analysis.block_number());
    sizes.push_back(cut->parts);
  }
  const auto stride_of = [&](Value index) -> int64_t {
    const auto line = analysis.line(index, variables);
    if (!line) return 0;
    const int64_t stride = row_stride(line->slopes, sizes);
    return line->low >= 0 && line->high < stride ? stride : 0;
  };
  std::vector<int64_t> bytes(kernel.operands.size(), -1);
  const Function& f = kernel.body;
  for (Value v = 0; v < static_cast<Value>(f.size()); ++v) {
    if (f[v].op != Op::kLoad && f[v].op != Op::kStore) continue;
    const Access access = unpack_access(f[v].immediate);
    int64_t& known = bytes[static_cast<size_t>(access.operand)];
    if (known == 0) continue;
    const int64_t here = stride_of(f[v].arguments[0]) * access.bytes;
    known = known < 0 || known == here ? here : 0;
  }
  for (int64_t& each : bytes) each = std::max<int64_t>(each, 0);
  return bytes;
}

}  // namespace hekla::kernel
