// SPDX-License-Identifier: Apache-2.0
// The bound that attention as one kernel is held to: what is right passes, mistakes do not.
#include "tests/random/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "backends/compiler/passes/isolate.h"
#include "backends/reference/evaluator.h"
#include "tests/random/generate.h"

namespace hekla::testing {
namespace {

struct AttentionCase {
  RandomProgram program;
  std::vector<lower::Attention> attentions;
  std::unordered_map<const ir::Value*, HostArray> values;
};

AttentionCase attention_case(uint64_t seed) {
  GenerateOptions options;
  options.attention = true;
  options.max_elements = 20'000;
  AttentionCase made{random_program(seed, options), {}, {}};
  made.attentions = attentions_of(*made.program.module);
  const passes::Exposed exposed = passes::expose_values(*made.program.module);
  const auto values = reference::evaluate(*exposed.module, made.program.inputs);
  if (!values.ok()) die_of_bad_result(values.status());
  const ir::Block& block = made.program.module->entry()->body().front();
  for (size_t i = 0; i < block.argument_count(); ++i) {
    made.values[block.argument(i)] = made.program.inputs[i];
  }
  for (size_t k = 0; k + 1 < block.operations().size(); ++k) {
    made.values[block.operations()[k]->result()] =
        (*values)[static_cast<size_t>(exposed.places[k][0])];
  }
  return made;
}

void set_element(HostArray& array, int64_t i, double value) {
  const uint64_t bits = float_to_bits(array.dtype(), value);
  const int64_t width = dtype_bytes(array.dtype());
  std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
}

TEST(AttentionBound, FindsMistakes) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 48; ++seed) {
    SCOPED_TRACE(seed);
    const AttentionCase made = attention_case(seed);
    if (made.attentions.empty()) continue;
    ++found;
    const lower::Attention& attention = made.attentions[0];
    const HostArray& want = made.values.at(attention.product->result());
    EXPECT_EQ(attention_difference(attention, made.values, want), "");
    const bool is_narrow =
        want.dtype() != DType::kF32 ||
        attention.product->operand(attention.weights_operand)->type().dtype() != DType::kF32;
    HostArray wrong = want;
    uint64_t bits = 0;
    std::memcpy(&bits, want.data(), static_cast<size_t>(dtype_bytes(want.dtype())));
    const double first = float_from_bits(want.dtype(), bits);
    // Values lie between -2 and 2: a weight of one in a hundred that goes to the wrong one.
    if (std::isfinite(first)) {
      set_element(wrong, 0, first + (is_narrow ? 0.25 : 0.01));
      EXPECT_NE(attention_difference(attention, made.values, wrong), "");
      set_element(wrong, 0, std::nan(""));
    } else {
      set_element(wrong, 0, 1);
    }
    EXPECT_NE(attention_difference(attention, made.values, wrong), "");
  }
  EXPECT_GE(found, 20);
}

TEST(AttentionBound, IsOfTheAttentionAlone) {
  const AttentionCase made = attention_case(2);
  ASSERT_EQ(made.attentions.size(), 1u);
  const auto alone = attention_alone(*made.program.module, made.attentions[0]);
  const auto got = reference::evaluate(*alone, made.program.inputs);
  ASSERT_TRUE(got.ok()) << got.status().message();
  ASSERT_EQ(got->size(), 1u);
  EXPECT_EQ(attention_difference(made.attentions[0], made.values, got->at(0)), "");
}

// What `--attention` draws.
std::set<std::string> kinds_of(const ir::Module& module) {
  std::set<std::string> kinds;
  bool has_weights = false;
  for (const auto& op : module.entry()->body().front().operations()) {
    switch (op->code()) {
      case ir::OpCode::kDotGeneral:
        kinds.insert(fmt::format("{} of {}", has_weights ? "values" : "scores",
                                 dtype_name(op->operand(0)->type().dtype())));
        if (has_weights) {
          const bool comes_first = op->operand(0)->defining_op() != nullptr;
          kinds.insert(comes_first ? "weights first" : "values first");
        }
        has_weights = true;
        break;
      case ir::OpCode::kAdd:
      case ir::OpCode::kConvert:
      case ir::OpCode::kTanh:
      case ir::OpCode::kTranspose:
        kinds.insert(std::string(op->name()));
        break;
      case ir::OpCode::kSelect:
        kinds.insert(op->operand(0)->defining_op()->code() == ir::OpCode::kCompare
                         ? "mask by places"
                         : "mask given");
        break;
      default:
        break;
    }
  }
  return kinds;
}

// Under sanitizers CMakeLists.txt runs the first eight alone.
TEST(FewAttentions, AreOfEachKind) {
  GenerateOptions options;
  options.attention = true;
  options.max_elements = 20'000;
  const auto kinds = [&](uint64_t count) {
    std::set<std::string> all;
    for (uint64_t seed = 1; seed <= count; ++seed) {
      all.merge(kinds_of(*random_program(seed, options).module));
    }
    return all;
  };
  const std::set<std::string> all = kinds(100);
  EXPECT_EQ(all.size(), 14u);
  EXPECT_EQ(kinds(8), all);
}

}  // namespace
}  // namespace hekla::testing
