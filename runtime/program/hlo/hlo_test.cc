// SPDX-License-Identifier: Apache-2.0
// What read_hlo promises beside the meaning of opcodes, which tests/evaluator/test_hlo*.py compare
// with XLA's own reading: donations, shardings and locations of the entry, one function for what
// several call, clear errors within bounds for bad bytes.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/base/protobuf_wire.h"
#include "runtime/program/hlo/read_hlo.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::hlo {
namespace {

using wire::Writer;
using Fill = std::function<void(Writer&)>;

constexpr int64_t kF32Type = 11;
constexpr int64_t kTuple = 13;

Writer made(const Fill& fill) {
  Writer writer;
  fill(writer);
  return writer;
}

Writer array_shape(std::vector<int64_t> dims, int64_t type = kF32Type) {
  return made([&](Writer& w) {
    w.varint(2, static_cast<uint64_t>(type));
    w.packed(3, dims);
  });
}

Writer tuple_shape(const std::vector<Writer>& elements) {
  return made([&](Writer& w) {
    w.varint(2, kTuple);
    for (const Writer& element : elements) w.message(4, element);
  });
}

// Instruction `id` of that opcode; `fill` adds what else it has.
Writer instruction(int64_t id, const std::string& opcode, const Writer& shape,
                   const std::vector<int64_t>& operands = {}, const Fill& fill = nullptr) {
  return made([&](Writer& w) {
    w.bytes(1, opcode + "." + std::to_string(id));
    w.bytes(2, opcode);
    w.message(3, shape);
    w.varint(35, static_cast<uint64_t>(id));
    w.packed(36, operands);
    if (fill) fill(w);
  });
}

Writer parameter(int64_t id, int64_t number, const Writer& shape, const Fill& fill = nullptr) {
  return instruction(id, "parameter", shape, {}, [&](Writer& w) {
    w.varint(9, static_cast<uint64_t>(number));
    if (fill) fill(w);
  });
}

Writer computation(int64_t id, const std::string& name, const std::vector<Writer>& instructions,
                   int64_t root) {
  return made([&](Writer& w) {
    w.bytes(1, name);
    for (const Writer& one : instructions) w.message(2, one);
    w.varint(5, static_cast<uint64_t>(id));
    w.varint(6, static_cast<uint64_t>(root));
  });
}

// The last computation is the entry, with the id that it was given.
std::string module_of(const std::vector<Writer>& computations, int64_t entry,
                      const Fill& fill = nullptr) {
  return made([&](Writer& w) {
           w.bytes(1, "m");
           for (const Writer& one : computations) w.message(3, one);
           w.varint(6, static_cast<uint64_t>(entry));
           if (fill) fill(w);
         })
      .text();
}

// A copy of exactly its size on the heap, so that the address sanitizer sees reads beyond it.
Result<std::unique_ptr<ir::Module>> read_exact(const std::string& bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  HEKLA_ASSIGN_OR_RETURN(auto module, read_hlo({copy.data(), copy.size()}));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  return module;
}

void expect_refused(const std::string& bytes, std::string_view reason) {
  const auto module = read_exact(bytes);
  ASSERT_FALSE(module.ok()) << "accepted: " << reason;
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument) << module.status().to_string();
  EXPECT_NE(module.status().message().find(reason), std::string::npos) << module.status().message();
}

// f(x, (y, z)) = (x + y, z), tuples at both ends.
std::string two_of_a_tuple(const Fill& fill = nullptr, const Fill& of_parameter = nullptr) {
  const Writer f32 = array_shape({4});
  const Writer pair = tuple_shape({f32, f32});
  const auto element = [&](int64_t id, int64_t index) {
    return instruction(id, "get-tuple-element", f32, {2},
                       [&](Writer& w) { w.varint(13, static_cast<uint64_t>(index)); });
  };
  return module_of({computation(7, "entry",
                                {parameter(1, 0, f32, of_parameter), parameter(2, 1, pair),
                                 element(3, 0), element(4, 1), instruction(5, "add", f32, {1, 3}),
                                 instruction(6, "tuple", pair, {5, 4})},
                                6)},
                   7, fill);
}

TEST(Hlo, TuplesAreFlattenedAtBothEnds) {
  const auto module = read_exact(two_of_a_tuple());
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const ir::Function* entry = (*module)->entry();
  EXPECT_EQ(entry->name(), "main");
  EXPECT_EQ(entry->type.to_string(),
            "(tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)");
}

TEST(Hlo, DonationsStandOnTheParametersLeaves) {
  const std::string bytes = two_of_a_tuple([](Writer& w) {
    w.message(8, made([](Writer& alias) {
                alias.message(1, made([](Writer& entry) {
                                entry.packed(1, std::vector<int64_t>{0});
                                entry.varint(2, 1);
                                entry.packed(3, std::vector<int64_t>{1});
                              }));
              }));
    w.message(18, made([](Writer& donors) {
                donors.message(1, made([](Writer& entry) { entry.varint(1, 0); }));
              }));
  });
  const auto module = read_exact(bytes);
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const auto& attributes = (*module)->entry()->argument_attributes;
  const auto* alias = attributes[2].get("tf.aliasing_output").get<ir::IntegerValue>();
  ASSERT_NE(alias, nullptr);
  EXPECT_EQ(alias->value, 0);
  EXPECT_TRUE(attributes[1].empty());
  const auto* donor = attributes[0].get("jax.buffer_donor").get<ir::BoolValue>();
  ASSERT_NE(donor, nullptr);
  EXPECT_TRUE(donor->value);
  expect_refused(two_of_a_tuple([](Writer& w) {
                   w.message(18, made([](Writer& donors) {
                               donors.message(1, made([](Writer& entry) { entry.varint(1, 2); }));
                             }));
                 }),
                 "no parameter 2 to donate");
}

TEST(Hlo, ShardingsAndLocationsAreKept) {
  const std::string bytes = two_of_a_tuple(nullptr, [](Writer& w) {
    w.message(40, made([](Writer& sharding) {
                sharding.varint(1, 3);
                sharding.packed(3, std::vector<int64_t>{2});
                sharding.packed(4, std::vector<int64_t>{1, 0});
              }));
    w.message(7, made([](Writer& metadata) {
                metadata.bytes(2, "aten__add");
                metadata.bytes(3, "model.py");
                metadata.varint(4, 12);
              }));
  });
  const auto module = read_exact(bytes);
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const ir::Function* entry = (*module)->entry();
  const auto* sharding =
      entry->argument_attributes[0].get("mhlo.sharding").get<ir::HloShardingValue>();
  ASSERT_NE(sharding, nullptr);
  EXPECT_EQ(sharding->written, "{devices=[2]1,0}");
  EXPECT_EQ(ir::location_string(entry->body().front().operations()[0]->location()), "\"add.5\"");
}

TEST(Hlo, WhatSeveralCallIsOneFunction) {
  const Writer f32 = array_shape({});
  const auto call = [&](int64_t id, const std::string& opcode, int64_t operand, int64_t callee) {
    return instruction(id, opcode, f32, {operand},
                       [&](Writer& w) { w.packed(38, std::vector<int64_t>{callee}); });
  };
  const auto module = read_exact(module_of(
      {computation(20, "f", {parameter(1, 0, f32), instruction(2, "add", f32, {1, 1})}, 2),
       computation(21, "e",
                   {parameter(3, 0, f32), call(4, "call", 3, 20), call(5, "fusion", 4, 20)}, 5)},
      21));
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  EXPECT_EQ((*module)->functions.size(), 2U);
  EXPECT_EQ((*module)->entry()->body().front().operations().size(), 3U);
}

// Each computation fuses the one before it twice: 2^k additions, if they were copied.
TEST(Hlo, ChainsOfCallsStayWithinBounds) {
  const Writer f32 = array_shape({});
  for (const bool is_region : {false, true}) {
    std::vector<Writer> computations = {computation(
        100, "f0", {parameter(1, 0, f32), parameter(2, 1, f32), instruction(3, "add", f32, {1, 2})},
        3)};
    for (int64_t k = 1; k <= 60; ++k) {
      const auto call = [&](int64_t id, std::vector<int64_t> operands) {
        return instruction(id, is_region ? "map" : "fusion", f32, operands,
                           [&](Writer& w) { w.packed(38, std::vector<int64_t>{99 + k}); });
      };
      computations.push_back(computation(
          100 + k, "f" + std::to_string(k),
          {parameter(1, 0, f32), parameter(2, 1, f32), call(3, {1, 2}), call(4, {3, 2})}, 4));
    }
    const auto module = read_exact(module_of(computations, 160));
    EXPECT_EQ(module.ok(), !is_region);
    if (is_region) {
      EXPECT_NE(module.status().message().find("a copy of each callee"), std::string::npos);
    }
  }
}

TEST(Hlo, BadReferencesAreNamed) {
  const Writer f32 = array_shape({4});
  const auto entry = [&](const std::vector<Writer>& instructions, int64_t root) {
    return module_of({computation(7, "entry", instructions, root)}, 7);
  };
  expect_refused("", "without computations");
  expect_refused("\x1a", "malformed");
  expect_refused(entry({parameter(1, 0, f32)}, 2), "no instruction with the id 2");
  expect_refused(module_of({computation(7, "entry", {parameter(1, 0, f32)}, 1)}, 8), "no entry");
  expect_refused(entry({instruction(2, "add", f32, {1, 1}), parameter(1, 0, f32)}, 2),
                 "add.2 (add) in %entry: the operand with id 1 is not defined");
  expect_refused(entry({parameter(1, 0, f32), parameter(1, 1, f32)}, 1), "two instructions");
  expect_refused(entry({parameter(1, 1, f32), instruction(2, "negate", f32, {1})}, 2),
                 "no parameter 0");
  expect_refused(entry({parameter(1, 0, f32), parameter(2, 0, f32)}, 1), "two parameters 0");
  expect_refused(entry({parameter(1, int64_t{1} << 40, f32)}, 1), "no parameter 1099511627776");
  expect_refused(entry({parameter(1, 0, f32),
                        instruction(2, "call", f32, {1},
                                    [](Writer& w) { w.packed(38, std::vector<int64_t>{7}); })},
                       2),
                 "the computation with id 7 is not defined before its call");
  expect_refused(entry({parameter(1, 0, f32), instruction(2, "negate", array_shape({5}), {1})}, 2),
                 "negate");
  expect_refused(entry({parameter(1, 0, array_shape({-1}))}, 1), "size -1");
  expect_refused(entry({parameter(1, 0, array_shape({int64_t{1} << 40, int64_t{1} << 40}))}, 1),
                 "more than 2^62 bytes");
  expect_refused(entry({parameter(1, 0, array_shape({}, 99))}, 1), "element type number 99");
  Writer deep = f32;
  for (int i = 0; i < 1000; ++i) deep = tuple_shape({deep});
  expect_refused(entry({parameter(1, 0, deep)}, 1), "nest deeper");
}

TEST(Hlo, LiteralsMustFillTheirShape) {
  const auto constant = [&](const std::string& floats) {
    const Writer shape = array_shape({2});
    return module_of({computation(7, "entry",
                                  {instruction(1, "constant", shape, {},
                                               [&](Writer& w) {
                                                 w.message(8, made([&](Writer& literal) {
                                                             literal.message(1, shape);
                                                             literal.bytes(8, floats);
                                                           }));
                                               })},
                                  1)},
                     7);
  };
  EXPECT_TRUE(read_exact(constant(std::string(8, 'a'))).ok());
  expect_refused(constant(std::string(4, 'a')), "4 bytes of elements");
  expect_refused(constant(std::string(7, 'a')), "has 7 bytes");
  expect_refused(constant(std::string(12, 'a')), "12 bytes of elements");
}

TEST(Hlo, UnknownOpcodesStayByTheirName) {
  const Writer f32 = array_shape({4});
  const auto module = read_exact(module_of(
      {computation(7, "entry", {parameter(1, 0, f32), instruction(2, "frobnicate", f32, {1})}, 2)},
      7));
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  EXPECT_EQ((*module)->entry()->body().front().operations()[0]->name(), "hlo.frobnicate");
}

TEST(Hlo, DamageIsAnErrorOrAnotherProgram) {
  const std::string good = two_of_a_tuple();
  ASSERT_TRUE(read_exact(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    const auto module = read_exact(good.substr(0, size));
    EXPECT_TRUE(module.ok() || !module.status().message().empty());
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 1, 3, 7}) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const auto module = read_exact(damaged);
      EXPECT_TRUE(module.ok() || !module.status().message().empty());
    }
  }
}

TEST(Hlo, FormsAreToldApart) {
  const std::string module = two_of_a_tuple();
  const Result<std::string> configured = with_config(module);
  ASSERT_TRUE(configured.ok());
  EXPECT_EQ(stablehlo::program_format(module), "hlo");
  EXPECT_EQ(stablehlo::program_format(*configured), "hlo_with_config");
  EXPECT_EQ(stablehlo::program_format("module {}"), "mlir");
  EXPECT_EQ(stablehlo::program_format("\n\nfunc.func @main() { return }"), "mlir");
  EXPECT_EQ(stablehlo::program_format("ML\xefR"), "mlir");
  EXPECT_EQ(stablehlo::print_module(**stablehlo::read_program(module)),
            stablehlo::print_module(**stablehlo::read_program(*configured)));
}

}  // namespace
}  // namespace hekla::hlo
