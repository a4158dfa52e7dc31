// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/matrix_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backends/vulkan/codegen/matrix_product.h"
#include "backends/vulkan/codegen/testing/product_cases.h"
#include "backends/vulkan/codegen/testing/sums_kernel.h"
#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan {
namespace {

using codegen::MatrixLayout;
using kernel::Contraction;

Target a_target() {
  Target t;
  t.device = "a GPU";
  t.int64 = t.storage_8 = t.storage_16 = true;
  t.matrix_shapes = {{DType::kBF16, DType::kF32, 16, 16, 16},
                     {DType::kI8, DType::kI32, 16, 16, 32}};
  t.matrix_subgroup_size = 32;
  t.max_workgroup_invocations = t.max_workgroup_size_x = 1024;
  t.max_shared_memory_bytes = 48 << 10;
  return t;
}

Contraction product(DType operands, int64_t rows, int64_t columns, int64_t depth) {
  Contraction c;
  c.lhs_dtype = c.rhs_dtype = operands;
  c.out_dtype = is_float(operands) ? DType::kF32 : DType::kI32;
  c.rows = {{rows, depth, 0, columns}};
  c.columns = {{columns, 0, 1, 1}};
  c.depth = {{depth, 1, columns, 0}};
  c.lhs_elements = rows * depth;
  c.rhs_elements = depth * columns;
  c.out_elements = rows * columns;
  return c;
}

MatrixLayout layout(const Contraction& c, const Target& target = a_target()) {
  auto result = codegen::matrix_layout(c, target);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

TEST(MatrixLayoutTest, LargeProductsTakeLargeTilesAndSmallOnesSmall) {
  const MatrixTile large = layout(product(DType::kBF16, 4096, 4096, 4096)).tile;
  const MatrixTile small = layout(product(DType::kBF16, 128, 128, 4096)).tile;
  EXPECT_EQ(large.rows * large.columns, 128u * 128u);
  EXPECT_LT(small.rows * small.columns, 64u * 64u + 1);
}

TEST(MatrixLayoutTest, ThinProductsTakeThinTiles) {
  for (const bool has_few_rows : {false, true}) {
    const MatrixTile tile = layout(has_few_rows ? product(DType::kBF16, 16, 65536, 4096)
                                                : product(DType::kBF16, 65536, 16, 4096))
                                .tile;
    EXPECT_EQ(has_few_rows ? tile.rows : tile.columns, 32u);
    EXPECT_EQ(has_few_rows ? tile.columns : tile.rows, 128u);
  }
}

TEST(MatrixLayoutTest, UnitsGoAlongWhatIsContiguousInMemory) {
  Contraction c = product(DType::kBF16, 256, 256, 256);
  MatrixLayout l = layout(c);
  EXPECT_TRUE(l.lhs.is_vector && l.lhs.along_depth);
  EXPECT_TRUE(l.rhs.is_vector && !l.rhs.along_depth);
  EXPECT_EQ(l.store_elements, 4u);
  EXPECT_EQ(l.lhs.pitch % 2, 1u);
  c.rows[0].lhs = 1;
  c.depth[0].lhs = 256;
  l = layout(c);
  EXPECT_TRUE(l.lhs.is_vector && !l.lhs.along_depth);
}

TEST(MatrixLayoutTest, OddSizesGoElementByElement) {
  const MatrixLayout l = layout(product(DType::kBF16, 256, 255, 254));
  EXPECT_FALSE(l.lhs.is_vector);
  EXPECT_FALSE(l.rhs.is_vector);
  EXPECT_EQ(l.store_elements, 1u);
}

TEST(MatrixLayoutTest, AxesThatFollowEachOtherAreOne) {
  Contraction c = product(DType::kBF16, 64, 64, 64);
  c.rows = {{4, 1024, 0, 1024}, {1, 7, 0, 7}, {16, 64, 0, 64}};
  const MatrixLayout l = layout(c);
  ASSERT_EQ(l.rows.size(), 1u);
  EXPECT_EQ(l.rows[0].size, 64);
}

TEST(MatrixLayoutTest, EveryTileOfTheTableFitsTheDevice) {
  Target small = a_target();
  small.max_shared_memory_bytes = 16 << 10;
  small.max_workgroup_invocations = 128;
  for (const Target& target : {a_target(), small}) {
    for (const MatrixShape& shape : target.matrix_shapes) {
      for (const MatrixTile& tile : codegen::matrix_tiles(shape, target)) {
        EXPECT_EQ(codegen::why_no_matrix_tile(tile, shape, target), "");
        Target forced = target;
        forced.matrix_tile = tile;
        const MatrixLayout l = layout(product(shape.operands, 100, 100, 100), forced);
        EXPECT_LE(l.shared_units * l.unit_words * 4, target.max_shared_memory_bytes);
        EXPECT_EQ(l.tile, tile);
      }
    }
  }
}

// A device that lists matrices and has no room for the smallest tile of them has none.
TEST(MatrixLayoutTest, ShapesWithoutATileAreLeftOut) {
  DeviceSnapshot snapshot;
  snapshot.features.cooperative_matrix = snapshot.features.vulkan_memory_model = true;
  snapshot.features.subgroup_size_control = snapshot.features.compute_full_subgroups = true;
  snapshot.features.i64 = snapshot.features.f16 = snapshot.features.storage_16 = true;
  snapshot.cooperative_matrices = {{16, 16, 16, "f16", "f16", "f32", "f32", false}};
  snapshot.subgroup.size = snapshot.subgroup.min_size = snapshot.subgroup.max_size = 32;
  snapshot.limits.max_workgroup_invocations = snapshot.limits.max_workgroup_size[0] = 128;
  snapshot.limits.max_shared_memory_bytes = 16 << 10;
  EXPECT_EQ(make_target(snapshot).matrix_shapes.size(), 1u);
  snapshot.limits.max_shared_memory_bytes = 512;
  EXPECT_TRUE(make_target(snapshot).matrix_shapes.empty());
  Target forced = a_target();
  forced.max_shared_memory_bytes = 512;
  const auto none = codegen::matrix_layout(product(DType::kBF16, 64, 64, 64), forced);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("bytes of shared memory, more than 512"),
            std::string::npos);
}

// bf16 may be a type of shaders without being one of matrices.
TEST(MatrixLayoutTest, MatricesOfBf16NeedTheirFeature) {
  DeviceSnapshot snapshot;
  snapshot.features.cooperative_matrix = snapshot.features.vulkan_memory_model = true;
  snapshot.features.subgroup_size_control = snapshot.features.compute_full_subgroups = true;
  snapshot.features.i64 = snapshot.features.bf16 = snapshot.features.storage_16 = true;
  snapshot.cooperative_matrices = {{16, 16, 16, "bf16", "bf16", "f32", "f32", false}};
  snapshot.subgroup.size = snapshot.subgroup.min_size = snapshot.subgroup.max_size = 32;
  snapshot.limits.max_workgroup_invocations = snapshot.limits.max_workgroup_size[0] = 256;
  snapshot.limits.max_shared_memory_bytes = 32 << 10;
  EXPECT_TRUE(make_target(snapshot).matrix_shapes.empty());
  snapshot.features.bf16_cooperative_matrix = true;
  EXPECT_EQ(make_target(snapshot).matrix_shapes.size(), 1u);
}

// Intel's matrix instructions are as wide as a matrix, and it lists wider subgroups too.
TEST(MatrixLayoutTest, SubgroupsAreThoseOfTheMatrixInstructions) {
  DeviceSnapshot snapshot;
  snapshot.features.cooperative_matrix = snapshot.features.vulkan_memory_model = true;
  snapshot.features.subgroup_size_control = snapshot.features.compute_full_subgroups = true;
  snapshot.features.i64 = snapshot.features.f16 = snapshot.features.storage_16 = true;
  snapshot.limits.max_workgroup_invocations = snapshot.limits.max_workgroup_size[0] = 1024;
  snapshot.limits.max_shared_memory_bytes = 64 << 10;
  snapshot.subgroup.min_size = 8;
  snapshot.subgroup.max_size = 32;
  snapshot.cooperative_matrices = {{8, 8, 16, "f16", "f16", "f32", "f32", false}};
  EXPECT_EQ(make_target(snapshot).matrix_subgroup_size, 32u);
  snapshot.vendor_id = 0x8086;
  EXPECT_EQ(make_target(snapshot).matrix_subgroup_size, 8u);
  snapshot.cooperative_matrices = {{8, 16, 16, "f16", "f16", "f32", "f32", false}};
  EXPECT_EQ(make_target(snapshot).matrix_subgroup_size, 16u);
}

TEST(MatrixLayoutTest, RefusalsAreInWords) {
  const auto no_type = codegen::matrix_layout(product(DType::kF16, 64, 64, 64), a_target());
  ASSERT_FALSE(no_type.ok());
  EXPECT_NE(no_type.status().message().find("has no matrix units"), std::string::npos);
  Target forced = a_target();
  forced.matrix_tile = {128, 128, 24, 64, 64, 2};
  const auto no_tile = codegen::matrix_layout(product(DType::kBF16, 64, 64, 64), forced);
  ASSERT_FALSE(no_tile.ok());
  EXPECT_NE(no_tile.status().message().find("128 x 128 x 24"), std::string::npos);
}

TEST(MatrixProductTest, TheModuleSaysWhatItNeeds) {
  const auto shader = generate_product(product(DType::kBF16, 64, 64, 64), a_target());
  ASSERT_TRUE(shader.ok()) << shader.status().message();
  EXPECT_EQ(shader->subgroup_size, 32u);
  for (const char* feature :
       {"cooperativeMatrix", "shaderBFloat16CooperativeMatrix", "vulkanMemoryModel"}) {
    EXPECT_EQ(
        std::count(shader->required_features.begin(), shader->required_features.end(), feature), 1)
        << feature;
  }
}

// Sums of products in kernels of teams: with the subgroups of matrices, or refused in words.
TEST(SumsTest, TheModuleSaysWhatItNeeds) {
  Target target = a_target();
  target.matrix_shapes = {{DType::kBF16, DType::kF32, 16, 16, 16}};
  target.subgroup_size = 64;
  testing::SumsCase c = testing::sums_cases(target.matrix_shapes[0])[1];
  const auto shader = generate(testing::sums_kernel(c, 32, 1).kernel, target);
  ASSERT_TRUE(shader.ok()) << shader.status().message();
  EXPECT_EQ(shader->subgroup_size, 32u);
  EXPECT_EQ(shader->workgroup_size, 32 * c.subgroups);
  EXPECT_EQ(shader->group_count, c.teams);
  for (const char* feature :
       {"cooperativeMatrix", "shaderBFloat16CooperativeMatrix", "vulkanMemoryModel"}) {
    EXPECT_EQ(
        std::count(shader->required_features.begin(), shader->required_features.end(), feature), 1)
        << feature;
  }
  c.dtype = DType::kF16;
  const auto no_type = generate(testing::sums_kernel(c, 32, 1).kernel, target);
  ASSERT_FALSE(no_type.ok());
  EXPECT_NE(no_type.status().message().find("no matrix units for sums of f16"), std::string::npos);
  c.dtype = DType::kBF16;
  const auto no_points = generate(testing::sums_kernel(c, 16, 1).kernel, target);
  ASSERT_FALSE(no_points.ok());
  EXPECT_NE(no_points.status().message().find("are none of 16 x 16 x 16 matrices"),
            std::string::npos);
}

// Modules for a validator that knows their extensions, which Debian 12's does not: written where
// HEKLA_KEPT_MODULES says, of every shape that a recorded device has, every form and every tile.
TEST(MatrixProductTest, ModulesAreKeptForAValidator) {
  const char* folder = std::getenv("HEKLA_KEPT_MODULES");
  if (folder == nullptr) GTEST_SKIP() << "HEKLA_KEPT_MODULES names no folder";
  std::filesystem::create_directories(folder);
  Target target = a_target();
  int number = 0;
  const MatrixShape shapes[] = {
      {DType::kBF16, DType::kF32, 16, 16, 16}, {DType::kF16, DType::kF32, 16, 16, 16},
      {DType::kF16, DType::kF32, 8, 8, 8},     {DType::kI8, DType::kI32, 16, 16, 32},
      {DType::kUI8, DType::kUI32, 8, 8, 8},    {DType::kUI8, DType::kI32, 16, 16, 16}};
  for (const MatrixShape& shape : shapes) {
    target.matrix_shapes = {shape};
    target.matrix_subgroup_size = shape.rows == 8 ? 8 : 32;
    const auto keep_shader = [&](const Result<Shader>& shader) {
      ASSERT_TRUE(shader.ok()) << shader.status().message();
      std::ofstream file(std::filesystem::path(folder) / fmt::format("{:03}.spv", number++),
                         std::ios::binary);
      file.write(reinterpret_cast<const char*>(shader->words.data()),
                 static_cast<std::streamsize>(shader->words.size() * sizeof(uint32_t)));
      ASSERT_TRUE(file.good());
    };
    const auto keep = [&](const Contraction& c) { keep_shader(generate_product(c, target)); };
    target.matrix_tile = {};
    for (const testing::ProductCase& c : testing::product_cases(shape.operands)) {
      keep(c.contraction);
    }
    target.max_narrow_bytes = 0;
    keep(product(shape.operands, 100, 100, 100));
    target.max_narrow_bytes = a_target().max_narrow_bytes;
    for (const MatrixTile& tile : codegen::matrix_tiles(shape, target)) {
      target.matrix_tile = tile;
      keep(product(shape.operands, 256, 256, 256));
    }
    if (!is_float(shape.operands)) continue;
    for (const testing::SumsCase& c : testing::sums_cases(shape)) {
      keep_shader(generate(testing::sums_kernel(c, target.matrix_subgroup_size, 1).kernel, target));
    }
  }
}

}  // namespace
}  // namespace hekla::vulkan
