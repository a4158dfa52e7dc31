// SPDX-License-Identifier: Apache-2.0
// That loops and branches which change a little of a large array do not copy it: an iteration takes
// as long as what it changes. That the results are right shows tests/random (--edits).
#include <gtest/gtest.h>

#include <string>

#include "backends/compiler/plan/testing/plan_of_text.h"
#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

constexpr int64_t kElements = 100'000;
constexpr char kArray[] = "tensor<100000xf32>";

// A function of %x and %y, both kArray, and %n, an i32, that returns `results` arrays.
std::string edits(const std::string& body, const std::string& results, int count) {
  std::string types;
  for (int i = 0; i < count; ++i) types += std::string(i > 0 ? ", " : "") + kArray;
  return std::string("func.func @main(%x: ") + kArray + ", %y: " + kArray +
         ", %n: tensor<i32>) -> (" + types +
         ") {\n"
         "  %zero = stablehlo.constant dense<0> : tensor<i32>\n"
         "  %one = stablehlo.constant dense<1> : tensor<i32>\n" +
         body + "  return " + results + " : " + types + "\n}\n";
}

// %name = `array` with element `to` made of its element `from`.
std::string edit(const std::string& name, const std::string& array, const std::string& from,
                 const std::string& to) {
  return "  %" + name + "_e = stablehlo.dynamic_slice " + array + ", " + from +
         ", sizes = [1] : (" + kArray + ", tensor<i32>) -> tensor<1xf32>\n  %" + name +
         "_d = stablehlo.add %" + name + "_e, %" + name + "_e : tensor<1xf32>\n  %" + name +
         " = stablehlo.dynamic_update_slice " + array + ", %" + name + "_d, " + to + " : (" +
         kArray + ", tensor<1xf32>, tensor<i32>) -> " + kArray + "\n";
}

// Ten iterations, or %n, over %a and %b, which begin as %x and %y; the body makes %c and %d of them
// and of %i, and knows %j, %i + 1.
std::string loop(const std::string& body, bool is_counted = true) {
  const std::string types = std::string("tensor<i32>, ") + kArray + ", " + kArray;
  return "  %ten = stablehlo.constant dense<10> : tensor<i32>\n"
         "  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : " +
         types + "\n    cond {\n      %p = stablehlo.compare LT, %i, " +
         (is_counted ? "%ten" : "%n") +
         " : (tensor<i32>, tensor<i32>) -> tensor<i1>\n      stablehlo.return %p : tensor<i1>\n"
         "    } do {\n"
         "      %j = stablehlo.add %i, %one : tensor<i32>\n" +
         body + "      stablehlo.return %j, %c, %d : " + types + "\n    }\n";
}

// %name:2 = %first and %second, or what the other branch makes of them, when %i is %n.
std::string branch(const std::string& name, const std::string& otherwise, const std::string& first,
                   const std::string& second, const std::string& kept = "%a, %b") {
  const std::string types = std::string(kArray) + ", " + kArray;
  return "  %" + name +
         "_p = stablehlo.compare EQ, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n  %" +
         name + ":2 = \"stablehlo.if\"(%" + name + "_p) ({\n    stablehlo.return " + kept + " : " +
         types + "\n  }, {\n" + otherwise + "    stablehlo.return " + first + ", " + second +
         " : " + types + "\n  }) : (tensor<i1>) -> (" + types + ")\n";
}

// Steps, in loops and branches too, that write as many bytes as an array has.
int whole_writes(const LaunchPlan& plan) {
  int count = 0;
  for_each_step(plan.steps, [&](const Step& step) {
    if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
      count += copy->to.bytes >= kElements * 4 ? 1 : 0;
    }
    if (const auto* run = std::get_if<KernelStep>(&step.what)) {
      count += plan.kernels[static_cast<size_t>(run->kernel)].points() >= kElements ? 1 : 0;
    }
  });
  return count;
}

// The arguments are copied to the results, which the loop then changes.
constexpr int kArgumentCopies = 2;

void expect_in_place(const std::string& body) {
  for (const bool is_counted : {true, false}) {
    const LaunchPlan plan =
        plan_of_text(edits(loop(body, is_counted), "%r#1, %r#2", 2), {}, with_loops_as_steps());
    EXPECT_EQ(whole_writes(plan), kArgumentCopies) << to_string(plan);
    EXPECT_LT(plan.arena_bytes(), kElements) << to_string(plan);
  }
}

// What an update reads of the array is stored first, so that it is written in place.
TEST(InPlace, ALoopUpdatesALittleOfALargeArray) {
  expect_in_place(edit("c", "%a", "%j", "%i") + edit("d", "%b", "%i", "%j"));
}

// A quarter of an array is read, changed and written in less time than all of it is copied.
TEST(InPlace, ALoopUpdatesAQuarterOfALargeArray) {
  const auto quarter = [](const std::string& name, const std::string& array) {
    return "  %" + name + "_e = stablehlo.dynamic_slice " + array + ", %j, sizes = [25000] : (" +
           kArray + ", tensor<i32>) -> tensor<25000xf32>\n  %" + name + "_d = stablehlo.add %" +
           name + "_e, %" + name + "_e : tensor<25000xf32>\n  %" + name +
           " = stablehlo.dynamic_update_slice " + array + ", %" + name + "_d, %i : (" + kArray +
           ", tensor<25000xf32>, tensor<i32>) -> " + kArray + "\n";
  };
  const LaunchPlan plan =
      plan_of_text(edits(loop(quarter("c", "%a") + quarter("d", "%b")), "%r#1, %r#2", 2), {},
                   with_loops_as_steps());
  EXPECT_EQ(whole_writes(plan), kArgumentCopies) << to_string(plan);
}

// Elements that an update reads at the places where it writes them need no memory in between,
// however much of the array that is; a user of the old elements behind the update does.
TEST(InPlace, AWindowThatIsMadeOfItself) {
  const auto half = [](const std::string& from, const std::string& result) {
    return std::string("  %e = stablehlo.dynamic_slice %a, ") + from + ", sizes = [50000] : (" +
           kArray + ", tensor<i32>) -> tensor<50000xf32>\n" +
           "  %f = stablehlo.reshape %e : (tensor<50000xf32>) -> tensor<50000x1xf32>\n"
           "  %g = stablehlo.multiply %f, %f : tensor<50000x1xf32>\n"
           "  %h = stablehlo.add %g, %f : tensor<50000x1xf32>\n"
           "  %k = stablehlo.reshape %h : (tensor<50000x1xf32>) -> tensor<50000xf32>\n"
           "  %c = stablehlo.dynamic_update_slice %a, %k, %i : (" +
           kArray + ", tensor<50000xf32>, tensor<i32>) -> " + kArray + "\n" + result;
  };
  const auto plan_of = [&](const std::string& body) {
    return plan_of_text(edits(loop(body), "%r#1, %r#2", 2), {}, with_loops_as_steps());
  };
  const std::string passed = "  %d = stablehlo.add %b, %b : " + std::string(kArray) + "\n";
  const LaunchPlan plan = plan_of(half("%i", passed));
  EXPECT_LT(plan.arena_bytes(), kElements) << to_string(plan);
  EXPECT_GT(plan_of(half("%j", passed)).arena_bytes(), 200'000);
  const std::string read_again = "  %l = stablehlo.dynamic_update_slice %b, %e, %j : (" +
                                 std::string(kArray) + ", tensor<50000xf32>, tensor<i32>) -> " +
                                 kArray + "\n  %d = stablehlo.add %l, %c : " + kArray + "\n";
  const LaunchPlan read = plan_of(half("%i", read_again));
  EXPECT_GT(read.arena_bytes(), 200'000) << to_string(read);
}

TEST(InPlace, ABranchLeavesAnArrayAsItIs) {
  expect_in_place(branch("s", edit("u", "%a", "%j", "%i"), "%u", "%b") +
                  edit("c", "%s#0", "%i", "%j") + edit("d", "%s#1", "%i", "%j"));
}

TEST(InPlace, EachBranchUpdatesAnother) {
  expect_in_place(branch("s", edit("u", "%a", "%j", "%i"), "%u", "%b") +
                  branch("t", edit("v", "%s#1", "%j", "%i"), "%s#0", "%v", "%s#0, %s#1") +
                  edit("c", "%t#0", "%i", "%j") + edit("d", "%t#1", "%i", "%j"));
}

TEST(InPlace, ABranchInABranch) {
  const std::string inner =
      edit("u", "%a", "%j", "%i") + branch("t", edit("v", "%u", "%i", "%j"), "%v", "%b", "%u, %b");
  expect_in_place(branch("s", inner, "%t#0", "%t#1") + edit("c", "%s#0", "%i", "%j") +
                  edit("d", "%s#1", "%i", "%j"));
}

TEST(InPlace, ALoopInALoop) {
  const std::string types = std::string("tensor<i32>, ") + kArray;
  const std::string inner =
      "  %w:2 = stablehlo.while(%k = %zero, %e = %a) : " + types +
      "\n    cond {\n      %q = stablehlo.compare LT, %k, %i : (tensor<i32>, tensor<i32>) -> "
      "tensor<i1>\n      stablehlo.return %q : tensor<i1>\n    } do {\n"
      "      %l = stablehlo.add %k, %one : tensor<i32>\n" +
      edit("f", "%e", "%k", "%i") + "      stablehlo.return %l, %f : " + types + "\n    }\n";
  expect_in_place(inner + edit("c", "%w#1", "%i", "%j") + edit("d", "%b", "%i", "%j"));
  // And that in a branch.
  expect_in_place(branch("s", inner, "%w#1", "%b") + edit("c", "%s#0", "%i", "%j") +
                  edit("d", "%s#1", "%i", "%j"));
}

// What is needed afterwards, or given back twice, stays: each version has memory of its own.
TEST(InPlace, ABranchCopiesWhatIsStillNeeded) {
  for (const std::string& body :
       {branch("s", edit("u", "%a", "%j", "%i"), "%u", "%b") + edit("c", "%s#0", "%i", "%j") +
            edit("d", "%a", "%i", "%j"),
        branch("s", edit("u", "%a", "%j", "%i"), "%u", "%a") + edit("c", "%s#0", "%i", "%j") +
            edit("d", "%s#1", "%i", "%j")}) {
    const LaunchPlan plan =
        plan_of_text(edits(loop(body, false), "%r#1, %r#2", 2), {}, with_loops_as_steps());
    EXPECT_GT(whole_writes(plan), kArgumentCopies) << to_string(plan);
    EXPECT_GE(plan.arena_bytes(), kElements * 4) << to_string(plan);
  }
}

TEST(InPlace, ALoopThatDoesNotRunTakesNoStep) {
  const std::string types = std::string("tensor<i32>, ") + kArray;
  const LaunchPlan plan = plan_of_text(
      edits("  %r:2 = stablehlo.while(%i = %zero, %a = %x) : " + types +
                "\n    cond {\n      %p = stablehlo.compare LT, %i, %zero : (tensor<i32>, "
                "tensor<i32>) -> tensor<i1>\n      stablehlo.return %p : tensor<i1>\n    } do {\n"
                "      %j = stablehlo.add %i, %one : tensor<i32>\n" +
                edit("b", "%a", "%j", "%i") + "      stablehlo.return %j, %b : " + types +
                "\n    }\n",
            "%r#1", 1),
      {}, with_loops_as_steps());
  for (const Step& step : plan.steps) {
    EXPECT_TRUE(std::holds_alternative<CopyStep>(step.what)) << to_string(plan);
  }
}

// ---- scatters

// Numbers of a gather of f32s and of a scatter that puts them back elsewhere.
struct Edit {
  std::string shape, indices, taken, gathered, scattered;
};

// Ten iterations that put a function of what is gathered at other places, or add it there; the
// places move, and somebody else needs the function too. `uses_all`: then all elements are computed
// with.
std::string scattering(const Edit& edit, bool adds, bool uses_all) {
  const std::string array = "tensor<" + edit.shape + "xf32>";
  const std::string taken = "tensor<" + edit.taken + "xf32>";
  const std::string places = "tensor<" + edit.indices + "xi32>";
  const std::string types = "tensor<i32>, " + array + ", " + taken;
  return "func.func @main(%x: " + array + ", %y: " + taken + ", %from: " + places +
         ", %to: " + places + ") -> (" + array + ", " + taken +
         ") {\n"
         "  %zero = stablehlo.constant dense<0> : tensor<i32>\n"
         "  %one = stablehlo.constant dense<1> : tensor<i32>\n"
         "  %ten = stablehlo.constant dense<10> : tensor<i32>\n"
         "  %r:3 = stablehlo.while(%i = %zero, %a = %x, %z = %y) : " +
         types +
         "\n    cond {\n"
         "      %p = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
         "      stablehlo.return %p : tensor<i1>\n"
         "    } do {\n"
         "      %j = stablehlo.add %i, %one : tensor<i32>\n"
         "      %k = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> " +
         places + "\n      %f = stablehlo.add %from, %k : " + places +
         "\n      %t = stablehlo.add %to, %k : " + places +
         "\n      %e = \"stablehlo.gather\"(%a, %f) {" + edit.gathered + "} : (" + array + ", " +
         places + ") -> " + taken + "\n      %d = stablehlo.sine %e : " + taken +
         "\n      %b = \"stablehlo.scatter\"(%a, %t, %d) ({\n"
         "      ^bb0(%u: tensor<f32>, %v: tensor<f32>):\n"
         "        %s = stablehlo.add %u, %v : tensor<f32>\n"
         "        stablehlo.return " +
         (adds ? "%s" : "%v") + " : tensor<f32>\n      }) {" + edit.scattered + "} : (" + array +
         ", " + places + ", " + taken + ") -> " + array +
         "\n      %c = stablehlo.negate %b : " + array + "\n      stablehlo.return %j, " +
         (uses_all ? "%c" : "%b") + ", %d : " + types + "\n    }\n  return %r#1, %r#2 : " + array +
         ", " + taken + "\n}\n";
}

LaunchPlan plan_in_order(const Edit& edit, bool adds, bool uses_all = false) {
  DeviceTraits traits = with_loops_as_steps();
  traits.scatters_in_order = true;
  return plan_of_text(scattering(edit, adds, uses_all), {}, traits);
}

// Each example of a batch changes an element of its own.
const Edit kExamples = {
    "10x10000", "10x1", "10",
    "dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], "
    "operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], "
    "index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>",
    "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], "
    "input_batching_dims = [0], scatter_indices_batching_dims = [0], "
    "scatter_dims_to_operand_dims = [1], index_vector_dim = 1>"};
// Rows by a list of indices.
const Edit kRows = {
    "1000x100", "32x1", "32x100",
    "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
    "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 100>",
    "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
    "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"};

// What a scatter in order reads of the array that it changes is stored first, and a batch of
// updates that are little of all is taken in order.
TEST(InPlace, AScatterInOrderUpdatesALittleOfALargeArray) {
  for (const Edit& edit : {kExamples, kRows}) {
    for (const bool adds : {false, true}) {
      const LaunchPlan plan = plan_in_order(edit, adds);
      EXPECT_EQ(whole_writes(plan), 1) << to_string(plan);  // the argument's copy
      EXPECT_LT(plan.arena_bytes(), kElements) << to_string(plan);
    }
  }
}

// A kernel that goes through all elements anyway looks at an update of its batch for each.
TEST(InPlace, AScatterOfABatchSharesTheKernelOfItsReader) {
  const LaunchPlan plan = plan_in_order(kExamples, true, true);
  for_each_step(plan.steps, [&](const Step& step) {
    if (const auto* run = std::get_if<KernelStep>(&step.what)) {
      EXPECT_NE(plan.kernels[static_cast<size_t>(run->kernel)].name, "scatter") << to_string(plan);
    }
  });
}

}  // namespace
}  // namespace hekla::plan
