// SPDX-License-Identifier: Apache-2.0
// Bad bytecode gives a clear error, or a valid module where the damage changes nothing that counts:
// never a crash, and never work beyond what the size of the file allows. (Run under the sanitizers
// this also shows that no byte outside the file is read.)
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_json.h"
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {
namespace {

// Reads, converts and prints; the first failure.
Status process(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(RawModule raw, read_bytecode(bytes));
  Result<std::string> json = vhlo_json(raw);
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, vhlo_to_ir(raw));
  const std::string text = print_module(*module, {.with_locations = true, .max_elements = 16});
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  return json.ok() ? ok_status() : json.status();
}

// A copy of exactly its size on the heap, so that the address sanitizer sees reads beyond it.
Status process_exact(std::string_view bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return process({copy.data(), copy.size()});
}

void expect_refused(const std::string& bytes, std::string_view reason) {
  const Status status = process_exact(bytes);
  ASSERT_FALSE(status.ok()) << "accepted: " << reason;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
}

// main() { op; return } with what `make` adds.
std::string file_with(const std::function<OpSpec(BytecodeBuilder&)>& make) {
  BytecodeBuilder b;
  OpSpec op = make(b);
  return b.finish(b.module_with_main(BlockSpec{{}, {op, {"vhlo.return_v1"}}}, {}));
}

// main() with a constant of `type` and `bytes`.
std::string constant_file(const std::function<uint32_t(BytecodeBuilder&)>& type,
                          const std::string& bytes) {
  return file_with([&](BytecodeBuilder& b) {
    const uint32_t number = type(b);
    OpSpec constant{"vhlo.constant_v1", {}, {number}};
    constant.properties = {
        {"value", b.attribute("vhlo", varint(15) + varint(number) + blob(bytes))}};
    return constant;
  });
}

// main() whose `return` carries the attribute with that number.
std::string attribute_file(const std::function<uint32_t(BytecodeBuilder&)>& attribute) {
  return file_with([&](BytecodeBuilder& b) {
    OpSpec op{"vhlo.create_token_v1", {}, {b.type("vhlo", varint(22))}};
    op.attributes = {{"a", attribute(b)}};
    return op;
  });
}

TEST(Malformed, Containers) {
  const std::string good =
      constant_file([](auto& b) { return b.vhlo_tensor({1}, b.vhlo_f32()); }, std::string(4, '\0'));
  ASSERT_TRUE(process_exact(good).ok()) << process_exact(good).to_string();
  expect_refused("", "magic");
  expect_refused("ML\xefR", "early");
  expect_refused(std::string("ML\xefR") + varint(7) + "x" + '\0', "version 7 is newer");
  expect_refused(good + good.substr(good.find("\x01")), "");
  expect_refused(std::string("ML\xefR") + varint(6) + "x" + '\0', "section 0 is missing");
}

TEST(Malformed, Constants) {
  const auto f32x2 = [](BytecodeBuilder& b) { return b.vhlo_tensor({2}, b.vhlo_f32()); };
  EXPECT_TRUE(process_exact(constant_file(f32x2, std::string(8, '\1'))).ok());
  EXPECT_TRUE(process_exact(constant_file(f32x2, std::string(4, '\1'))).ok());  // a splat
  for (size_t size : {0, 1, 3, 5, 7, 9, 12}) {
    expect_refused(constant_file(f32x2, std::string(size, '\1')), "do not hold tensor<2xf32>");
  }
  expect_refused(constant_file([](auto& b) { return b.type("vhlo", varint(22)); }, "\1"),
                 "static tensor");
  expect_refused(
      constant_file([](auto& b) { return b.type("vhlo", varint(23) + varint(0)); }, "\1"),
      "static tensor");
  expect_refused(constant_file(
                     [](auto& b) {
                       return b.vhlo_tensor({std::numeric_limits<int64_t>::min()}, b.vhlo_f32());
                     },
                     std::string(4, '\1')),
                 "static tensor");
  expect_refused(constant_file(
                     [](auto& b) {
                       return b.vhlo_tensor({int64_t{1} << 60, 1 << 30}, b.vhlo_f32());
                     },
                     std::string(4, '\1')),
                 "");
  expect_refused(constant_file([](auto& b) { return b.vhlo_tensor({-3}, b.vhlo_f32()); }, ""),
                 "dimension -3 is negative");
}

TEST(Malformed, HugeSplatsCostNothing) {
  // 4 EiB, if anybody expanded it.
  const std::string file =
      constant_file([](auto& b) { return b.vhlo_tensor({int64_t{1} << 60}, b.vhlo_f32()); },
                    std::string("\0\0\x80\x3f", 4));
  Result<RawModule> raw = read_bytecode(file);
  ASSERT_TRUE(raw.ok());
  Result<std::unique_ptr<ir::Module>> module = vhlo_to_ir(*raw);
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  EXPECT_NE(print_module(**module).find("dense<1.0> : tensor<1152921504606846976xf32>"),
            std::string::npos);
  EXPECT_TRUE(vhlo_json(*raw).ok());
}

TEST(Malformed, CyclesOfAttributesAndTypes) {
  expect_refused(attribute_file([](auto& b) {
                   const uint32_t self = b.attribute("vhlo", varint(1) + refs({0}));
                   EXPECT_EQ(self, 0u);
                   return self;
                 }),
                 "nested deeper");
  expect_refused(attribute_file([](auto& b) {
                   b.attribute("builtin", varint(1) + varint(1) + varint(2) + varint(1));
                   b.attribute("vhlo", varint(6) + varint(1) + varint(2) + varint(0));
                   b.builtin_string("key");
                   return 0u;
                 }),
                 "nested deeper");
  expect_refused(attribute_file([](auto& b) {
                   const uint32_t tuple = b.type("vhlo", varint(23) + refs({1}));
                   EXPECT_EQ(tuple, 1u);  // after the token
                   return b.attribute("vhlo", varint(17) + varint(tuple));
                 }),
                 "nested deeper");
}

TEST(Malformed, LocationsThatContainThemselvesAreUnknown) {
  BytecodeBuilder b;
  b.attribute("builtin", varint(10) + varint(0) + varint(0));  // 0: a call site of itself
  // Every op of the builder takes the entry 15 as its location: make it refer to the cycle.
  OpSpec op{"vhlo.return_v1"};
  std::string file = b.finish(b.module_with_main(BlockSpec{{}, {op}}, {}));
  EXPECT_TRUE(process_exact(file).ok());
}

TEST(Malformed, AttributesThatDoubleInEveryLevel) {
  // Each of 60 arrays holds the next one twice: 2^60 parts for whoever walks them all.
  expect_refused(attribute_file([](auto& b) {
                   for (uint32_t i = 0; i < 60; ++i) {
                     b.attribute("vhlo", varint(1) + refs({i + 1, i + 1}));
                   }
                   b.attribute("vhlo", varint(1) + varint(0));
                   return 0u;
                 }),
                 "parts");
  expect_refused(attribute_file([](auto& b) {
                   for (uint32_t i = 1; i < 60; ++i) {
                     b.type("vhlo", varint(23) + refs({i + 1, i + 1}));
                   }
                   b.type("vhlo", varint(4));
                   return b.attribute("vhlo", varint(17) + varint(1));
                 }),
                 "parts");
}

TEST(Malformed, DeepNesting) {
  constexpr uint32_t kDepth = 50000;
  expect_refused(attribute_file([](auto& b) {
                   for (uint32_t i = 0; i < kDepth; ++i)
                     b.attribute("vhlo", varint(1) + refs({i + 1}));
                   b.attribute("vhlo", varint(1) + varint(0));
                   return 0u;
                 }),
                 "nested deeper");
  expect_refused(attribute_file([](auto& b) {
                   for (uint32_t i = 1; i < kDepth; ++i) b.type("vhlo", varint(23) + refs({i + 1}));
                   b.type("vhlo", varint(4));
                   return b.attribute("vhlo", varint(17) + varint(1));
                 }),
                 "nested deeper");
}

// main() with `depth` regions within each other.
std::string nested_file(int depth) {
  BytecodeBuilder b;
  const uint32_t i32 = b.type("vhlo", varint(13));
  const uint32_t index = b.vhlo_tensor({}, i32);
  OpSpec op{"vhlo.return_v1"};
  for (int i = 0; i < depth; ++i) {
    OpSpec outer{"vhlo.case_v1", {0}};
    outer.is_isolated = false;
    BlockSpec block;
    block.ops.push_back(std::move(op));
    if (i > 0) block.ops.push_back({"vhlo.return_v1"});
    outer.regions.push_back({std::move(block)});
    op = std::move(outer);
  }
  return b.finish(b.module_with_main(BlockSpec{{index}, {std::move(op), {"vhlo.return_v1"}}}, {}));
}

TEST(Malformed, DeepRegions) {
  const Status deep = process_exact(nested_file(ir::kMaxRegionDepth - 2));
  EXPECT_TRUE(deep.ok()) << deep.to_string();
  expect_refused(nested_file(ir::kMaxRegionDepth + 10), "nested deeper");
}

TEST(Malformed, NumbersOutOfRange) {
  expect_refused(attribute_file([](auto&) { return 1000u; }), "no attribute 1000");
  expect_refused(
      attribute_file([](auto& b) { return b.attribute("vhlo", varint(17) + varint(1000)); }),
      "no type 1000");
  expect_refused(
      attribute_file([](auto& b) { return b.attribute("vhlo", varint(14) + varint(1000)); }),
      "no string 1000");
  expect_refused(
      attribute_file([](auto& b) { return b.attribute("vhlo", varint(11) + varint(3)); }),
      "no value of PrecisionV1");
  expect_refused(
      attribute_file([](auto& b) { return b.attribute("vhlo", varint(13) + varint(0)); }),
      "no value of RngDistributionV1");
  expect_refused(attribute_file([](auto& b) { return b.attribute("vhlo", varint(99)); }),
                 "no vhlo attribute 99");
  expect_refused(attribute_file([](auto& b) { return b.attribute("vhlo", varint(2) + varint(2)); }),
                 "bool");
  expect_refused(
      attribute_file([](auto& b) { return b.attribute("vhlo", varint(1) + varint(1 << 30)); }),
      "cannot fit");
  expect_refused(file_with([](BytecodeBuilder&) {
                   return OpSpec{"vhlo.after_all_v1", {7}, {}};
                 }),
                 "refers to value 7");
}

TEST(Malformed, BytesLeftOver) {
  expect_refused(
      attribute_file([](auto& b) { return b.attribute("vhlo", varint(2) + varint(1) + "x"); }),
      "left over");
  expect_refused(file_with([](BytecodeBuilder& b) {
                   OpSpec op{"vhlo.iota_v1", {}, {b.vhlo_tensor({2}, b.vhlo_f32())}};
                   const uint32_t i64 = b.type("vhlo", varint(14));
                   const uint32_t zero = b.attribute("vhlo", varint(9) + varint(i64) + svarint(0));
                   op.properties = {{"iota_dimension", zero}, {"another", zero}};
                   return op;
                 }),
                 "left over");
}

TEST(Malformed, PropertiesOfTheWrongKind) {
  const auto iota = [](std::string payload) {
    return file_with([&](BytecodeBuilder& b) {
      OpSpec op{"vhlo.iota_v1", {}, {b.vhlo_tensor({2}, b.vhlo_f32())}};
      op.properties = {{"iota_dimension", b.attribute("vhlo", payload)}};
      return op;
    });
  };
  expect_refused(iota(varint(2) + varint(1)), "iota");
  expect_refused(iota(varint(1) + varint(0)), "iota");
  expect_refused(file_with([](BytecodeBuilder& b) {
                   return OpSpec{"vhlo.iota_v1", {}, {b.vhlo_tensor({2}, b.vhlo_f32())}};
                 }),
                 "iota");
  expect_refused(file_with([](BytecodeBuilder& b) {
                   OpSpec op{"vhlo.constant_v1", {}, {b.vhlo_tensor({}, b.vhlo_f32())}};
                   op.properties = {{"value", b.vhlo_string("1.0")}};
                   return op;
                 }),
                 "tensor");
}

// Small files whose parts are shared so often that a careless reader's copies explode.
TEST(Malformed, SharingDoesNotMultiplyWork) {
  const std::string long_name(50000, 'x');
  {  // One long string in many attributes.
    BytecodeBuilder b;
    OpSpec op{"vhlo.create_token_v1", {}, {b.type("vhlo", varint(22))}};
    const uint32_t text = b.string(long_name);
    std::vector<uint32_t> all;
    for (int i = 0; i < 5000; ++i) all.push_back(b.attribute("vhlo", varint(14) + varint(text)));
    op.attributes = {{"a", b.attribute("vhlo", varint(1) + refs(all))}};
    expect_refused(b.finish(b.module_with_main(BlockSpec{{}, {op}}, {})), "too much room");
  }
  {  // One large dictionary on many operations.
    BytecodeBuilder b;
    OpSpec op{"vhlo.create_token_v1", {}, {b.type("vhlo", varint(22))}};
    const uint32_t unit = b.attribute("builtin", varint(7));
    for (int i = 0; i < 400; ++i) op.attributes.emplace_back("k" + std::to_string(i), unit);
    BlockSpec block;
    block.ops.assign(2000, op);
    expect_refused(b.finish(b.module_with_main(std::move(block), {})), "too much room");
  }
}

TEST(Malformed, QuantizedTypesOfWideStorage) {
  expect_refused(attribute_file([](auto& b) {
                   const uint32_t ui64 = b.type("vhlo", varint(19));
                   const uint32_t quantized =
                       b.type("vhlo", varint(24) + varint(0) + varint(ui64) + varint(b.vhlo_f32()) +
                                          svarint(0) + svarint(0) + svarint(0) + svarint(255));
                   return b.attribute("vhlo", varint(17) + varint(quantized));
                 }),
                 "at most 32 bits");
}

TEST(Malformed, LongNames) {
  BytecodeBuilder b;
  OpSpec op{"vhlo." + std::string(300, 'x')};
  expect_refused(b.finish(b.module_with_main(BlockSpec{{}, {op}}, {})), "name of 300 bytes");
}

class Damaged : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    bytes_ = testing::read_artifact(std::string(GetParam()) + ".mlirbc");
    ASSERT_FALSE(bytes_.empty());
  }
  std::string bytes_;
};

TEST_P(Damaged, EveryPrefixIsRefused) {
  for (size_t size = 0; size < bytes_.size(); ++size) {
    const Status status = process_exact(std::string_view(bytes_).substr(0, size));
    ASSERT_FALSE(status.ok()) << "the first " << size << " bytes were accepted";
    ASSERT_FALSE(status.message().empty());
  }
}

TEST_P(Damaged, EveryByteMayBeAnother) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    for (int mask : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
      std::string damaged = bytes_;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      const Status status = process_exact(damaged);
      ASSERT_TRUE(status.ok() || !status.message().empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Artifacts, Damaged,
                         ::testing::Values("resource_constant", "foreign_attributes",
                                           "sdy_small_floats", "rare_ops", "sort_pairs.v0.9.0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace hekla::stablehlo
