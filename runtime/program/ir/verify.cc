// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/verify_sharding.h"

namespace hekla::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Module& module) : module_(module), shardings_(module) {
    for (const auto& function : module.functions)
      functions_.emplace(function->name(), function.get());
  }

  Status run() {
    const auto report_text = [this](const std::string& problem) { problems_.push_back(problem); };
    shardings_.check_meshes(report_text);
    for (const auto& function : module_.functions) {
      if (find(function->name()) != function.get()) {
        report("function @{} is defined twice", function->name());
      }
      check_function(*function);
      shardings_.check_function(*function, report_text);
    }
    for (const auto& function : module_.functions) check_recursion(*function);
    if (problems_.empty()) return ok_status();
    std::string text;
    for (size_t i = 0; i < std::min(problems_.size(), kMaxReportedProblems); ++i) {
      text += (i > 0 ? "\n" : "") + problems_[i];
    }
    if (problems_.size() > kMaxReportedProblems) {
      text += fmt::format("\nand {} more", problems_.size() - kMaxReportedProblems);
    }
    return Status(StatusCode::kInvalidArgument, std::move(text));
  }

 private:
  template <typename... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void report(const Operation& op, fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format("{} at {}: ", op.name(), location_string(op.location())) +
                        fmt::format(format, std::forward<Args>(args)...));
  }

  void check_function(const Function& function) {
    if (function.type.kind() != Type::Kind::kFunction) {
      report("function @{} has no function type", function.name());
      return;
    }
    if (function.is_declaration()) return;
    if (function.body().blocks().size() != 1) {
      report("function @{} must have one block, has {}", function.name(),
             function.body().blocks().size());
      return;
    }
    const Block& block = function.body().front();
    if (block.argument_types() != function.type.elements()) {
      report("function @{}: arguments ({}) differ from its type {}", function.name(),
             types_string(block.argument_types()), function.type.to_string());
    }
    visible_.clear();
    check_block(block, OpCode::kFuncReturn, function.name());
    const Operation* end = block.terminator();
    if (end == nullptr || end->code() != OpCode::kFuncReturn) return;
    const std::vector<Type>& results = function.type.results();
    bool agrees = end->operand_count() == results.size();
    for (size_t i = 0; agrees && i < results.size(); ++i) {
      agrees = end->operand(i) != nullptr && are_compatible(end->operand(i)->type(), results[i]);
    }
    if (!agrees) {
      report(*end, "does not return ({}) as function @{} says", types_string(results),
             function.name());
    }
  }

  // Adds what the block defines to visible_ and takes it away at the end.
  void check_block(const Block& block, OpCode terminator, std::string_view where) {
    std::vector<const Value*> defined;
    const auto define = [&](const Value* value) {
      visible_.insert(value);
      defined.push_back(value);
    };
    for (size_t i = 0; i < block.argument_count(); ++i) define(block.argument(i));
    for (const auto& op : block.operations()) {
      const bool is_last = op.get() == block.terminator();
      if (is_terminator(op->code()) != is_last) {
        report(*op, "{}", is_last ? "a block must end in a return" : "a return must end its block");
      } else if (is_last && op->code() != terminator) {
        report(*op, "this block must end in {}", op_name(terminator));
      }
      check_operation(*op);
      for (size_t i = 0; i < op->result_count(); ++i) define(op->result(i));
    }
    if (block.empty()) report("{} has an empty block, which needs a return", where);
    for (const Value* value : defined) visible_.erase(value);
  }

  bool check_operands(const Operation& op) {
    bool fine = true;
    for (size_t i = 0; i < op.operand_count(); ++i) {
      if (op.operand(i) == nullptr || !visible_.contains(op.operand(i))) {
        report(op, "operand {} is not defined before its use", i);
        fine = false;
      }
    }
    return fine;
  }

  // Regions of an operation that nobody knows may have any blocks, which may end in anything; the
  // values of the first are seen in the next.
  void check_unknown_region(const Region& region) {
    std::vector<const Value*> defined;
    const auto define = [&](const Value* value) {
      visible_.insert(value);
      defined.push_back(value);
    };
    for (const auto& block : region.blocks()) {
      for (size_t i = 0; i < block->argument_count(); ++i) define(block->argument(i));
      for (const auto& op : block->operations()) {
        check_operands(*op);
        for (size_t i = 0; i < op->region_count(); ++i) check_unknown_region(op->region(i));
        for (size_t i = 0; i < op->result_count(); ++i) define(op->result(i));
      }
    }
    for (const Value* value : defined) visible_.erase(value);
  }

  void check_operation(const Operation& op) {
    const bool operands_fine = check_operands(op);
    if (op.code() == OpCode::kUnknown) {
      for (size_t i = 0; i < op.region_count(); ++i) check_unknown_region(op.region(i));
      return;
    }
    const OpCode inner =
        op.code() == OpCode::kSdyManualComputation || op.code() == OpCode::kSdyNamedComputation
            ? OpCode::kSdyReturn
            : OpCode::kReturn;
    bool regions_fine = true;
    for (size_t i = 0; i < op.region_count(); ++i) {
      if (op.region(i).blocks().size() != 1) {
        report(op, "region {} must have one block, has {}", i, op.region(i).blocks().size());
        regions_fine = false;
        continue;
      }
      const size_t before = problems_.size();
      check_block(op.region(i).front(), inner, op.name());
      regions_fine = regions_fine && problems_.size() == before;
    }
    if (op.code() == OpCode::kFuncCall) check_callee(op, "callee");
    if (op.code() == OpCode::kComposite) check_callee(op, "decomposition");
    if (!operands_fine || !regions_fine) return;
    Result<std::vector<Type>> inferred = infer_result_types(op);
    if (!inferred.ok()) {
      problems_.push_back(inferred.status().message());
      return;
    }
    if (inferred->size() != op.result_count()) {
      report(op, "has {} results, declares {}", inferred->size(), op.result_count());
      return;
    }
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (!are_compatible(op.result(i)->type(), (*inferred)[i])) {
        report(op, "result {} is {}, declared as {}", i, (*inferred)[i].to_string(),
               op.result(i)->type().to_string());
      }
    }
    shardings_.check_operation(op, [&](const std::string& problem) { report(op, "{}", problem); });
  }

  void check_signature(const Operation& op, const Function& callee) {
    const std::vector<Type>& inputs = callee.type.elements();
    bool agrees =
        inputs.size() == op.operand_count() && callee.type.results().size() == op.result_count();
    for (size_t i = 0; agrees && i < inputs.size(); ++i) {
      agrees = op.operand(i) != nullptr && are_compatible(op.operand(i)->type(), inputs[i]);
    }
    for (size_t i = 0; agrees && i < op.result_count(); ++i) {
      agrees = are_compatible(op.result(i)->type(), callee.type.results()[i]);
    }
    if (!agrees) {
      report(op, "does not fit @{}, which is {}", callee.name(), callee.type.to_string());
    }
  }

  void check_callee(const Operation& op, std::string_view attribute) {
    const SymbolValue* symbol = op.attribute(attribute).get<SymbolValue>();
    const Function* callee = symbol == nullptr ? nullptr : find(symbol->root);
    if (callee == nullptr) {
      report(op, "there is no function @{}", symbol == nullptr ? "" : symbol->root);
      return;
    }
    check_signature(op, *callee);
  }

  // StableHLO's functions do not call themselves, directly or not; a chain of calls is no longer
  // than there are functions.
  void check_recursion(const Function& function) {
    enum class Mark : uint8_t { kNone, kOpen, kDone };
    std::unordered_map<const Function*, Mark> marks;
    struct Frame {
      const Function* function;
      std::vector<const Function*> callees;
    };
    const auto callees = [&](const Function& caller) {
      std::vector<const Function*> found;
      walk(caller.body(), [&](const Operation& op) {
        for (std::string_view name : {"callee", "decomposition"}) {
          if (const SymbolValue* symbol = op.attribute(name).get<SymbolValue>()) {
            if (const Function* callee = find(symbol->root)) found.push_back(callee);
          }
        }
        const auto* called = op.attribute("called_computations").get<ArrayValue>();
        if (called == nullptr) return;
        for (const Attribute& name : called->elements) {
          if (const SymbolValue* symbol = name.get<SymbolValue>()) {
            if (const Function* callee = find(symbol->root)) found.push_back(callee);
          }
        }
      });
      return found;
    };
    if (checked_for_recursion_.contains(&function)) return;
    std::vector<Frame> stack;
    stack.push_back({&function, callees(function)});
    marks[&function] = Mark::kOpen;
    while (!stack.empty()) {
      if (stack.back().callees.empty()) {
        marks[stack.back().function] = Mark::kDone;
        checked_for_recursion_.insert(stack.back().function);
        stack.pop_back();
        continue;
      }
      const Function* next = stack.back().callees.back();
      stack.back().callees.pop_back();
      if (marks[next] == Mark::kOpen) {
        report("function @{} calls itself, through @{}", next->name(),
               stack.back().function->name());
        checked_for_recursion_.insert(next);
      } else if (marks[next] == Mark::kNone && !checked_for_recursion_.contains(next)) {
        marks[next] = Mark::kOpen;
        stack.push_back({next, callees(*next)});
      }
    }
  }

  const Function* find(std::string_view name) const {
    auto it = functions_.find(name);
    return it == functions_.end() ? nullptr : it->second;
  }

  const Module& module_;
  const ShardingVerifier shardings_;
  std::unordered_map<std::string_view, const Function*> functions_;
  std::vector<std::string> problems_;
  std::unordered_set<const Value*> visible_;
  std::unordered_set<const Function*> checked_for_recursion_;
};

}  // namespace

Status verify(const Module& module) { return Verifier(module).run(); }

}  // namespace hekla::ir
