// SPDX-License-Identifier: Apache-2.0
// select_and_scatter of dimensions that are cut. Padding is never selected, whatever elements would
// stand for it: so partitions at the ends of the array run the operation with padding, others
// without. Those that do the same share a branch.
#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/local_job.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

// What a part does along a dimension, in places of what it has read.
struct SelectDimension {
  int64_t source_begin = 0, source_count = 0;  // windows that are there
  int64_t begin = 0, count = 0;                // elements that they see
  int64_t padding_low = 0, padding_high = 0;   // of the first and last window
  int64_t result_low = 0, result_high = 0;     // what the block has more than these elements
  bool operator==(const SelectDimension&) const = default;
};
using Selection = std::vector<SelectDimension>;  // by dimension

SelectDimension along(const SelectForm& form, const WindowRead& operand, const WindowRead& source,
                      size_t part, int64_t block) {
  SelectDimension made;
  const int64_t first = source.halo.starts[part];
  const int64_t begin = std::max<int64_t>(first, 0);
  const int64_t end = std::min(first + source.halo.length, source.halo.size);
  if (begin >= end) return made;
  const int64_t low = begin * form.stride - form.low;
  const int64_t high = (end - 1) * form.stride - form.low + form.window;
  const int64_t real_low = std::max<int64_t>(low, 0);
  const int64_t real_high = std::min(high, operand.halo.size);
  const int64_t own = static_cast<int64_t>(part) * block;
  made.source_begin = begin - first;
  made.source_count = end - begin;
  made.begin = real_low - operand.halo.starts[part];
  made.count = real_high - real_low;
  made.padding_low = real_low - low;
  made.padding_high = high - real_high;
  made.result_low = real_low - own;
  made.result_high = own + block - real_high;
  // A block behind the end of the array, which nobody looks at.
  if (made.count + made.result_low <= 0 || made.count + made.result_high <= 0) return {};
  return made;
}

}  // namespace

void LocalOps::select_and_scatter(Job& job) {
  const ir::Operation& op = job.op;
  const Dims block = job.result_dims(0);
  const Dims source_dims = job.operands[1]->type().dims();
  const auto given = ir::padding_of(op);
  Selection uncut(block.size());
  for (size_t d = 0; d < block.size(); ++d) {
    uncut[d] = {0, source_dims[d], 0, block[d], 0, 0, 0, 0};
    if (!given.empty()) {
      uncut[d].padding_low = given[d][0];
      uncut[d].padding_high = given[d][1];
    }
  }
  std::vector<Selection> selections;
  std::vector<int64_t> choices;
  for (int64_t partition = 0; partition < mesh_.partitions(); ++partition) {
    Selection selection = uncut;
    for (size_t k = 0; k + 1 < job.reads.size(); k += 2) {
      const WindowRead& operand = job.reads[k];
      const size_t d = operand.halo.dimension;
      const auto part = static_cast<size_t>(
          mesh_.part_of_partitions(operand.halo.axes)[static_cast<size_t>(partition)]);
      selection[d] = along(select_form(op, d), operand, job.reads[k + 1], part, block[d]);
    }
    auto at = std::find(selections.begin(), selections.end(), selection);
    if (at == selections.end()) at = selections.insert(at, std::move(selection));
    choices.push_back(at - selections.begin());
  }

  ir::Value* initial = job.operands[2];
  const auto select = [&](ir::GraphBuilder& g, const Selection& selection) -> ir::Value* {
    const bool is_empty =
        std::any_of(selection.begin(), selection.end(),
                    [](const SelectDimension& one) { return one.source_count == 0; });
    if (is_empty) return g.broadcast(initial, block, {});
    Dims begin, end, source_begin, source_end, count, low, high;
    for (const SelectDimension& one : selection) {
      begin.push_back(one.begin);
      end.push_back(one.begin + one.count);
      source_begin.push_back(one.source_begin);
      source_end.push_back(one.source_begin + one.source_count);
      count.push_back(one.count);
      low.push_back(one.result_low);
      high.push_back(one.result_high);
    }
    ir::Value* operand = g.slice(job.operands[0], begin, end);
    ir::Value* source = g.slice(job.operands[1], source_begin, source_end);
    ir::ValueMap map;
    std::unique_ptr<ir::Operation> local = ir::clone_operation(op, map);
    local->set_operands({operand, source, initial});
    for (size_t d = 0; d < selection.size(); ++d) {
      set_padding(op, local->attributes(), selection.size(), d, selection[d].padding_low,
                  selection[d].padding_high);
    }
    local->result()->set_type(ir::Type::tensor(job.types[0].element(), count));
    ir::Value* made = g.block().append(std::move(local))->result();
    const Dims none(low.size(), 0);
    if (low == none && high == none) return made;
    ir::AttributeMap attributes;
    attributes.set("edge_padding_low", ir::i64_array(low));
    attributes.set("edge_padding_high", ir::i64_array(high));
    attributes.set("interior_padding", ir::i64_array(Dims(low.size(), 0)));
    return g.make(OpCode::kPad, {made, initial}, std::move(attributes));
  };
  ir::GraphBuilder& g = job.g;
  if (selections.size() == 1) {
    job.made = {select(g, selections[0])};
    return;
  }
  std::vector<ir::GraphBuilder::RegionSpec> branches;
  for (const Selection& selection : selections) {
    branches.push_back({{}, [&](ir::GraphBuilder& body, const ir::GraphBuilder::Values&) {
                          return ir::GraphBuilder::Values{select(body, selection)};
                        }});
  }
  ir::Value* choice = g.convert(resharder_.own_number(g, choices), DType::kI32);
  job.made = {g.make_op(OpCode::kCase, {choice}, {}, branches, {job.types[0]})->result()};
}

}  // namespace hekla::spmd
