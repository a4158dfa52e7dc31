// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/testing/written_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/checkpoint/format/testing/write_step.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/box_copy.h"

namespace hekla::checkpoint::testing {
namespace {

const char* const kRows = "mesh=(a:4) spec=(a)";
const char* const kColumns = "mesh=(a:2,b:2) spec=(None,b)";
const char* const kCopies = "mesh=(a:4) spec=()";

}  // namespace

void State::add(std::string name, DType dtype, Dims shape, std::string spec,
                std::mt19937_64& random) {
  HostArray array(dtype, shape);
  const int bits = dtype_bits(dtype);
  std::byte* bytes = array.mutable_data();
  for (int64_t i = 0; i < array.size_bytes(); ++i) {
    unsigned value = random() & 0xff;
    if (bits < 8) value &= (1u << bits) - 1;
    if (bits < 8 && is_signed_integer(dtype) && value >> (bits - 1)) value |= 0xffu << bits;
    bytes[i] = static_cast<std::byte>(value);
  }
  const TensorInfo info{std::move(name), dtype, std::move(shape), std::move(spec)};
  const auto place =
      std::lower_bound(tensors.begin(), tensors.end(), info,
                       [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  values.insert(values.begin() + (place - tensors.begin()), std::move(array));
  tensors.insert(place, info);
}

State make_state(uint64_t seed) {
  std::mt19937_64 random(seed);
  State state;
  for (int d = 1; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    state.add(fmt::format("small/{}", dtype_name(dtype)), dtype, {5, 7}, kRows, random);
  }
  state.add("columns", DType::kF32, {1280, 1024}, kColumns, random);
  state.add("copied", DType::kBF16, {100, 1024}, kCopies, random);
  state.add("empty", DType::kF32, {0, 4}, kRows, random);
  state.add("packed", DType::kF6E2M3FN, {4100, 1023}, kRows, random);
  state.add("rows", DType::kF32, {1281, 1024}, kRows, random);
  state.add("scalar", DType::kI64, {}, kCopies, random);
  return state;
}

State make_small_state(uint64_t seed) {
  std::mt19937_64 random(seed);
  State state;
  state.add("bias", DType::kF32, {100}, kCopies, random);
  state.add("empty", DType::kF32, {0, 4}, kRows, random);
  state.add("flags", DType::kI1, {33}, kRows, random);
  state.add("packed", DType::kI4, {400, 401}, kCopies, random);
  state.add("rows", DType::kF32, {601, 128}, kRows, random);
  return state;
}

Status write_state(const std::filesystem::path& folder, const State& state, int32_t ranks,
                   const ShardIdentity& identity, SaveOptions options) {
  std::vector<TensorLayout> layouts;
  for (const TensorInfo& tensor : state.tensors) {
    HEKLA_ASSIGN_OR_RETURN(const Sharding sharding, parse_sharding(tensor.spec));
    std::vector<int32_t> rank_of_position(static_cast<size_t>(device_count(sharding.mesh)));
    for (size_t i = 0; i < rank_of_position.size(); ++i) {
      rank_of_position[i] = static_cast<int32_t>(i) % ranks;
    }
    HEKLA_ASSIGN_OR_RETURN(auto boxes, held_boxes(sharding, tensor.shape, rank_of_position));
    layouts.push_back({tensor, std::move(boxes)});
  }
  options.world_size = ranks;
  HEKLA_ASSIGN_OR_RETURN(const SavePlan plan, make_save_plan(layouts, options));
  std::vector<PieceData> data;
  for (const Piece& piece : plan.pieces) {
    const HostArray& array = state.values[static_cast<size_t>(piece.tensor)];
    PieceData one{piece, std::vector<std::byte>(static_cast<size_t>(piece.bytes))};
    if (piece.bytes > 0) {
      BoxCopy(array.dtype(), piece.box, whole_box(array.dims()), array.dims(), piece.box)
          .store(array.data(), one.bytes, 0);
    }
    data.push_back(std::move(one));
  }
  return write_step(folder, identity, plan.tensors, data, static_cast<int32_t>(plan.files.size()))
      .status();
}

HostArray part_of(const HostArray& array, const Box& box) {
  HostArray part(array.dtype(), box.size);
  const size_t rank = box.size.size();
  const int64_t row = rank == 0 ? 1 : box.size[rank - 1];
  const int64_t bytes = dtype_bytes(array.dtype());
  std::byte* target = part.mutable_data();
  Dims index(rank);  // of a row's first element
  for (int64_t i = 0; i < part.size(); i += row) {
    int64_t from = 0;
    for (size_t d = 0; d < rank; ++d) {
      from = from * array.dims()[d] + box.start[d] + index[d];
    }
    std::copy_n(array.data() + from * bytes, row * bytes, target + i * bytes);
    for (size_t d = std::max<size_t>(rank, 1) - 1; d-- > 0;) {
      if (++index[d] < box.size[d]) break;
      index[d] = 0;
    }
  }
  return part;
}

}  // namespace hekla::checkpoint::testing
