// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/cut.h"

#include <unordered_map>

namespace hekla::plan {
namespace {

using Operations = std::unordered_set<const ir::Operation*>;

// Operations of `left` that one of them is computed with, itself included.
size_t computed_with(const ir::Operation& op, const Operations& left) {
  Operations found{&op};
  std::vector<const ir::Operation*> open{&op};
  while (!open.empty()) {
    const ir::Operation& one = *open.back();
    open.pop_back();
    for (const ir::Value* operand : one.operands()) {
      const ir::Operation* made = operand->defining_op();
      if (left.contains(made) && found.insert(made).second) open.push_back(made);
    }
  }
  return found.size();
}

}  // namespace

void add_cuts(const std::vector<const ir::Operation*>& inside, size_t most, Operations& cuts) {
  Operations left(inside.begin(), inside.end());
  const size_t before = cuts.size();
  std::unordered_map<const ir::Operation*, size_t> sizes;
  for (const ir::Operation* op : inside) {
    size_t size = computed_with(*op, left);
    while (size > most) {
      // Of what it is made of the longest.
      const ir::Operation* longest = nullptr;
      for (const ir::Value* operand : op->operands()) {
        const ir::Operation* made = operand->defining_op();
        if (left.contains(made) && (longest == nullptr || sizes[made] > sizes[longest])) {
          longest = made;
        }
      }
      if (longest == nullptr) break;
      left.erase(longest);
      cuts.insert(longest);
      size = computed_with(*op, left);
    }
    sizes[op] = size;
  }
  if (cuts.size() == before) cuts.insert(inside[(inside.size() - 1) / 2]);
}

}  // namespace hekla::plan
