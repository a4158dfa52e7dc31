// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/testing/loop_text.h"

namespace hekla::stablehlo::testing {

std::string counted_loop(const LoopText& loop, const std::string& body) {
  const std::string types = "tensor<i32>, " + loop.type + "\n";
  return R"(  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %)" +
         loop.carried + " = %" + loop.initial + ") : " + types + R"(  cond {
    %n = stablehlo.constant dense<)" +
         std::to_string(loop.trips) + R"(> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
)" + body +
         "    stablehlo.return %j, %" + loop.next + " : " + types + "  }\n";
}

}  // namespace hekla::stablehlo::testing
