// SPDX-License-Identifier: Apache-2.0
// What operations over a dimension that is cut send: the bytes of the pieces that parts lack,
// beside what XLA's partitioner of jaxlib 0.10.2 sends for the same program.
#include <gtest/gtest.h>

#include <string>

#include "backends/compiler/spmd/one_device.h"
#include "backends/compiler/spmd/report.h"
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::spmd {
namespace {

struct Row {
  const char* what;
  const char* arguments;  // types, apart by blanks
  const char* result;     // its type
  const char* body;       // of %a, %b: makes %r
  double bytes;
  double xla;
};

constexpr char kArray[] = "tensor<64x64xf32>";
constexpr char kImages[] = "tensor<8x16x16x8xf32>";
constexpr char kImagesAndKernel[] = "tensor<8x16x16x8xf32> tensor<3x3x8x16xf32>";

#define CONVOLUTION(window, to)                                                                \
  "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], " \
  "window = {" window                                                                          \
  "} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "                          \
  "(tensor<8x16x16x8xf32>, tensor<3x3x8x16xf32>) -> " to
#define POOL                                                                                  \
  "padding = dense<[[0, 0], [0, 1], [0, 1], [0, 0]]> : tensor<4x2xi64>, window_dimensions = " \
  "array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>"

// Mesh x=2, y=4; the dimension of 64, and the first of 16, is cut by y.
const Row kRows[] = {
    {"half", kArray, "tensor<32x64xf32>",
     "%r = stablehlo.slice %a [0:32, 0:64] : (tensor<64x64xf32>) -> tensor<32x64xf32>", 1536, 2560},
    {"every other row", kArray, "tensor<32x64xf32>",
     "%r = stablehlo.slice %a [0:64:2, 0:64] : (tensor<64x64xf32>) -> tensor<32x64xf32>", 0, 0},
    {"one row on", kArray, kArray,
     "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "%r = stablehlo.pad %a, %z, low = [1, 0], high = [-1, 0], interior = [0, 0] : "
     "(tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>",
     192, 192},
    {"round", kArray, kArray,
     "%e = stablehlo.slice %a [63:64, 0:64] : (tensor<64x64xf32>) -> tensor<1x64xf32>\n"
     "%f = stablehlo.slice %a [0:63, 0:64] : (tensor<64x64xf32>) -> tensor<63x64xf32>\n"
     "%r = stablehlo.concatenate %e, %f, dim = 0 : (tensor<1x64xf32>, tensor<63x64xf32>) -> "
     "tensor<64x64xf32>",
     256, 256},
    {"two arrays", "tensor<64x64xf32> tensor<64x64xf32>", "tensor<128x64xf32>",
     "%r = stablehlo.concatenate %a, %b, dim = 0 : (tensor<64x64xf32>, tensor<64x64xf32>) -> "
     "tensor<128x64xf32>",
     6144, 12288},
    {"mirrored", kArray, kArray, "%r = stablehlo.reverse %a, dims = [0] : tensor<64x64xf32>", 4096,
     4096},
    {"running sum", kArray, kArray,
     "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "%r = \"stablehlo.reduce_window\"(%a, %z) ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "%s = stablehlo.add %x, %y : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) {padding = "
     "dense<[[63, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 64, 1>} : "
     "(tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>",
     768, 12288},
    {"sort", kArray, kArray,
     "%r = \"stablehlo.sort\"(%a) ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "%s = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
     "stablehlo.return %s : tensor<i1>\n}) {dimension = 0 : i64} : (tensor<64x64xf32>) -> "
     "tensor<64x64xf32>",
     6144, 6144},
    {"convolution", kImagesAndKernel, "tensor<8x16x16x16xf32>",
     CONVOLUTION("pad = [[1, 1], [1, 1]]", "tensor<8x16x16x16xf32>"), 6144, 6144},
    {"convolution, strides", kImagesAndKernel, "tensor<8x8x8x16xf32>",
     CONVOLUTION("stride = [2, 2], pad = [[0, 1], [0, 1]]", "tensor<8x8x8x16xf32>"), 3072, 3072},
    {"convolution, window with holes", kImagesAndKernel, "tensor<8x16x16x16xf32>",
     CONVOLUTION("pad = [[2, 2], [2, 2]], rhs_dilate = [2, 2]", "tensor<8x16x16x16xf32>"), 12288,
     12288},
    {"convolution, image with holes", kImagesAndKernel, "tensor<8x32x32x16xf32>",
     CONVOLUTION("pad = [[1, 2], [1, 2]], lhs_dilate = [2, 2]", "tensor<8x32x32x16xf32>"), 3072,
     3072},
    // XLA's result is twice too large: it sums over x as well.
    {"kernel's gradient", "tensor<8x16x16x8xf32> tensor<8x16x16x16xf32>", "tensor<3x3x8x16xf32>",
     "%r = stablehlo.convolution(%a, %b) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], "
     "window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : "
     "i64} : (tensor<8x16x16x8xf32>, tensor<8x16x16x16xf32>) -> tensor<3x3x8x16xf32>",
     6144 + 6912, 20352},
    {"pool", kImages, "tensor<8x8x8x8xf32>",
     "%z = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
     "%r = \"stablehlo.reduce_window\"(%a, %z) ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "%s = stablehlo.maximum %x, %y : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) {" POOL
     "} : (tensor<8x16x16x8xf32>, tensor<f32>) -> tensor<8x8x8x8xf32>",
     3072, 3072},
    {"pool's gradient", "tensor<8x16x16x8xf32> tensor<8x8x8x8xf32>", kImages,
     "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
     "%r = \"stablehlo.select_and_scatter\"(%a, %b, %z) ({\n"
     "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "%s = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
     "stablehlo.return %s : tensor<i1>\n}, {\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
     "%s = stablehlo.add %x, %y : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) {" POOL
     "} : (tensor<8x16x16x8xf32>, tensor<8x8x8x8xf32>, tensor<f32>) -> tensor<8x16x16x8xf32>",
     10752, 38208},
};

sharding::HloSharding cut(const std::string& type) {
  // By y, along the first of a matrix and the second of images.
  const bool is_matrix = type.find("x64xf32>") != std::string::npos;
  const bool is_kernel = type.starts_with("tensor<3x3x");
  const auto sharding = sharding::parse_hlo_sharding(
      is_kernel   ? "{replicated}"
      : is_matrix ? "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
                  : "{devices=[1,4,1,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}");
  EXPECT_TRUE(sharding.ok()) << sharding.status().to_string();
  return *sharding;
}

TEST(WindowBytes, PartsGetWhatTheyLack) {
  for (const Row& row : kRows) {
    Layout layout;
    layout.partitions = 8;
    std::string arguments;
    std::string types = row.arguments;
    for (char name = 'a'; !types.empty(); ++name) {
      const std::string type = types.substr(0, types.find(' '));
      types = type.size() < types.size() ? types.substr(type.size() + 1) : "";
      arguments += fmt::format("{}%{}: {}", arguments.empty() ? "" : ", ", name, type);
      layout.parameters.emplace_back(cut(type));
    }
    layout.results.emplace_back(cut(row.result));
    const auto module = stablehlo::read_program(
        fmt::format("func.func public @main({}) -> {} {{\n{}\nreturn %r : {}\n}}", arguments,
                    row.result, row.body, row.result));
    ASSERT_TRUE(module.ok()) << row.what << ": " << module.status().to_string();
    const Status status = to_one_device(**module, layout);
    ASSERT_TRUE(status.ok()) << row.what << ": " << status.to_string();
    const auto report = report_collectives(**module, {1, 8});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->total().bytes, row.bytes) << row.what << "\n" << to_text(*report);
    EXPECT_LE(report->total().bytes, row.xla) << row.what;
  }
}

}  // namespace
}  // namespace hekla::spmd
