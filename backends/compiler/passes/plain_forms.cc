// SPDX-License-Identifier: Apache-2.0
// Asynchronous forms as plain operations.
#include <algorithm>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/ir/clone.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

// Whether what `start` makes goes nowhere but to async_done of the same types.
bool is_only_awaited(const ir::Operation& start) {
  const ir::Operation& inner = *start.region(0).front().operations().front();
  return std::ranges::all_of(start.result()->users(), [&](const ir::Operation* user) {
    return user->code() == OpCode::kAsyncDone && user->result_types() == inner.result_types();
  });
}

void make_plain(ir::Operation& start) {
  ir::Block& block = *start.block();
  const ir::Block& body = start.region(0).front();
  ir::ValueMap map;
  for (size_t i = 0; i < body.argument_count(); ++i) map[body.argument(i)] = start.operand(i);
  const ir::Operation* plain =
      block.insert_before(&start, ir::clone_operation(*body.operations().front(), map));
  const std::vector<ir::Operation*> awaiting = start.result()->users();
  for (ir::Operation* done : awaiting) {
    for (size_t i = 0; i < done->result_count(); ++i) {
      done->result(i)->replace_all_uses_with(plain->result(i));
    }
    done->block()->erase(done);
  }
  block.erase(&start);
}

}  // namespace

void rewrite_asynchronous(ir::Module& module) {
  for (const auto& function : module.functions) {
    if (function->is_declaration()) continue;
    std::vector<ir::Operation*> starts;
    ir::walk(function->body(), [&](ir::Operation& op) {
      if (op.code() == OpCode::kAsyncStart && is_only_awaited(op)) starts.push_back(&op);
    });
    for (ir::Operation* start : starts) make_plain(*start);
  }
}

}  // namespace hekla::passes
