// SPDX-License-Identifier: Apache-2.0
// Random states saved by N ranks and restored by M others, against a gather that moves one element
// at a time and one bit at a time. HEKLA_RESHARD_CASES and HEKLA_RESHARD_SEED choose how many cases
// and from which seed; a failure prints its seed, which alone gives the same case again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/restore_plan.h"
#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::checkpoint {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0xA5};

// The oracle: index arithmetic on one element at a time.

// Calls visit for every index of the box, in global coordinates.
template <typename Visit>
void for_each_index(const Box& box, Visit visit) {
  if (box_elements(box) == 0) return;
  Dims index = box.start;
  while (true) {
    visit(index);
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == box.start[d - 1] + box.size[d - 1]) {
      index[d - 1] = box.start[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

// Position of a global index in an array of `dims`, and in one whose first element is `start`.
int64_t place(const Dims& index, const Dims& dims) {
  int64_t at = 0;
  for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + index[d];
  return at;
}
int64_t place(const Dims& index, const Dims& start, const Dims& dims) {
  int64_t at = 0;
  for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + (index[d] - start[d]);
  return at;
}

struct Tensor {
  TensorInfo info;
  Bytes values;  // the global array as in host memory

  int64_t element() const { return dtype_bytes(info.dtype); }
  const std::byte* at(const Dims& index) const {
    return values.data() + place(index, info.shape) * element();
  }
};

Bytes gather(const Tensor& tensor, const Box& box, const Dims& dims) {
  Bytes local(element_count(dims) * tensor.element(), kUntouched);
  for_each_index(box, [&](const Dims& index) {
    std::copy_n(tensor.at(index), tensor.element(),
                local.data() + place(index, box.start, dims) * tensor.element());
  });
  return local;
}

Bytes pack(const Tensor& tensor, const Box& box) {
  const int bits = stored_bits(tensor.info.dtype);
  Bytes stored((box_elements(box) * bits + 7) / 8);
  int64_t to = 0;
  for_each_index(box, [&](const Dims& index) {
    const std::byte* element = tensor.at(index);
    for (int b = 0; b < bits; ++b, ++to) {
      const int bit = static_cast<int>(element[b / 8] >> (b % 8)) & 1;
      stored[to / 8] |= static_cast<std::byte>(bit << (to % 8));
    }
  });
  return stored;
}

class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed) {}

  void run() {
    const int32_t writers = uniform(1, 16);
    save(writers);
    if (::testing::Test::HasFailure()) return;
    const int32_t readers = uniform(1, 16);
    for (int32_t r = 0; r < readers; ++r) {
      want(readers, r);
      restore();
      if (::testing::Test::HasFailure()) return;
    }
  }

  int64_t resharded_elements() const { return resharded_elements_; }

 private:
  int32_t uniform(int64_t low, int64_t high) {
    return static_cast<int32_t>(std::uniform_int_distribution<int64_t>(low, high)(random_));
  }
  bool chance(int percent) { return uniform(1, 100) <= percent; }

  Dims random_shape() {
    const int rank = uniform(0, 8);
    Dims shape(rank);
    int64_t room = uniform(1, 600);
    for (int64_t& dim : shape) {
      dim = chance(2) ? 0 : uniform(1, std::min<int64_t>(room, 40));
      room /= std::max<int64_t>(dim, 1);
    }
    std::shuffle(shape.begin(), shape.end(), random_);
    return shape;
  }

  Tensor random_tensor(int number) {
    Tensor tensor;
    tensor.info.name = fmt::format("state/{}", number);
    tensor.info.dtype = static_cast<DType>(uniform(1, kDTypeCount - 1));
    tensor.info.shape = random_shape();
    tensor.values.resize(element_count(tensor.info.shape) * tensor.element());
    const int bits = dtype_bits(tensor.info.dtype);
    for (std::byte& value : tensor.values) {
      unsigned bits_of_value = random_() & 0xff;
      // Small types lie in the low bits of a byte, signed ones extended.
      if (bits < 8) bits_of_value &= (1u << bits) - 1;
      if (bits < 8 && is_signed_integer(tensor.info.dtype) && bits_of_value >> (bits - 1)) {
        bits_of_value |= 0xffu << bits;
      }
      value = static_cast<std::byte>(bits_of_value);
    }
    return tensor;
  }

  // A mesh of `ranks` or a multiple of devices and a spec for `rank` dimensions.
  Sharding random_sharding(int32_t devices, size_t rank) {
    Sharding sharding;
    int32_t left = devices;
    while (left > 1 || chance(20)) {
      int32_t size = uniform(1, left);
      while (left % size != 0) size = uniform(1, left);
      sharding.mesh.axes.push_back({fmt::format("axis{}", sharding.mesh.axes.size()), size});
      left /= size;
    }
    if (chance(50)) {
      for (int32_t d = 0; d < devices; ++d) sharding.mesh.device_ids.push_back(d);
      std::shuffle(sharding.mesh.device_ids.begin(), sharding.mesh.device_ids.end(), random_);
    }
    sharding.spec.dims.resize(rank);
    std::vector<sharding::Axis> axes = sharding.mesh.axes;
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const sharding::Axis& axis : axes) {
      if (rank > 0 && chance(80)) {
        sharding.spec.dims[uniform(0, rank - 1)].push_back(axis.name);
      } else if (chance(30)) {
        sharding.spec.replicated.push_back(axis.name);
      }
    }
    return sharding;
  }

  // Cuts at random places, each part held by some of the ranks.
  std::vector<Holding> random_holdings(int32_t ranks, const Dims& shape) {
    std::vector<Box> boxes = {whole_box(shape)};
    for (int cuts = uniform(0, 12); cuts > 0 && !shape.empty(); --cuts) {
      Box& box = boxes[uniform(0, boxes.size() - 1)];
      const int d = uniform(0, shape.size() - 1);
      const int64_t at = uniform(0, box.size[d]);
      Box rest = box;
      rest.start[d] += at;
      rest.size[d] -= at;
      box.size[d] = at;
      boxes.push_back(rest);
    }
    std::vector<Holding> holdings;
    for (const Box& box : boxes) {
      for (int copies = uniform(1, 4); copies > 0; --copies) {
        holdings.push_back({uniform(0, ranks - 1), box});
      }
    }
    std::shuffle(holdings.begin(), holdings.end(), random_);
    return holdings;
  }

  void save(int32_t ranks) {
    std::vector<TensorLayout> layouts;
    const int count = uniform(1, 3);
    for (int t = 0; t < count; ++t) {
      tensors_.push_back(random_tensor(t));
      const Dims& shape = tensors_[t].info.shape;
      Result<std::shared_ptr<const HeldBoxes>> boxes = internal_error("");
      if (chance(60)) {
        // One to three devices a rank.
        const int32_t devices = ranks * uniform(1, 3);
        const Sharding sharding = random_sharding(devices, shape.size());
        std::vector<int32_t> rank_of_position(devices);
        for (int32_t d = 0; d < devices; ++d) rank_of_position[d] = d % ranks;
        std::shuffle(rank_of_position.begin(), rank_of_position.end(), random_);
        const Result<Sharding> again = parse_sharding(sharding_text(sharding));
        ASSERT_TRUE(again.ok()) << again.status().to_string();
        ASSERT_TRUE(*again == sharding) << sharding_text(sharding);
        boxes = held_boxes(*again, shape, rank_of_position);
      } else {
        boxes = held_boxes(random_holdings(ranks, shape), shape);
      }
      ASSERT_TRUE(boxes.ok()) << boxes.status().to_string();
      layouts.push_back({tensors_[t].info, *boxes});
    }
    SaveOptions options;
    options.world_size = ranks;
    options.min_slice_bytes = uniform(1, 200);
    options.ranks_per_file = uniform(0, 4);
    options.max_files = uniform(1, 16);
    options.min_tile_bytes = uniform(1, 100);
    options.tile_by_spec = chance(50);
    if (chance(50)) options.tile_hints.push_back({"*", {uniform(0, 9), uniform(0, 9)}});
    if (chance(30)) {
      for (int32_t r = 0; r < ranks; ++r) options.host_of_rank.push_back(uniform(0, 3));
    }
    Result<SavePlan> plan = make_save_plan(layouts, options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    files_.resize(plan->files.size());
    for (Piece& piece : plan->pieces) write(layouts[piece.tensor], &piece);
    std::vector<int64_t> sizes;
    for (Bytes& file : files_) {
      add_noise(&file);
      sizes.push_back(static_cast<int64_t>(file.size()));
    }
    std::shuffle(plan->pieces.begin(), plan->pieces.end(), random_);
    Result<PieceIndex> index =
        PieceIndex::make(plan->tensors, plan->pieces, static_cast<int32_t>(files_.size()), sizes);
    ASSERT_TRUE(index.ok()) << index.status().to_string();
    index_.emplace(std::move(*index));
  }

  void add_noise(Bytes* file) {
    for (int noise = uniform(0, 20); noise > 0; --noise) {
      file->push_back(static_cast<std::byte>(random_()));
    }
  }

  // As the rank that has to write it does: out of its own padded array, in chunks.
  void write(const TensorLayout& layout, Piece* piece) {
    const Tensor& tensor = tensors_[piece->tensor];
    const HeldBox* held = nullptr;
    for (const HeldBox& one : *layout.boxes) {
      const bool is_here = std::count(one.ranks.begin(), one.ranks.end(), piece->writer) > 0;
      bool holds = is_here;
      for (size_t d = 0; d < one.box.size.size(); ++d) {
        holds = holds && one.box.start[d] <= piece->box.start[d] &&
                piece->box.start[d] + piece->box.size[d] <= one.box.start[d] + one.box.size[d];
      }
      if (holds) held = &one;
    }
    ASSERT_NE(held, nullptr) << "the writer of " << box_text(piece->box) << " does not hold it";
    const Bytes expected = pack(tensor, piece->box);
    ASSERT_EQ(piece->bytes, static_cast<int64_t>(expected.size()));
    Bytes stored(expected.size());
    if (!stored.empty()) {
      Dims dims = held->box.size;
      for (int64_t& dim : dims) dim += uniform(0, 1);
      const Bytes local = gather(tensor, held->box, dims);
      const BoxCopy copy(tensor.info.dtype, piece->box, held->box, dims, piece->box);
      const int64_t chunk = uniform(1, piece->bytes + 10);
      for (int64_t begin = 0; begin < piece->bytes; begin += chunk) {
        const int64_t size = std::min(chunk, piece->bytes - begin);
        copy.store(local.data(), std::span<std::byte>(stored).subspan(begin, size), begin);
        const int64_t at = copy.memory_offset({begin, begin + size});
        if (at >= 0) {
          ASSERT_TRUE(
              std::equal(local.begin() + at, local.begin() + at + size, expected.begin() + begin));
        }
      }
    }
    ASSERT_EQ(stored, expected) << box_text(piece->box);
    Bytes& file = files_[piece->file];
    add_noise(&file);
    piece->offset = static_cast<int64_t>(file.size());
    file.insert(file.end(), stored.begin(), stored.end());
  }

  // What rank `reader` of `readers` wants: its boxes of another mesh, or any boxes.
  void want(int32_t readers, int32_t reader) {
    wanted_.clear();
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Dims& shape = tensors_[t].info.shape;
      if (chance(50)) {
        const Sharding sharding = random_sharding(readers, shape.size());
        const Result<std::vector<DeviceBox>> boxes = device_boxes(sharding, shape);
        ASSERT_TRUE(boxes.ok()) << boxes.status().to_string();
        const DeviceBox& box = (*boxes)[reader];
        wanted_.push_back({static_cast<int32_t>(t), box.box, box.padded});
        continue;
      }
      for (int boxes = uniform(0, 3); boxes > 0; --boxes) {
        Box box = whole_box(shape);
        for (size_t d = 0; d < shape.size(); ++d) {
          box.start[d] = uniform(0, shape[d]);
          box.size[d] = uniform(0, shape[d] - box.start[d]);
          if (shape[d] > 0 && chance(60)) {
            box.start[d] = 0;
            box.size[d] = shape[d];
          }
        }
        wanted_.push_back({static_cast<int32_t>(t), box, {}});
        if (!chance(30)) continue;
        wanted_.back().dims = box.size;
        for (int64_t& dim : wanted_.back().dims) dim += uniform(0, 2);
      }
    }
  }

  void restore() {
    RestoreOptions options;
    options.whole_blocks = chance(50);
    options.block_bytes = uniform(1, 100);
    options.merge_gap = chance(30) ? 0 : uniform(0, 50);
    options.max_read_bytes = uniform(1, 400);
    const Result<RestorePlan> plan = plan_restore(*index_, wanted_, options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    check_reads(*plan);
    std::vector<Bytes> arrays;
    for (const Wanted& wanted : wanted_) {
      const Dims& dims = wanted.dims.empty() ? wanted.box.size : wanted.dims;
      arrays.emplace_back(element_count(dims) * tensors_[wanted.tensor].element(), kUntouched);
    }
    std::vector<std::byte*> targets;
    for (Bytes& array : arrays) targets.push_back(array.data());
    std::vector<std::span<const std::byte>> files(files_.begin(), files_.end());
    int64_t verified = 0;
    const Status status = assemble(
        *index_, *plan, files, targets,
        [&](const BlockRef& block, std::span<const std::byte> bytes) -> Status {
          const Piece& piece = index_->pieces()[block.piece];
          const int64_t begin = block.block * options.block_bytes;
          const auto expected = std::span<const std::byte>(files_[piece.file])
                                    .subspan(piece.offset + begin, bytes.size());
          const bool is_whole = begin + static_cast<int64_t>(bytes.size()) == piece.bytes ||
                                static_cast<int64_t>(bytes.size()) == options.block_bytes;
          verified += static_cast<int64_t>(bytes.size());
          if (is_whole && std::equal(bytes.begin(), bytes.end(), expected.begin())) {
            return ok_status();
          }
          return internal_error("not block {} of its piece", block.block);
        });
    ASSERT_TRUE(status.ok()) << status.to_string();
    if (options.whole_blocks && options.merge_gap <= 1) {
      EXPECT_EQ(verified, plan->read_bytes);
    }
    for (size_t w = 0; w < wanted_.size(); ++w) {
      const Wanted& wanted = wanted_[w];
      const Tensor& tensor = tensors_[wanted.tensor];
      resharded_elements_ += box_elements(wanted.box);
      const Dims& dims = wanted.dims.empty() ? wanted.box.size : wanted.dims;
      ASSERT_TRUE(arrays[w] == gather(tensor, wanted.box, dims))
          << shape_string(tensor.info.dtype, tensor.info.shape) << " " << box_text(wanted.box);
    }
  }

  void check_reads(const RestorePlan& plan) {
    int64_t bytes = 0;
    for (size_t r = 0; r < plan.reads.size(); ++r) {
      const PlannedRead& read = plan.reads[r];
      ASSERT_GT(read.bytes, 0);
      ASSERT_GT(read.copy_count, 0u);
      bytes += read.bytes;
      if (r == 0 || plan.reads[r - 1].file < read.file) continue;
      ASSERT_EQ(plan.reads[r - 1].file, read.file);
      ASSERT_LE(plan.reads[r - 1].offset + plan.reads[r - 1].bytes, read.offset);
    }
    ASSERT_EQ(bytes, plan.read_bytes);
    if (plan.options.whole_blocks && plan.options.merge_gap == 0) {
      ASSERT_EQ(bytes, touched_bytes(plan.options.block_bytes));
    }
    // Without blocks and merging, no byte is read that nobody wants; a byte may hold two elements.
    if (plan.options.whole_blocks || plan.options.merge_gap > 0) return;
    int64_t limit = plan.wanted_bytes;
    for (const Region& region : plan.regions) {
      const Wanted& wanted = wanted_[region.wanted];
      if (stored_bits(tensors_[wanted.tensor].info.dtype) < 8) limit += region.copy.elements() * 2;
    }
    ASSERT_LE(bytes, limit);
  }

  // Bytes of the blocks that hold an element which somebody wants, each counted once.
  int64_t touched_bytes(int64_t block_bytes) const {
    std::set<std::pair<size_t, int64_t>> blocks;
    int64_t bytes = 0;
    for (const Wanted& wanted : wanted_) {
      const TensorInfo& info = tensors_[wanted.tensor].info;
      const int64_t bits = stored_bits(info.dtype);
      for (size_t p = 0; p < index_->pieces().size(); ++p) {
        const Piece& piece = index_->pieces()[p];
        Box common;
        if (piece.tensor != wanted.tensor || !intersect(piece.box, wanted.box, &common)) continue;
        Dims at = common.start;
        for (int64_t left = box_elements(common); left > 0; --left) {
          int64_t number = 0;
          for (size_t d = 0; d < at.size(); ++d) {
            number = number * piece.box.size[d] + at[d] - piece.box.start[d];
          }
          const int64_t last = ((number + 1) * bits - 1) / 8 / block_bytes;
          for (int64_t block = number * bits / 8 / block_bytes; block <= last; ++block) {
            if (!blocks.emplace(p, block).second) continue;
            bytes += std::min(block_bytes, piece.bytes - block * block_bytes);
          }
          for (size_t d = at.size(); d-- > 0;) {
            if (++at[d] < common.start[d] + common.size[d]) break;
            at[d] = common.start[d];
          }
        }
      }
    }
    return bytes;
  }

  std::mt19937_64 random_;
  std::vector<Tensor> tensors_;
  std::vector<Bytes> files_;
  std::optional<PieceIndex> index_;
  std::vector<Wanted> wanted_;
  int64_t resharded_elements_ = 0;
};

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Reshard, RandomStatesBetweenRandomWorlds) {
  const uint64_t cases = number_from_environment("HEKLA_RESHARD_CASES", 10'000);
  const uint64_t first = number_from_environment("HEKLA_RESHARD_SEED", 1);
  int64_t elements = 0;
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    Case one(seed);
    one.run();
    elements += one.resharded_elements();
    ASSERT_FALSE(HasFailure()) << "HEKLA_RESHARD_SEED=" << seed << " HEKLA_RESHARD_CASES=1";
  }
  EXPECT_GT(elements, 0);
}

}  // namespace
}  // namespace hekla::checkpoint
