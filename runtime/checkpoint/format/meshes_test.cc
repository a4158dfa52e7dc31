// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/meshes.h"

#include <gtest/gtest.h>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/step_index.h"

namespace hekla::checkpoint {
namespace {

std::vector<TensorInfo> tensors_of(const std::vector<std::string>& specs) {
  std::vector<TensorInfo> tensors;
  for (const std::string& spec : specs) {
    tensors.push_back({"t" + std::to_string(1000 + tensors.size()), DType::kI8, {0}, spec});
  }
  return tensors;
}

std::vector<int32_t> numbers(const std::vector<std::string>& specs, std::vector<Mesh>* meshes) {
  std::vector<int32_t> mesh_of;
  find_meshes(tensors_of(specs), meshes, &mesh_of);
  return mesh_of;
}

const Mesh kTwo = {{{{"data", 2}, {"model", 2}}, {0, 2, 1, 3}}, {0, 0, 1, 1}};
const Mesh kOne = {{{{"data", 2}, {"model", 2}}, {}}, {}};

TEST(Meshes, EachIsListedOnce) {
  std::vector<Mesh> meshes;
  EXPECT_EQ(numbers({"mesh=(data:2,model:2) spec=(data,model)", "", "words",
                     "mesh=(data:2,model:2) spec=(data) devices=[0,2,1,3] granules=[0,0,1,1]",
                     "mesh=(data:2,model:2) spec=(model) devices=[0-3]",
                     "mesh=(data:2,model:2) spec=() devices=[0,2,1,3] granules=[0*2,1*2]",
                     "mesh=(data:2,model:2) spec=(data,model)"},
                    &meshes),
            (std::vector<int32_t>{0, kNoMesh, kNoMesh, 1, 2, 1, 0}));
  ASSERT_EQ(meshes.size(), 3u);
  EXPECT_EQ(meshes[0], kOne);
  EXPECT_EQ(meshes[1], kTwo);
  EXPECT_EQ(meshes_text(meshes), "(data:2,model:2) (data:2,model:2) (data:2,model:2)");
}

TEST(Meshes, WorkAndMemoryHaveBounds) {
  std::vector<std::string> specs;
  for (int i = 0; i < 200; ++i) {
    specs.push_back("mesh=(a" + std::to_string(i) + ":1048576) spec=()");
    specs.push_back("no sharding " + std::to_string(i));
  }
  std::vector<Mesh> meshes;
  const auto mesh_of = numbers(specs, &meshes);
  EXPECT_EQ(meshes.size(), 4u);
  EXPECT_EQ(mesh_of[6], 3);
  EXPECT_EQ(mesh_of[8], kNoMesh);
}

TEST(Meshes, SurviveTheirColumns) {
  const MeshColumns columns = columns_from_meshes(std::vector<Mesh>{kTwo, {}, kOne});
  EXPECT_EQ(columns.device, (std::vector<int64_t>{0, 2, 1, 3, 0, 0, 1, 2, 3}));
  const auto read = meshes_from_columns(columns);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, (std::vector<Mesh>{kTwo, {}, kOne}));

  const auto code = [&](auto change) {
    MeshColumns changed = columns;
    change(changed);
    return meshes_from_columns(changed).status().code();
  };
  using Columns = MeshColumns&;
  EXPECT_EQ(code([](Columns) {}), StatusCode::kOk);
  EXPECT_EQ(code([](Columns c) { c.axis_end.pop_back(); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.axis_size.pop_back(); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.axis_size[0] = -2; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.axis_size[0] = int64_t{1} << 62; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.device[1] = 0; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.device.push_back(9); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.device_end[1] = 3; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.device_end[2] = 99; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.granule[0] = -1; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.granule_end[0] = 3; }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](Columns c) { c.axis_name.bytes[0] = 0xff; }), StatusCode::kOk);  // says nothing
}

TEST(Meshes, AreInTheIndexAndFoundInOlderOnes) {
  const auto tensors = tensors_of({"mesh=(data:2,model:2) spec=(data)", "",
                                   "mesh=(data:2,model:2) spec=() devices=[0,2,1,3] "
                                   "granules=[0*2,1*2]"});
  std::vector<Piece> pieces(3);
  for (int i = 0; i < 3; ++i) pieces[i] = {i, {{0}, {0}}};
  const std::string digest(32, '0');
  const auto index =
      make_index(1, tensors, pieces, {{"data/shard-00000.h5", 8192, digest, digest, 0}}, {{}});
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ(index->mesh_of, (std::vector<int32_t>{0, kNoMesh, 1}));
  const auto read = [&](int32_t minor) {
    const auto bytes = write_index(*index, minor).value();
    const FileRecord record{"index.h5", static_cast<int64_t>(bytes.size()), digest_text(bytes), "",
                            0};
    return read_index(bytes, record).value();
  };
  for (const int32_t minor : {1, 2}) {
    const StepIndex again = read(minor);
    EXPECT_EQ(again.meshes, index->meshes) << minor;
    EXPECT_EQ(again.mesh_of, index->mesh_of) << minor;
  }
  const auto has_meshes = [&](int32_t minor) {
    const auto bytes = write_index(*index, minor).value();
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
               .find("granule_end") != std::string_view::npos;
  };
  EXPECT_FALSE(has_meshes(1));
  EXPECT_TRUE(has_meshes(2));
}

}  // namespace
}  // namespace hekla::checkpoint
