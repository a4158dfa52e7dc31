// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/partition.h"

#include <gtest/gtest.h>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/partitioners.h"
#include "backends/pjrt/serialized_program.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::pjrt {
namespace {

using sharding::HloSharding;

Result<PartitionedProgram> partitioned(const std::string& text, int64_t partitions = 2,
                                       bool use_spmd = true) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, stablehlo::read_program(text));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  CompileOptions options;
  options.partition_count = partitions;
  options.use_spmd_partitioning = use_spmd;
  return partition(std::move(module), options);
}

// A function of one argument and one result, with what stands behind each and in between.
std::string program(const std::string& argument, const std::string& result,
                    const std::string& body = "%r = stablehlo.negate %a : tensor<8x4xf32>") {
  return R"(module @test {
  sdy.mesh @mesh = <["x"=2, "y"=1]>
  sdy.mesh @one = <[], device_ids=[0]>
  func.func public @main(%a: tensor<8x4xf32> )" +
         argument + ") -> (tensor<8x4xf32> " + result + ") {\n    " + body +
         "\n    return %r : tensor<8x4xf32>\n  }\n}";
}
std::string sdy(const std::string& sharding) {
  return "{sdy.sharding = #sdy.sharding<" + sharding + ">}";
}

TEST(Partition, WhatIsReplicatedRunsAsItIs) {
  const std::string shardings[] = {
      "",
      sdy("@mesh, [{}, {}]"),
      sdy("@mesh, [{?}, {?}]"),
      sdy(R"(@mesh, [{"y"}, {}], replicated={"x"})"),
      R"({mhlo.sharding = "{replicated}"})",
      R"({mhlo.sharding = "{devices=[1,1,2]<=[2] last_tile_dim_replicate}"})"};
  for (const std::string& argument : shardings) {
    for (const std::string& result : shardings) {
      const auto made = partitioned(program(argument, result));
      ASSERT_TRUE(made.ok()) << argument << result << made.status().to_string();
      ASSERT_EQ(made->parameters.size(), 1U);
      ASSERT_EQ(made->results.size(), 1U);
      EXPECT_EQ(made->parameters[0].kind, HloSharding::Kind::kReplicated);
      EXPECT_EQ(made->results[0].kind, HloSharding::Kind::kReplicated);
      EXPECT_TRUE(ir::verify(*made->module).ok());
    }
  }
}

TEST(Partition, WhatIsCutHasTheTypesOfItsParts) {
  for (const std::string& cut :
       {sdy(R"(@mesh, [{"x"}, {}])"), std::string(R"({mhlo.sharding = "{devices=[2,1]<=[2]}"})")}) {
    const auto made = partitioned(program(cut, cut));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(made->module->entry()->type.to_string(), "(tensor<4x4xf32>) -> tensor<4x4xf32>");
    EXPECT_FALSE(made->has_collectives);
    EXPECT_EQ(to_text(made->parameters[0]), "{devices=[2,1]<=[2]}");
    EXPECT_EQ(to_text(made->results[0]), "{devices=[2,1]<=[2]}");
    // What is not said, and not left to the compiler either, is replicated.
    const auto whole = partitioned(program(cut, ""));
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    EXPECT_EQ(whole->module->entry()->type.to_string(), "(tensor<4x4xf32>) -> tensor<8x4xf32>");
    EXPECT_TRUE(whole->has_collectives);
    EXPECT_EQ(whole->results[0].kind, HloSharding::Kind::kReplicated);
  }
  const std::string constraint =
      R"(%r = sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : tensor<8x4xf32>)";
  const auto inside = partitioned(program("", "", constraint));
  ASSERT_TRUE(inside.ok()) << inside.status().to_string();
  EXPECT_FALSE(inside->has_collectives);
}

TEST(Partition, WhatNobodyCutsIsRefusedInWords) {
  for (const std::string& cut :
       {sdy("@one, []"), std::string(R"({mhlo.sharding = "{maximal device=0}"})")}) {
    const Status argument = partitioned(program(cut, "")).status();
    EXPECT_EQ(argument.code(), StatusCode::kUnimplemented) << cut;
    EXPECT_NE(argument.message().find("parameter 0 has the sharding"), std::string::npos)
        << argument.message();
    const Status result = partitioned(program("", cut)).status();
    EXPECT_NE(result.message().find("result 0 has the sharding"), std::string::npos) << cut;
    // On one partition nothing is asked for, as ever.
    EXPECT_TRUE(partitioned(program(cut, cut), 1).ok()) << cut;
    // Nor of a program that is one device's already.
    const auto own = partitioned(program(cut, cut), 2, /*use_spmd=*/false);
    ASSERT_TRUE(own.ok()) << cut;
    EXPECT_EQ(own->parameters[0].kind, HloSharding::Kind::kManual);
    EXPECT_EQ(own->results[0].kind, HloSharding::Kind::kManual);
  }
}

TEST(Partition, MalformedShardingsAreSaidToBe) {
  for (const std::string& wrong :
       {sdy("@nowhere, [{}, {}]"), sdy(R"(@mesh, [{"z"}, {}])"), sdy("@mesh, [{}]"),
        std::string(R"({mhlo.sharding = "{devices=[2,"})")}) {
    EXPECT_EQ(partitioned(program(wrong, "")).status().code(), StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(Partition, ManualComputationsMayKnowTheirPartition) {
  const auto body = [](const std::string& in, const std::string& out, const std::string& local) {
    return "%r = sdy.manual_computation(%a) in_shardings=[<@mesh, [" + in +
           "]>] out_shardings=[<@mesh, [" + out + "]>] manual_axes={\"x\"} (%b: tensor<" + local +
           "xf32>) {\n"
           "      %p = stablehlo.partition_id : tensor<ui32>\n"
           "      %f = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>\n"
           "      %c = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<" +
           local +
           "xf32>\n"
           "      %d = stablehlo.add %b, %c : tensor<" +
           local + "xf32>\n      sdy.return %d : tensor<" + local +
           "xf32>\n    } : (tensor<8x4xf32>) -> tensor<8x4xf32>";
  };
  const auto whole = partitioned(program("", "", body("{}, {}", "{}, {}", "8x4")));
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  // One device has meshes of one device.
  for (const ir::Mesh& mesh : whole->module->meshes) {
    EXPECT_EQ(sharding::device_count(mesh.value), 1) << mesh.name;
  }
  EXPECT_TRUE(ir::verify(*whole->module).ok());
  const auto cut = partitioned(program("", "", body(R"({"x"}, {})", R"({"x"}, {})", "4x4")));
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  EXPECT_TRUE(cut->has_collectives);  // its result is asked for whole
}

TEST(Partition, APartitionsNumberMeansNothingInAWholeProgram) {
  const std::string text = R"(module @test {
  func.func public @main() -> tensor<ui32> {
    %p = func.call @inner() : () -> tensor<ui32>
    return %p : tensor<ui32>
  }
  func.func private @inner() -> tensor<ui32> {
    %p = stablehlo.partition_id : tensor<ui32>
    return %p : tensor<ui32>
  }
})";
  const Status status = partitioned(text).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("use_spmd_partitioning off"), std::string::npos);
  EXPECT_TRUE(partitioned(text, 1).ok());
  EXPECT_TRUE(partitioned(text, 2, /*use_spmd=*/false).ok());
}

TEST(Partition, TuplesHaveAShardingForEachElement) {
  const auto text = [](const std::string& sharding) {
    return R"(module @test {
  func.func public @main(%a: tuple<tensor<4xf32>, tensor<2xi32>> {mhlo.sharding = ")" +
           sharding + R"("}) -> tensor<4xf32> {
    %0 = stablehlo.get_tuple_element %a[0] : (tuple<tensor<4xf32>, tensor<2xi32>>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";
  };
  const auto made = partitioned(text("{{replicated}, {replicated}}"));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->parameters.size(), 2U);
  EXPECT_TRUE(partitioned(text("{replicated}")).ok());
  EXPECT_EQ(partitioned(text("{{replicated}, {devices=[2]<=[2]}}")).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(partitioned(text("{{replicated}, {replicated}, {replicated}}")).status().code(),
            StatusCode::kInvalidArgument);
}

// A transfer's sharding is JAX's in both of its forms: one partition calls for all.
TEST(Partition, OnePartitionMeetsTheHostAndTellsTheOthers) {
  const auto text = [](const std::string& sent, const std::string& received) {
    return program("", "",
                   R"(%t = stablehlo.create_token : !stablehlo.token
    %u = "stablehlo.send"(%a, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true)" +
                       sent + R"(} : (tensor<8x4xf32>, !stablehlo.token) -> !stablehlo.token
    %v:2 = "stablehlo.recv"(%u) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true)" +
                       received + R"(} : (!stablehlo.token) -> (tensor<8x4xf32>, !stablehlo.token)
    %r = stablehlo.negate %v#0 : tensor<8x4xf32>)");
  };
  const auto count = [](const ir::Module& module, ir::OpCode code) {
    int found = 0;
    ir::walk(module.entry()->body(), [&](const ir::Operation& op) { found += op.code() == code; });
    return found;
  };
  const std::string hlo = R"(, mhlo.sharding = "{maximal device=0}")";
  const std::string sdy = ", sdy.sharding = #sdy.sharding_per_value<[<@one, []>";
  for (const auto& [sent, received] :
       {std::pair(hlo, hlo), std::pair(sdy + "]>", sdy + ", <@one, []>]>")}) {
    const auto made = partitioned(text(sent, received));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_TRUE(ir::verify(*made->module).ok());
    EXPECT_TRUE(made->has_collectives);
    EXPECT_EQ(count(*made->module, ir::OpCode::kCollectiveBroadcast), 1);
    EXPECT_EQ(made->host_channels.sends, std::vector<int64_t>{1});
    EXPECT_EQ(made->host_channels.receives, std::vector<int64_t>{2});
    // Of one partition nothing is to be told.
    EXPECT_FALSE(partitioned(text(sent, received), 1)->has_collectives);
  }
  const auto each = partitioned(text("", ""));
  ASSERT_TRUE(each.ok()) << each.status().to_string();
  EXPECT_FALSE(each->has_collectives);
  const std::string absent = R"(, mhlo.sharding = "{maximal device=2}")";
  EXPECT_EQ(partitioned(text(absent, absent)).status().code(), StatusCode::kInvalidArgument);
}

// GSPMD's form of a region that has no operands: an end alone.
TEST(Partition, RegionsWithoutOperandsMayKnowTheirPartition) {
  const auto made = partitioned(R"(module {
  func.func public @main() -> (tensor<2xui32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
    %p = stablehlo.partition_id : tensor<ui32>
    %s = stablehlo.reshape %p : (tensor<ui32>) -> tensor<1xui32>
    %m = stablehlo.custom_call @Sharding(%s) {mhlo.sharding = "{manual}"} : (tensor<1xui32>) -> tensor<1xui32>
    %r = stablehlo.custom_call @SPMDShardToFullShape(%m) {mhlo.sharding = "{devices=[2]<=[2]}"} : (tensor<1xui32>) -> tensor<2xui32>
    return %r : tensor<2xui32>
  }
})");
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->module->entry()->type.to_string(), "() -> tensor<1xui32>");
}

// The array outside is a sum of what partitions hold, each of which has its addend inside.
TEST(Partition, AddendsEnterAndLeaveRegionsAsTheyAre) {
  for (const std::string& addends :
       {std::string("{unreduced}"),
        std::string("{devices=[1,1,2]<=[2] last_tile_dims={unreduced}}")}) {
    const auto made = partitioned(R"(module {
  func.func public @main(%a: tensor<8x4xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> (tensor<4x4xf32> {mhlo.sharding = "{replicated}"}) {
    %d = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %u = stablehlo.custom_call @Sharding(%d) {mhlo.sharding = ")" +
                                  addends + R"("} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %i = stablehlo.custom_call @SPMDFullToShardShape(%u) {mhlo.sharding = "{manual}"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %n = stablehlo.negate %i : tensor<4x4xf32>
    %m = stablehlo.custom_call @Sharding(%n) {mhlo.sharding = "{manual}"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %o = stablehlo.custom_call @SPMDShardToFullShape(%m) {mhlo.sharding = ")" +
                                  addends + R"("} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %r = stablehlo.custom_call @Sharding(%o) {mhlo.sharding = "{replicated}"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %r : tensor<4x4xf32>
  }
})");
    ASSERT_TRUE(made.ok()) << addends << made.status().to_string();
    // One sum, behind what happens inside.
    std::vector<ir::OpCode> codes;
    ir::walk(made->module->entry()->body(), [&](const ir::Operation& op) {
      if (op.code() == ir::OpCode::kNegate || ir::is_collective(op.code())) {
        codes.push_back(op.code());
      }
    });
    EXPECT_EQ(codes, (std::vector{ir::OpCode::kNegate, ir::OpCode::kAllReduce})) << addends;
  }
}

// Gradients of several passes: the program says that their addends stay apart until the loop ends.
TEST(Partition, AddendsThatALoopCarriesAreSummedBehindIt) {
  const auto made = partitioned(R"(module {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>
    %begin = sdy.sharding_constraint %zero <@mesh, [{}, {}], unreduced={"x"}> : tensor<4x4xf32>
    %i0 = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %l:2 = stablehlo.while(%i = %i0, %sum = %begin) : tensor<i32>, tensor<4x4xf32>
     cond {
      %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %s = stablehlo.cosine %a : tensor<8x4xf32>
      %d = stablehlo.dot_general %s, %a, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
      %u = sdy.sharding_constraint %d <@mesh, [{}, {}], unreduced={"x"}> : tensor<4x4xf32>
      %t = stablehlo.transpose %u, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %v = sdy.sharding_constraint %t <@mesh, [{}, {}], unreduced={"x"}> : tensor<4x4xf32>
      %n = stablehlo.add %sum, %v : tensor<4x4xf32>
      %w = sdy.sharding_constraint %n <@mesh, [{}, {}], unreduced={"x"}> : tensor<4x4xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4x4xf32>
    }
    %r = sdy.sharding_constraint %l#1 <@mesh, [{}, {}]> : tensor<4x4xf32>
    return %r : tensor<4x4xf32>
  }
})",
                                4);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  int sums = 0;
  ir::walk(made->module->entry()->body(), [&](const ir::Operation& op) {
    if (!ir::is_collective(op.code())) return;
    EXPECT_EQ(op.code(), ir::OpCode::kAllReduce);
    EXPECT_EQ(op.block(), &made->module->entry()->body().front());
    ++sums;
  });
  EXPECT_EQ(sums, 1);
}

// What a client that partitions a call itself answers.
struct Partitioner {
  std::string module;
  std::string operand, result;  // shardings, as text
  std::string error;
  std::string config, shape, proposal, result_proposal;  // what it was asked
  std::string wanted, revised;  // by users, and what it makes of that, if anything
  bool says_operands = true;
  int asked = 0, cleaned = 0, destroyed = 0;
  JAX_CustomCallPartitioner_string operand_bytes = {};
  std::string operand_text, result_text;

  static Partitioner& of(JAX_CustomCallPartitioner_Callbacks* functions) {
    return *static_cast<Partitioner*>(functions->private_data);
  }
  static void destroy(JAX_CustomCallPartitioner_Callbacks* functions) { ++of(functions).destroyed; }
  template <typename Args>
  void answer(Args& args) {
    ++asked;
    config.assign(args.backend_config.data, args.backend_config.size);
    args.header.data = this;
    args.header.cleanup_fn = [](void* data) { ++static_cast<Partitioner*>(data)->cleaned; };
    args.header.has_error = !error.empty();
    args.header.code = PJRT_Error_Code_INTERNAL;
    args.header.error_msg = {error.data(), error.size()};
    result_text = encode_op_sharding(*sharding::parse_hlo_sharding(result));
    args.result_sharding = {result_text.data(), result_text.size()};
  }
  static void partition(JAX_CustomCallPartitioner_Callbacks* functions,
                        JAX_CustomCallPartitioner_Partition_Args* args) {
    Partitioner& self = of(functions);
    self.answer(*args);
    ASSERT_EQ(args->num_args, 1U);
    self.shape.assign(args->op_args[0].shape.data, args->op_args[0].shape.size);
    self.proposal = to_text(*sharding::decode_op_sharding(
        std::string_view(args->op_args[0].sharding.data, args->op_args[0].sharding.size)));
    self.result_proposal = to_text(*sharding::decode_op_sharding(
        std::string_view(args->op_result.sharding.data, args->op_result.sharding.size)));
    self.operand_text = encode_op_sharding(*sharding::parse_hlo_sharding(self.operand));
    self.operand_bytes = {self.operand_text.data(), self.operand_text.size()};
    args->args_sharding = self.says_operands ? &self.operand_bytes : nullptr;
    args->mlir_module = {self.module.data(), self.module.size()};
  }
  static void infer(JAX_CustomCallPartitioner_Callbacks* functions,
                    JAX_CustomCallPartitioner_InferShardingFromOperands_Args* args) {
    of(functions).answer(*args);
    args->has_result_sharding = true;
  }
  static void revise(JAX_CustomCallPartitioner_Callbacks* functions,
                     JAX_CustomCallPartitioner_PropagateUserSharding_Args* args) {
    Partitioner& self = of(functions);
    self.wanted = to_text(*sharding::decode_op_sharding(
        std::string_view(args->result_sharding.data, args->result_sharding.size)));
    self.answer(*args);
    self.result_text = encode_op_sharding(*sharding::parse_hlo_sharding(self.revised));
    args->result_sharding = {self.result_text.data(), self.result_text.size()};
  }
  JAX_CustomCallPartitioner_Callbacks functions() {
    return {0, this, destroy, partition, infer, revised.empty() ? nullptr : revise, true};
  }
};

bool add_partitioner(JAX_CustomCallPartitioner_Callbacks& functions) {
  const auto* node =
      reinterpret_cast<const PJRT_Custom_Partitioner_Extension*>(partitioner_extension());
  const std::string name = "CustomSPMDPartitioning";
  PJRT_Register_Custom_Partitioner_Args args = {sizeof(args), name.data(), name.size(), &functions};
  PJRT_Error* error = node->register_custom_partitioner(&args);
  PJRT_Api api{};
  add_error_and_event_slots(api);
  PJRT_Error_Destroy_Args destroy = {sizeof(destroy), nullptr, error};
  api.PJRT_Error_Destroy(&destroy);
  return error == nullptr;
}

TEST(Partition, WhatClientsPartitionThemselvesTheyAreAskedFor) {
  const std::string call =
      R"(%r = stablehlo.custom_call @CustomSPMDPartitioning(%a) {backend_config = "17"} : (tensor<8x4xf32>) -> tensor<8x4xf32>)";
  const std::string rows = sdy(R"(@mesh, [{"x"}, {}])");
  // Never taken for the identity, which is what its name says nothing of.
  EXPECT_EQ(partitioned(program(rows, rows, call)).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(partitioned(program("", "", call)).status().code(), StatusCode::kUnimplemented);

  Partitioner client;
  client.operand = client.result = "{devices=[2,1]<=[2]}";
  const std::string body =
      R"((%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %r = func.call @twice(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %r : tensor<4x4xf32>
  }
  func.func private @twice(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %r = stablehlo.add %a, %a : tensor<4x4xf32>
    return %r : tensor<4x4xf32>
  }
})";
  client.module = "module {\n  func.func public @main" + body;
  JAX_CustomCallPartitioner_Callbacks functions = client.functions();
  ASSERT_TRUE(add_partitioner(functions));
  const auto made = partitioned(program(rows, rows, call));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_TRUE(made->has_custom_partitions);
  EXPECT_FALSE(made->has_collectives);
  EXPECT_EQ(client.config, "17");
  EXPECT_EQ(client.proposal, "{devices=[2,1]<=[2]}");
  EXPECT_EQ(client.result_proposal, "{devices=[2,1]<=[2]}");
  // f32[8,4], row-major: field 2: 11, field 3: 8, 4, field 5: a layout of 1, 0.
  EXPECT_EQ(client.shape, std::string("\x10\x0b\x1a\x02\x08\x04\x2a\x04\x0a\x02\x01\x00", 12));
  int additions = 0;
  ir::walk(made->module->entry()->body(),
           [&](const ir::Operation& op) { additions += op.code() == ir::OpCode::kAdd; });
  EXPECT_EQ(additions, 1);
  // Whatever lies in another way than it wants is moved.
  const auto moved = partitioned(program("", "", call));
  ASSERT_TRUE(moved.ok()) << moved.status().to_string();
  EXPECT_TRUE(moved->has_collectives);
  EXPECT_EQ(moved->module->entry()->type.to_string(), "(tensor<8x4xf32>) -> tensor<8x4xf32>");
  EXPECT_EQ(client.asked, client.cleaned);

  // Its functions are named by what means something in this process alone: what was made with them
  // is loaded without them.
  const std::string options("\x1a\x06\x20\x01\x28\x02\x30\x01", 8);
  ASSERT_EQ(parse_compile_options(options)->partition_count, 2);
  ASSERT_TRUE(parse_compile_options(options)->use_spmd_partitioning);
  const auto compiled = make_program(program(rows, "", call), options);
  ASSERT_TRUE(compiled.ok()) << compiled.status().to_string();
  EXPECT_TRUE((*compiled)->partitioned.has_collectives);
  const std::string bytes = serialize_program(**compiled, "test");
  const int asked = client.asked;
  const auto loaded = deserialize_program(bytes, "test");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(client.asked, asked);
  EXPECT_EQ((*loaded)->fingerprint, (*compiled)->fingerprint);
  EXPECT_TRUE((*loaded)->partitioned.has_collectives);
  EXPECT_EQ((*loaded)->parameter_shardings, (*compiled)->parameter_shardings);
  EXPECT_EQ((*loaded)->result_shardings, (*compiled)->result_shardings);
  EXPECT_EQ((*loaded)->optimized().code, (*compiled)->optimized().code);
  EXPECT_EQ((*loaded)->parameters[0].dims, (Dims{4, 4}));
  EXPECT_EQ(serialize_program(**loaded, "test"), bytes);
  const std::string four("\x1a\x06\x20\x01\x28\x04\x30\x01", 8);
  EXPECT_EQ(deserialize_program(bytes, "test", four).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(deserialize_program(bytes, "other").status().code(), StatusCode::kInvalidArgument);
  for (size_t size = 0; size < bytes.size(); size += 7) {
    EXPECT_FALSE(deserialize_program(bytes.substr(0, size), "test").ok()) << size;
  }

  // Parts of other shapes than its shardings say, shardings that are none, and errors.
  client.operand = "{replicated}";
  EXPECT_EQ(partitioned(program(rows, rows, call)).status().code(), StatusCode::kInvalidArgument);
  client.operand = "{devices=[2,1]<=[2]}";
  client.module = "module {";
  EXPECT_EQ(partitioned(program(rows, rows, call)).status().code(), StatusCode::kInvalidArgument);
  client.error = "by no means";
  const Status refused = partitioned(program(rows, rows, call)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_NE(refused.message().find("by no means"), std::string::npos) << refused.message();
  EXPECT_EQ(client.asked, client.cleaned);

  // A client that says nothing of its operands.
  client.error = "";
  client.says_operands = false;
  const Status silent = partitioned(program(rows, rows, call)).status();
  EXPECT_EQ(silent.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(silent.message().find("shardings of its operands"), std::string::npos)
      << silent.message();

  // One that has a say in how results lie that users want in some way.
  Partitioner other;
  other.operand = other.result = "{devices=[2,1]<=[2]}";
  other.revised = "{replicated}";
  other.module = "module {\n  func.func public @main" + body;
  static JAX_CustomCallPartitioner_Callbacks revising;
  revising = other.functions();
  revising.dtor = nullptr;
  ASSERT_TRUE(add_partitioner(revising));
  const auto revised = partitioned(program("", rows, call));
  ASSERT_TRUE(revised.ok()) << revised.status().to_string();
  EXPECT_EQ(other.wanted, "{devices=[2,1]<=[2]}");
  EXPECT_EQ(other.result_proposal, "{replicated}");
  EXPECT_EQ(other.asked, other.cleaned);
  JAX_CustomCallPartitioner_Callbacks again = client.functions();
  ASSERT_TRUE(add_partitioner(again));
  client.destroyed = 0;

  // A second registration replaces the first.
  Partitioner second;
  static JAX_CustomCallPartitioner_Callbacks last;  // stays registered
  last = second.functions();
  last.dtor = nullptr;
  ASSERT_TRUE(add_partitioner(last));
  EXPECT_EQ(client.destroyed, 1);
  // A compilation under way keeps what it found; it goes with a later registration, on a thread of
  // the client's.
  {
    Partitioner third;
    static JAX_CustomCallPartitioner_Callbacks kept;
    kept = third.functions();
    ASSERT_TRUE(add_partitioner(kept));
    std::shared_ptr<const spmd::CustomPartitioner> in_use =
        find_partitioner("CustomSPMDPartitioning");
    ASSERT_TRUE(add_partitioner(last));
    in_use.reset();
    EXPECT_EQ(third.destroyed, 0);
    ASSERT_TRUE(add_partitioner(last));
    EXPECT_EQ(third.destroyed, 1);
  }
  last.partition = nullptr;
  EXPECT_FALSE(add_partitioner(last));
}

}  // namespace
}  // namespace hekla::pjrt
