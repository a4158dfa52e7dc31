// SPDX-License-Identifier: Apache-2.0
// Operations that move elements: by constants, by values, gather and scatter.
#include <algorithm>
#include <numeric>

#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

namespace {

// The dims of another shape with as many elements.
Dims regroup(Random& random, int64_t count) {
  Dims dims;
  if (count == 0) return {0, random.between(0, 3)};
  while (count > 1 && dims.size() < 4) {
    std::vector<int64_t> divisors;
    for (int64_t d = 2; d <= count; ++d) {
      if (count % d == 0) divisors.push_back(d);
    }
    const int64_t d = dims.size() == 3 ? count : random.pick(divisors);
    dims.push_back(d);
    count /= d;
  }
  while (dims.size() < 5 && random.chance(25)) {
    dims.insert(dims.begin() + random.below(static_cast<int64_t>(dims.size()) + 1), 1);
  }
  return dims;
}

// `k` of 0 ... n - 1, in order.
std::vector<int64_t> subset(Random& random, int64_t n, int64_t k) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  random.shuffle(all);
  all.resize(static_cast<size_t>(k));
  std::sort(all.begin(), all.end());
  return all;
}

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// As frameworks write them most of the time.
DType type_of_indices(Random& random) {
  const int64_t drawn = random.below(100);
  if (drawn < 80) return DType::kI32;
  if (drawn < 88) return DType::kI64;
  if (drawn < 92) return DType::kUI64;
  return drawn < 95 ? DType::kUI32 : drawn < 98 ? DType::kUI8 : DType::kI8;
}

// Unsigned ones reach beyond what signed types hold.
Content sizes_of(DType type_of_indices) {
  return type_of_indices == DType::kUI64 ? Content::kAny : Content::kModerate;
}

// What gather and scatter share: how index vectors and windows lie.
struct Indexing {
  std::vector<int64_t> collapsed;       // of the operand: window size 1, gone
  std::vector<int64_t> batching;        // of the operand
  std::vector<int64_t> index_batching;  // of the indices
  std::vector<int64_t> map;             // index component to operand dimension
  int64_t index_vector_dim = 0;
  Dims indices;
  Dims sizes;                        // of the window, one per operand dimension
  std::vector<int64_t> offset_dims;  // of the result or update
  Dims result;
};

bool make_indexing(Random& random, const Dims& dims, Indexing& out) {
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<int64_t> free;
  for (int64_t i = 0; i < rank; ++i) {
    if (dims[static_cast<size_t>(i)] > 0 && out.batching.empty() && random.chance(12)) {
      out.batching.push_back(i);
    } else {
      free.push_back(i);
    }
  }
  out.map = free;
  random.shuffle(out.map);
  out.map.resize(static_cast<size_t>(random.between(0, static_cast<int64_t>(free.size()))));
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t size = dims[static_cast<size_t>(i)];
    if (contains(out.batching, i)) {
      out.sizes.push_back(1);
    } else if (size > 0 && random.chance(contains(out.map, i) ? 60 : 10)) {
      out.collapsed.push_back(i);
      out.sizes.push_back(1);
    } else {
      out.sizes.push_back(random.chance(40) || size == 0 ? size : random.between(1, size));
    }
  }
  // The batch dimensions of the indices.
  struct Batch {
    int64_t size;
    bool is_paired;
  };
  std::vector<Batch> batch;
  for (int64_t b : out.batching) batch.push_back({dims[static_cast<size_t>(b)], true});
  const int64_t more = random.between(0, 2);
  for (int64_t i = 0; i < more; ++i) {
    const int64_t size = random.chance(2) ? 0 : random.between(1, 6);
    batch.insert(batch.begin() + random.below(static_cast<int64_t>(batch.size()) + 1),
                 {size, false});
  }
  const auto batch_rank = static_cast<int64_t>(batch.size());
  const auto k = static_cast<int64_t>(out.map.size());
  const bool is_implicit = k == 1 && random.chance(40);
  out.index_vector_dim = is_implicit ? batch_rank : random.between(0, batch_rank);
  for (int64_t i = 0; i < batch_rank; ++i) {
    if (!is_implicit && i == out.index_vector_dim) out.indices.push_back(k);
    if (batch[static_cast<size_t>(i)].is_paired) {
      out.index_batching.push_back(static_cast<int64_t>(out.indices.size()));
    }
    out.indices.push_back(batch[static_cast<size_t>(i)].size);
  }
  if (!is_implicit && out.index_vector_dim == batch_rank) out.indices.push_back(k);
  Dims window;
  for (int64_t i = 0; i < rank; ++i) {
    if (!contains(out.collapsed, i) && !contains(out.batching, i)) {
      window.push_back(out.sizes[static_cast<size_t>(i)]);
    }
  }
  const int64_t result_rank = batch_rank + static_cast<int64_t>(window.size());
  out.offset_dims = subset(random, result_rank, static_cast<int64_t>(window.size()));
  size_t next_window = 0, next_batch = 0;
  for (int64_t i = 0; i < result_rank; ++i) {
    const bool is_window = contains(out.offset_dims, i);
    out.result.push_back(is_window ? window[next_window++] : batch[next_batch++].size);
  }
  return true;
}

}  // namespace

bool Generator::movement() {
  ir::Value* x = any_value();
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  const int64_t rank = x->type().rank();
  switch (random_.below(10)) {
    case 0: {
      Dims out = any_dims(4);
      if (rank > 4) return false;
      // The operand's dimensions, in any order, among others.
      while (static_cast<int64_t>(out.size()) < rank) out.push_back(random_.between(1, 4));
      std::vector<int64_t> places(out.size());
      std::iota(places.begin(), places.end(), 0);
      random_.shuffle(places);
      places.resize(static_cast<size_t>(rank));
      for (size_t i = 0; i < places.size(); ++i) {
        if (dims[i] != 1 || random_.chance(50)) out[static_cast<size_t>(places[i])] = dims[i];
      }
      return append(OpCode::kBroadcastInDim, {x}, {tensor(dtype, out)},
                    {{"broadcast_dimensions", ir::i64_array(places)}}) != nullptr;
    }
    case 1: {
      std::vector<int64_t> sizes(static_cast<size_t>(random_.between(0, 2)));
      for (int64_t& s : sizes) s = random_.between(1, 5);
      return append(OpCode::kBroadcast, {x}, {}, {{"broadcast_sizes", ir::i64_array(sizes)}}) !=
             nullptr;
    }
    case 2:
      return append(OpCode::kReshape, {x},
                    {tensor(dtype, regroup(random_, element_count(dims)))}) != nullptr;
    case 3: {
      std::vector<int64_t> permutation(static_cast<size_t>(rank));
      std::iota(permutation.begin(), permutation.end(), 0);
      random_.shuffle(permutation);
      return append(OpCode::kTranspose, {x}, {}, {{"permutation", ir::i64_array(permutation)}}) !=
             nullptr;
    }
    case 4:
    case 5: {
      std::vector<int64_t> starts, limits, strides;
      for (int64_t size : dims) {
        const int64_t start = random_.between(0, std::max<int64_t>(size - 1, 0));
        starts.push_back(random_.chance(40) ? 0 : start);
        limits.push_back(random_.chance(40) ? size : random_.between(starts.back(), size));
        strides.push_back(random_.chance(60) ? 1 : random_.between(1, 4));
      }
      return append(OpCode::kSlice, {x}, {},
                    {{"start_indices", ir::i64_array(starts)},
                     {"limit_indices", ir::i64_array(limits)},
                     {"strides", ir::i64_array(strides)}}) != nullptr;
    }
    case 6: {
      std::vector<int64_t> low, high, interior;
      for (int64_t i = 0; i < rank; ++i) {
        low.push_back(random_.chance(50) ? 0 : random_.between(-3, 4));
        high.push_back(random_.chance(50) ? 0 : random_.between(-3, 4));
        interior.push_back(random_.chance(70) ? 0 : random_.between(0, 2));
      }
      return append(OpCode::kPad, {x, want(dtype, {})}, {},
                    {{"edge_padding_low", ir::i64_array(low)},
                     {"edge_padding_high", ir::i64_array(high)},
                     {"interior_padding", ir::i64_array(interior)}}) != nullptr;
    }
    case 7: {
      if (rank == 0) return false;
      const int64_t d = random_.below(rank);
      std::vector<ir::Value*> parts = {x};
      // Now and then as many as are written one by one (passes::write_wide_concatenates).
      const int64_t more = random_.chance(15) ? random_.between(3, 9) : random_.between(0, 2);
      for (int64_t i = 0; i < more; ++i) {
        Dims other = dims;
        if (random_.chance(50)) other[static_cast<size_t>(d)] = random_.between(0, 5);
        parts.push_back(want(dtype, other));
      }
      return append(OpCode::kConcatenate, parts, {}, {{"dimension", ir::i64_attribute(d)}}) !=
             nullptr;
    }
    case 8:
      return append(OpCode::kReverse, {x}, {},
                    {{"dimensions",
                      ir::i64_array(subset(random_, rank, random_.between(0, rank)))}}) != nullptr;
    default: {
      Dims out = any_dims();
      if (out.empty() || dtype == DType::kI1 || is_tiny(dtype)) return false;
      return append(OpCode::kIota, {}, {tensor(dtype, out)},
                    {{"iota_dimension",
                      ir::i64_attribute(random_.below(static_cast<int64_t>(out.size())))}}) !=
             nullptr;
    }
  }
}

bool Generator::dynamic_movement() {
  ir::Value* x = any_value();
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  static const std::vector<DType> kIndexTypes = {DType::kI32,  DType::kI32, DType::kI64,
                                                 DType::kUI32, DType::kI8,  DType::kUI8};
  const DType index_type = random_.pick(kIndexTypes);
  const auto index = [&]() -> ir::Value* {
    if (random_.chance(60))
      return constant(number(index_type, static_cast<double>(random_.between(-1, 6))));
    return want(index_type, {});
  };
  std::vector<ir::Value*> operands = {x};
  Dims sizes;
  for (int64_t size : dims) {
    sizes.push_back(random_.chance(30) ? size : random_.between(size > 0 ? 1 : 0, size));
  }
  if (random_.chance(50)) {
    for (size_t i = 0; i < dims.size(); ++i) operands.push_back(index());
    return append(OpCode::kDynamicSlice, operands, {}, {{"slice_sizes", ir::i64_array(sizes)}}) !=
           nullptr;
  }
  operands.push_back(want(dtype, sizes));
  for (size_t i = 0; i < dims.size(); ++i) operands.push_back(index());
  return append(OpCode::kDynamicUpdateSlice, operands) != nullptr;
}

bool Generator::gather() {
  ir::Value* x = tensor_of_rank(0, 4);
  if (x == nullptr) return false;
  if (random_.chance(12) && x->type().rank() > 0) {
    const int64_t dim = random_.below(x->type().rank());
    const int64_t size = x->type().dims()[static_cast<size_t>(dim)];
    if (size == 0) return false;
    HostArray places(DType::kI32, {random_.between(1, 6)});
    for (int64_t i = 0; i < places.size(); ++i) {
      set_number(places, i, static_cast<double>(random_.below(size)));
    }
    return append(OpCode::kTorchIndexSelect, {x, constant(std::move(places))}, {},
                  {{"dim", ir::i64_attribute(dim)}, {"batch_dims", ir::i64_attribute(0)}}) !=
           nullptr;
  }
  Indexing how;
  if (!make_indexing(random_, x->type().dims(), how)) return false;
  const DType index_type = type_of_indices(random_);
  ir::GatherDimensionNumbers n;
  n.offset_dims = how.offset_dims;
  n.collapsed_slice_dims = how.collapsed;
  n.operand_batching_dims = how.batching;
  n.start_indices_batching_dims = how.index_batching;
  n.start_index_map = how.map;
  n.index_vector_dim = how.index_vector_dim;
  ir::Value* indices = random_.chance(75) ? fresh(index_type, how.indices, sizes_of(index_type))
                                          : want(index_type, how.indices);
  return append(OpCode::kGather, {x, indices}, {},
                {{"dimension_numbers", ir::Attribute(n)},
                 {"slice_sizes", ir::i64_array(how.sizes)}}) != nullptr;
}

bool Generator::scatter() {
  ir::Value* x = tensor_of_rank(0, 4);
  if (x == nullptr) return false;
  const DType dtype = x->type().dtype();
  Indexing how;
  if (!make_indexing(random_, x->type().dims(), how)) return false;
  ir::ScatterDimensionNumbers n;
  n.update_window_dims = how.offset_dims;
  n.inserted_window_dims = how.collapsed;
  n.input_batching_dims = how.batching;
  n.scatter_indices_batching_dims = how.index_batching;
  n.scatter_dims_to_operand_dims = how.map;
  n.index_vector_dim = how.index_vector_dim;
  const DType index_type = type_of_indices(random_);
  ir::Value* indices = random_.chance(75) ? fresh(index_type, how.indices, sizes_of(index_type))
                                          : want(index_type, how.indices);
  Regions regions;
  if (random_.chance(35)) {
    auto region = std::make_unique<ir::Region>(nullptr);
    ir::Block& body = region->add_block();
    body.add_argument(tensor(dtype, {}));
    ir::Value* update = body.add_argument(tensor(dtype, {}));
    body.append(OpCode::kReturn, {update}, {});
    regions.push_back(std::move(region));
  } else {
    regions.push_back(scalar_region(reducer(dtype).first, dtype));
  }
  return append(OpCode::kScatter, {x, indices, want(dtype, how.result)},
                {tensor(dtype, x->type().dims())},
                {{"scatter_dimension_numbers", ir::Attribute(n)}}, std::move(regions)) != nullptr;
}

}  // namespace hekla::testing
