// SPDX-License-Identifier: Apache-2.0
// That random programs have the operations that they are meant to have: one that the generator
// cannot make is left out without a word.
#include "tests/random/generate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "runtime/program/ir/verify.h"

namespace hekla::testing {
namespace {

TEST(RandomProgram, HasEachKindOfOperation) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    GenerateOptions options = mixed_sizes(seed);
    options.max_elements = 400;
    const RandomProgram program = random_program(seed, options);
    if (seed % 100 == 0) {
      ASSERT_TRUE(ir::verify(*program.module).ok()) << seed;
    }
    for (const auto& function : program.module->functions) {
      ir::walk(function->body(), [&](const ir::Operation& op) { seen.emplace(op.name()); });
    }
  }
  for (const char* kind : {"abs",
                           "add",
                           "and",
                           "atan2",
                           "bitcast_convert",
                           "broadcast_in_dim",
                           "case",
                           "cbrt",
                           "ceil",
                           "cholesky",
                           "clamp",
                           "compare",
                           "complex",
                           "concatenate",
                           "convert",
                           "convolution",
                           "cosine",
                           "count_leading_zeros",
                           "divide",
                           "dot_general",
                           "dynamic_slice",
                           "dynamic_update_slice",
                           "exponential",
                           "exponential_minus_one",
                           "fft",
                           "floor",
                           "gather",
                           "if",
                           "imag",
                           "iota",
                           "is_finite",
                           "log",
                           "log_plus_one",
                           "logistic",
                           "map",
                           "maximum",
                           "minimum",
                           "multiply",
                           "negate",
                           "not",
                           "or",
                           "pad",
                           "popcnt",
                           "power",
                           "real",
                           "reduce",
                           "reduce_window",
                           "remainder",
                           "reshape",
                           "reverse",
                           "rng_bit_generator",
                           "round_nearest_afz",
                           "round_nearest_even",
                           "rsqrt",
                           "scatter",
                           "select",
                           "select_and_scatter",
                           "shift_left",
                           "shift_right_arithmetic",
                           "shift_right_logical",
                           "sign",
                           "sine",
                           "slice",
                           "sort",
                           "sqrt",
                           "subtract",
                           "tan",
                           "tanh",
                           "transpose",
                           "triangular_solve",
                           "while",
                           "xor"}) {
    EXPECT_TRUE(seen.contains(std::string("stablehlo.") + kind)) << kind;
  }
}

}  // namespace
}  // namespace hekla::testing
