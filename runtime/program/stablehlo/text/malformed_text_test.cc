// SPDX-License-Identifier: Apache-2.0
// Bad text gives an error with line, column and reason, or a program where the damage changes
// nothing that counts: never a crash, and never time or memory beyond what the text's size allows.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/print.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {
namespace {

// A copy of exactly its size on the heap, so that the address sanitizer sees reads beyond it.
Result<std::unique_ptr<ir::Module>> read_exact(std::string_view text) {
  const std::vector<char> copy(text.begin(), text.end());
  return read_text({copy.data(), copy.size()});
}

// Reads, verifies and prints; what reads must read back.
Status process(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, read_exact(text));
  const std::string printed = print_module(*module);
  Result<std::unique_ptr<ir::Module>> again = read_text(printed);
  if (!again.ok()) return again.status().with_context("what was printed does not read back");
  if (const auto difference = first_difference(*module, **again)) {
    return internal_error("what was printed reads back differently: {}", *difference);
  }
  return ir::verify(*module);
}

bool is_clear(const Status& status) {
  return status.ok() ||
         (status.code() == StatusCode::kInvalidArgument && !status.message().empty());
}

// main(x: tensor<4xf32>) with the lines, from line 2, column 1 on.
std::string body(std::string_view lines) {
  return "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n" + std::string(lines) +
         "\nreturn %x : tensor<4xf32>\n}\n";
}

struct Bad {
  std::string text;
  std::string place;   // "line:column"
  std::string reason;  // part of the message
};

void expect_refused(const Bad& bad) {
  Result<std::unique_ptr<ir::Module>> module = read_exact(bad.text);
  ASSERT_FALSE(module.ok()) << "accepted:\n" << bad.text;
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument) << module.status().to_string();
  const std::string& message = module.status().message();
  EXPECT_TRUE(message.starts_with("text " + bad.place + ": ")) << message << "\n" << bad.text;
  EXPECT_NE(message.find(bad.reason), std::string::npos) << message << "\n" << bad.text;
}

TEST(MalformedText, Modules) {
  const Bad kBad[] = {
      {"modul {}", "1:1", "expected a function or a mesh, found 'modul {}'"},
      {"module {", "1:9", "expected a function or a mesh, found the end"},
      {"module {}\nmodule {}", "2:1", "a second module"},
      {"func.func @f() { return }\nmodule {}", "2:1", "behind functions"},
      {"module {}\nfunc.func @f()", "2:1", "expected the end of the program"},
      {"module attributes {a = } {}", "1:24", "expected an attribute"},
      {"module attributes {a, a} {}", "1:23", "the attribute a is given twice"},
      {"module attributes {a = \"x} {}", "1:24", "this string has no end"},
      {"module attributes {a = \"\\q\"} {}", "1:26", "unknown escape"},
      {"module @ {}", "1:10", "expected a name"},
      {"func.func @f(%x tensor<f32>)", "1:17", "expected ':'"},
      {"func.func @f(%x: tensor<f32>, %x: tensor<f32>)", "1:32", "%x is defined twice"},
      {"sdy.mesh @m = <[\"x\"=]>", "1:21", "expected a number, found ']>'"},
      {"\"builtin.module\"() : () -> ()", "1:30", "a module's region"},
      {"\"builtin.module\"() ({\"func.func\"() ({}) : () -> ()}) : () -> ()", "1:33",
       "a function needs sym_name"},
      {"\"builtin.module\"() ({", "1:21", "never closed"},
  };
  for (const Bad& bad : kBad) {
    expect_refused(bad);
  }
}

TEST(MalformedText, Names) {
  const Bad kBad[] = {
      {body("%0 = stablehlo.abs %y : tensor<4xf32>"), "2:21", "there is no value %y"},
      {body("%0 = stablehlo.abs %x#1 : tensor<4xf32>"), "2:21", "stands for 1 values"},
      {body("%0 = stablehlo.abs %x#-1 : tensor<4xf32>"), "2:21", "stands for 1 values"},
      {body("%x = stablehlo.abs %x : tensor<4xf32>"), "2:2", "%x is defined twice"},
      {body("%0:2 = stablehlo.abs %x : tensor<4xf32>"), "2:8", "has 1 results, 2 are named"},
      {body("%0:99999999999 = stablehlo.abs %x : tensor<4xf32>"), "2:16", "number of results"},
      {body("% = stablehlo.abs %x : tensor<4xf32>"), "2:2", "a value's name"},
      {body("stablehlo.abz %x : tensor<4xf32>"), "2:1", "there is no operation stablehlo.abz"},
      {body("stablehlo.gather %x : tensor<4xf32>"), "2:1", "written in its generic form"},
      {body("\"a\"() [^bb1] : () -> ()"), "2:8", "no successors"},
      {body("call @(%x) : (tensor<4xf32>) -> ()"), "2:7", "expected a name"},
  };
  for (const Bad& bad : kBad) expect_refused(bad);
}

TEST(MalformedText, Types) {
  const auto constant = [](std::string_view type) {
    return body(fmt::format("%c = stablehlo.constant dense<0> : {}", type));
  };
  const Bad kBad[] = {
      {constant("tensor<4xf31>"), "2:45", "expected a type"},
      {constant("tensor<4f32>"), "2:44", "expected 'x'"},
      {constant("tensor<99999999999999999999xf32>"), "2:43", "a dimension of 64 bits"},
      {constant("tensor<complex<i32>>"), "2:43", "complex<f32> or complex<f64>"},
      {constant("tensor<complex<!stablehlo.token>>"), "2:43", "complex<f32> or complex<f64>"},
      {constant("tensor<4xtuple<>>"), "2:45", "expected a type"},
      {constant("tensor<*x!stablehlo.token>"), "2:61", "an element type"},
      {constant("!stablehlo.token"), "2:31", "need a static tensor type"},
      {constant("tensor<?xi32>"), "2:31", "need a static tensor type"},
      {constant("tensor<2xi32, #stablehlo.bounds<2, 3>>"), "2:73", "one bound for each dimension"},
      {constant("tensor<2xi32"), "3:1", "expected '>'"},
      {constant("tensor<2x!quant.uniform<f32:f32, 1.0>>"), "2:60",
       "'f32' is no integer storage type"},
      {constant("tensor<2x!quant.uniform<i64:f32, 1.0>>"), "2:60", "at most 32 bits"},
      {constant("tensor<2x!quant.uniform<i8:i8, 1.0>>"), "2:65", "a float type"},
      {constant("tensor<2x!quant.uniform<i8:f32, 0x7FF0000000000000>>"), "2:68", "is finite"},
      {constant("tensor<2x!quant.uniform<i8:f32:0, {}>>"), "2:71", "expected an element"},
  };
  for (const Bad& bad : kBad) expect_refused(bad);
}

TEST(MalformedText, Elements) {
  const auto constant = [](std::string_view elements, std::string_view type) {
    return body(fmt::format("%c = stablehlo.constant dense<{}> : {}", elements, type));
  };
  const Bad kBad[] = {
      {constant("[1, 2, 3]", "tensor<2xi32>"), "2:36", "expected ']'"},
      {constant("[1]", "tensor<2xi32>"), "2:33", "expected ','"},
      {constant("[[1, 2]]", "tensor<2xi32>"), "2:32", "expected an element"},
      {constant("1, 2", "tensor<2xi32>"), "2:32", "the end of the elements"},
      {constant("", "tensor<2xi32>"), "2:31", "expected an element"},
      {constant("1.5", "tensor<2xi32>"), "2:31", "1.5 is no i32"},
      {constant("true", "tensor<2xi32>"), "2:35", "expected a number"},
      {constant("2", "tensor<2xi1>"), "2:31", "2 is no i1"},
      {constant("128", "tensor<2xf99>"), "2:47", "expected a type"},
      {constant("256", "tensor<2xi8>"), "2:31", "does not fit into i8"},
      {constant("-1", "tensor<2xui8>"), "2:31", "does not fit into ui8"},
      {constant("-9", "tensor<2xi4>"), "2:31", "does not fit into i4"},
      {constant("0x1FFFFFFFF", "tensor<2xf32>"), "2:31", "no bit pattern of f32"},
      {constant("1e999", "tensor<2xf64>"), "2:31", "outside of the range of f64"},
      {constant("(1.0)", "tensor<2xcomplex<f32>>"), "2:35", "expected ','"},
      {constant("\"0x0\"", "tensor<2xi8>"), "2:31", "odd number of hexadecimal digits"},
      {constant("\"0x0g\"", "tensor<2xi8>"), "2:31", "'g' is not hexadecimal"},
      {constant("\"0x010203\"", "tensor<2xi8>"), "2:31", ": 3 bytes do not hold tensor<2xi8>"},
      {constant("7", "tensor<0xi8>"), "2:31", "has no elements"},
      {constant("[1, 2]", "tensor<9223372036854775807xi64>"), "2:31", "takes more than 2^62 bytes"},
      {constant("[1, 2]", "tensor<99999999999xi64>"), "2:31", "more elements than are written"},
      {constant("0", "tensor<9223372036854775807x9223372036854775807xi8>"), "2:31",
       "takes more than 2^62 bytes"},
      {body("%c = stablehlo.constant dense_resource<r> : tensor<2xi8>"), "2:39",
       "there is no resource named r"},
      {body("%c = stablehlo.constant dense_resource<r> : tensor<2xi8>") +
           "{-# dialect_resources: { builtin: { r: \"0x0400\" } } #-}",
       "2:39", "the data of the resource r is no text"},
      {body("%c = stablehlo.constant dense_resource<r> : tensor<2xi8>") +
           "{-# dialect_resources: { builtin: { r: \"0x04000000010203\" } } #-}",
       "2:39", "do not hold"},
      {body("%c = stablehlo.constant dense_resource<r> : tensor<9000000000000000000xi64>") +
           "{-# dialect_resources: { builtin: { r: \"0x0400000001\" } } #-}",
       "2:39", "takes more than 2^62 bytes"},
  };
  for (const Bad& bad : kBad) expect_refused(bad);
}

TEST(MalformedText, Attributes) {
  const auto with = [](std::string_view value) {
    return body(fmt::format("%0 = stablehlo.abs %x {{a = {}}} : tensor<4xf32>", value));
  };
  const Bad kBad[] = {
      {with("300 : i8"), "2:28", "300 does not fit into i8"},
      {with("1.0 : i8"), "2:28", "expected a number of its type"},
      {with("1 : tensor<f32>"), "2:28", "expected a number of its type"},
      {with("99999999999999999999"), "2:28", "an integer of 64 bits"},
      {with("[1, 2"), "2:33", "expected ','"},
      {with("array<complex<f32>: 1>"), "2:34", "integers or floats"},
      {with("array<i64 1>"), "2:38", "expected '>'"},
      {with("@"), "2:29", "expected a name"},
      {with("@a::b"), "2:32", "expected '@'"},
      {with("#foo<(>"), "2:34", "this bracket has no partner"},
      {with("#foo<"), "2:33", "no partner"},
      {with("#stablehlo<precision>"), "2:48", "a kind and a word"},
      {with("#stablehlo.gather<offset_dimz = [1]>"), "2:46", "'offset_dimz' is none of the fields"},
      {with("#stablehlo.dot<lhs_batching_dimensions = 1>"), "2:69", "expected '['"},
      {with("#stablehlo.channel_handle<handle = 1, handle = 1>"), "2:66", "given twice"},
      {with("#stablehlo.result_accuracy<mode = 3 : i32>"), "2:70", "a result_accuracy_mode"},
      {with("#stablehlo.conv<[b, 5, f]x[0, i, o]->[b, 0, f]>"), "2:45", "are not 0 to 0"},
      {with("#stablehlo.conv<[b, 0, 0, f]x[0, i, o]->[b, 0, f]>"), "2:45", "are not 0 to 1"},
      {with("dense<1> : i32"), "2:34", "need a static tensor type"},
      {with("loc(\"x\""), "2:35", "expected ')'"},
  };
  for (const Bad& bad : kBad) expect_refused(bad);
}

TEST(MalformedText, Operations) {
  const Bad kBad[] = {
      {body("%0 = stablehlo.abs %x : (tensor<4xi32>) -> tensor<4xf32>"), "2:6",
       "operand 0 of stablehlo.abs is tensor<4xf32>, not tensor<4xi32>"},
      {body("%0 = \"stablehlo.abs\"(%x) : () -> tensor<4xf32>"), "2:6",
       "has 1 operands and 0 operand types"},
      {body("%0 = stablehlo.abs %x {a} {b} : tensor<4xf32>"), "2:27", "expected ':'"},
      {body("%0 = \"stablehlo.abs\"(%x) <{a = 1}> {a = 2} : (tensor<4xf32>) -> tensor<4xf32>"),
       "2:6", "has the attribute a twice"},
      {body("%0 = stablehlo.compare , %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>"),
       "2:24", "a comparison_direction"},
      {body("%0 = stablehlo.slice %x [0:] : (tensor<4xf32>) -> tensor<4xf32>"), "2:28",
       "an integer of 64 bits"},
      {body("%0 = stablehlo.transpose %x, dim = [0] : tensor<4xf32>"), "2:30",
       "expected dims = [...]"},
      {body("%0 = stablehlo.iota dim = x : tensor<4xi32>"), "2:27", "an integer of 64 bits"},
      {body("%0 = stablehlo.reduce_precision %x, format = e8 : tensor<4xf32>"), "2:49",
       "a format such as e8m10"},
      {body("%0 = stablehlo.reduce(%x init %x) across dimensions = [0] : tensor<4xf32>"), "2:31",
       "expected ':'"},
      {body("%0 = stablehlo.reduce(%x init: %x) applies stablehlo.abs across dimensions = [0] : "
            "(tensor<4xf32>, tensor<4xf32>) -> tensor<f32>"),
       "2:6", "stablehlo.abs is no reduction"},
      {body("%0 = stablehlo.while(%i = %x) cond {} do {}"), "2:31", "expected ':'"},
      {body("%0 = stablehlo.while(%i = %x) : tensor<4xi32> cond {} do {}"), "2:6",
       "operand 0 of stablehlo.while is tensor<4xf32>"},
      {body("%0 = stablehlo.dot_general %x, %x, contracting = [0] x [0] : tensor<f32>"), "2:36",
       "contracting_dims"},
      {body("%0 = stablehlo.convolution(%x, %x) dim_numbers = [b, f]x[i, o]->[b, f], window = "
            "{strides = [1]} : tensor<4xf32>"),
       "2:83", "'strides' is none of stride, pad"},
      {body("%0 = stablehlo.custom_call target(%x) : (tensor<4xf32>) -> tensor<4xf32>"), "2:28",
       "expected '@'"},
      {body("stablehlo.return %x : tensor<f32>"), "2:1", "operand 0 of stablehlo.return"},
  };
  for (const Bad& bad : kBad) expect_refused(bad);
}

// Well-formed text whose operations break StableHLO's constraints: the reader takes it.
TEST(MalformedText, TheVerifierRefuses) {
  const std::pair<std::string, std::string_view> kBad[] = {
      {body("%0 = \"stablehlo.exponential\"(%x) <{result_accuracy = #stablehlo.result_accuracy<"
            "atol = -1.0, rtol = 0.0, ulps = 0, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>"
            "}> : (tensor<4xf32>) -> tensor<4xf32>"),
       "result_accuracy has a negative tolerance"},
      {body("%0 = \"stablehlo.exponential\"(%x) <{result_accuracy = #stablehlo.result_accuracy<"
            "atol = 1.0, rtol = 0.0, ulps = 0, mode = #stablehlo.result_accuracy_mode<HIGHEST>>"
            "}> : (tensor<4xf32>) -> tensor<4xf32>"),
       "result_accuracy has tolerances with the mode HIGHEST"},
      {body("%0 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0], precision = [HIGH, "
            "DEFAULT], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, "
            "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
            "num_primitive_operations = 1, allow_imprecise_accumulation = false> : "
            "(tensor<4xf32>, tensor<4xf32>) -> tensor<f32>"),
       "goes with the precision DEFAULT, not HIGH"},
      {body("%0 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0], algorithm = "
            "<lhs_precision_type = f64, rhs_precision_type = f32, accumulation_type = f32, "
            "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
            "allow_imprecise_accumulation = false> : (tensor<4xf32>, tensor<4xf32>) -> "
            "tensor<f32>"),
       "lhs f64 rhs f32 accumulation f32 with 1 products is not known"},
      {body("%s = stablehlo.constant dense<[3, 4]> : tensor<2xi32>\n"
            "%0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : "
            "(tensor<4xf32>, tensor<2xi32>) -> tensor<2x4xf32>"),
       "the shape operand says 3 for dimension 0 of tensor<2x4xf32>"},
      {body("%s = stablehlo.constant dense<[2, 4, 1]> : tensor<3xi32>\n"
            "%0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : "
            "(tensor<4xf32>, tensor<3xi32>) -> tensor<2x4xf32>"),
       "operand 1 has 3 entries for rank 2"},
  };
  for (const auto& [text, reason] : kBad) {
    Result<std::unique_ptr<ir::Module>> module = read_text(text);
    ASSERT_TRUE(module.ok()) << text << module.status().to_string();
    const Status status = ir::verify(**module);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(reason), std::string::npos) << text << status.to_string();
  }
}

// The sanitizers keep several bytes of their own for each of ours.
#ifdef HEKLA_SANITIZED
constexpr long kMemoryFactor = 4;
#else
constexpr long kMemoryFactor = 1;
#endif

double cpu_seconds(const rusage& usage) {
  return static_cast<double>(usage.ru_utime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
}

// Runs `action`, which takes less processor time and lets the largest memory grow by less.
template <typename Action>
void expect_cheap(Action&& action, double max_seconds, long max_mib) {
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  action();
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(cpu_seconds(after) - cpu_seconds(before), max_seconds);
  EXPECT_LT((after.ru_maxrss - before.ru_maxrss) / 1024, max_mib * kMemoryFactor);
}

std::string repeated(std::string_view text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(HugeText, NestingEndsInAnError) {
  constexpr size_t kDeep = 100000;
  const struct {
    std::string text;
    std::string reason;
  } kCases[] = {
      {"module attributes {a = " + repeated("[", kDeep), "nest too deep"},
      {"module attributes {a = " + repeated("{b = ", kDeep), "nest too deep"},
      {"module attributes {a = " + repeated("(", kDeep), "nest too deep"},
      {"module attributes {a = " + repeated("tuple<", kDeep), "nest too deep"},
      {"module attributes {a = tensor<" + repeated("complex<", kDeep), "nest too deep"},
      {"module attributes {a = " + repeated("loc(callsite(", kDeep), "expected"},
      {"module attributes {a = loc(" + repeated("fused[", kDeep), "nest too deep"},
      {"module attributes {a = " + repeated("#stablehlo.result_accuracy<mode = ", kDeep),
       "nest too deep"},
      {body(repeated("\"x\"() ({", kDeep)), "deeper than"},
      {body(repeated("stablehlo.while() cond {", kDeep)), "deeper than"},
      {body("%c = stablehlo.constant dense<" + repeated("[", kDeep) + "1" + repeated("]", kDeep) +
            "> : tensor<" + repeated("1x", kDeep) + "f32>"),
       "nest at most"},
      {"#a = #a\nmodule attributes {a = #a} {}", "nest too deep"},
      {"!a = tuple<!a>\nmodule attributes {a = !a} {}", "nest too deep"},
      {"#a = [#b]\n#b = [#a]\nmodule attributes {a = #b} {}", "nest too deep"},
  };
  for (const auto& [text, reason] : kCases) {
    expect_cheap(
        [&text = text, &reason = reason] {
          const Status status = process(text);
          ASSERT_FALSE(status.ok()) << text.substr(0, 60);
          EXPECT_TRUE(status.message().starts_with("text ")) << status.message().substr(0, 200);
          EXPECT_NE(status.message().find(reason), std::string::npos)
              << text.substr(0, 60) << ": " << status.message().substr(0, 200);
        },
        5, 256);
  }
}

TEST(HugeText, AliasesThatDoubleEndInAnError) {
  std::string attributes = "#a0 = [1, 2]\n";
  std::string types = "!a0 = tuple<tensor<f32>>\n";
  for (int i = 1; i < 90; ++i) {
    attributes += fmt::format("#a{} = [#a{}, #a{}]\n", i, i - 1, i - 1);
    types += fmt::format("!a{} = tuple<!a{}, !a{}>\n", i, i - 1, i - 1);
  }
  attributes += "module attributes {a = #a89} {}";
  types += "module attributes {a = !a89} {}";
  for (const std::string& text : {attributes, types}) {
    expect_cheap(
        [&] {
          const Status status = process(text);
          ASSERT_FALSE(status.ok());
          EXPECT_NE(status.message().find("repeat too much"), std::string::npos)
              << status.message();
        },
        10, 512);
  }
}

// Each alias holds the one before: deep by chaining, though no text nests.
TEST(HugeText, AliasesThatChainAreBounded) {
  constexpr int kLength = 100000;
  std::string attributes = "#a0 = 1\n";
  std::string locations = "#l0 = loc(\"x\")\n";
  std::string uses;
  for (int i = 1; i < kLength; ++i) {
    attributes += fmt::format("#a{} = [#a{}]\n", i, i - 1);
    locations += fmt::format("#l{} = loc(callsite(#l{} at #l0))\n", i, i - 1);
    uses += fmt::format("\"x\"() : () -> () loc(#l{})\n", i);
  }
  expect_cheap(
      [&] {
        const Status status = process(attributes + "module {}");
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("nest too deep"), std::string::npos) << status.message();
      },
      10, 512);
  // What is too deep of a location is unknown; the program reads.
  expect_cheap([&] { EXPECT_TRUE(read_text(locations + body(uses)).ok()); }, 10, 1024);
}

TEST(HugeText, SplatsDoNotGrow) {
  // As lists of an attribute these are written out: 64 Ki numbers for each line.
  std::string lists;
  for (int i = 0; i < 2000; ++i) {
    lists += "\"x\"() {a = dense<1> : tensor<65536xi64>} : () -> ()\n";
  }
  expect_cheap(
      [&] {
        const Status status = process(body(lists));
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("too much room"), std::string::npos) << status.message();
      },
      10, 512);
  // A splat of any size is one element.
  expect_cheap(
      [&] {
        const Status status =
            process(body("%c = stablehlo.constant dense<1> : tensor<1000000x1000000xi64>"));
        EXPECT_TRUE(status.ok()) << status.to_string();
      },
      1, 64);
  expect_cheap(
      [&] {
        std::string numbers = "[";
        for (int i = 0; i < 1000; ++i) numbers += "[1000], ";
        EXPECT_FALSE(
            process(body("%0 = stablehlo.convolution(%x, %x) dim_numbers = " + numbers)).ok());
      },
      1, 64);
}

TEST(HugeText, LongTextTakesTimeInProportion) {
  const std::string comment = "// " + repeated("{[(<\"", 1000) + "\n";
  const std::string text = body(
      repeated(comment, 200) +
      repeated("\"x\"(%x) {a = \"" + repeated("y", 1000) + "\"} : (tensor<4xf32>) -> ()\n", 5000));
  expect_cheap(
      [&] {
        const Status status = process(text);
        EXPECT_TRUE(status.ok()) << status.to_string();
      },
      20, 512);
}

// The programs that are cut and bent below.
std::vector<std::string> small_programs() {
  std::vector<std::string> names;
  for (const char* name : {"rare_ops", "conv_variants", "sdy_small_floats", "resource_constant",
                           "foreign_attributes", "cond_switch", "tiny_types", "locations"}) {
    names.push_back(testing::read_artifact(std::string(name) + ".mlir"));
  }
  return names;
}

TEST(DamagedText, CutAnywhereItGivesAnError) {
  const std::vector<std::string> programs = small_programs();
  for (const std::string& text : programs) {
    const size_t step = std::max<size_t>(1, text.size() / 2000);
    const size_t end = text.find_last_not_of(" \n");
    int accepted = 0;
    for (size_t size = 0; size < end; size += step) {
      const Status status = process(std::string_view(text).substr(0, size));
      ASSERT_TRUE(is_clear(status)) << status.to_string();
      if (status.ok()) ++accepted;
      // What is left is whole only before the module, or behind it: aliases, resources.
      const std::string_view rest = std::string_view(text).substr(size);
      if (status.ok() && size > text.find("module")) {
        EXPECT_EQ(rest.find("func"), std::string_view::npos) << "cut at " << size;
      }
    }
    EXPECT_LT(accepted, static_cast<int>(text.size()));
  }
}

TEST(DamagedText, ChangedBytesNeverCrash) {
  const std::vector<std::string> programs = small_programs();
  constexpr std::string_view kBytes("\0\"<>(){}[]%@#!^:,=-0x9e.", 24);
  uint64_t state = 1;
  const auto next = [&](size_t bound) {
    // xorshift64 (Marsaglia 2003), so that each run bends the same bytes.
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<size_t>(state % bound);
  };
  for (const std::string& text : programs) {
    for (int round = 0; round < 400; ++round) {
      std::string bent = text;
      const size_t at = next(bent.size());
      switch (next(3)) {
        case 0:
          bent[at] = kBytes[next(kBytes.size())];
          break;
        case 1:
          bent.erase(at, 1 + next(20));
          break;
        default:
          bent.insert(at, bent.substr(next(bent.size()), next(20)));
      }
      const Status status = process(bent);
      ASSERT_TRUE(is_clear(status)) << status.to_string() << "\nround " << round;
    }
  }
}

}  // namespace
}  // namespace hekla::stablehlo
