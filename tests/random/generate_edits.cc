// SPDX-License-Identifier: Apache-2.0
// Loops that carry arrays and change parts of them, as tables, buffers and caches are filled:
// windows that are read and written, in branches which leave the other arrays as they are, in inner
// loops, and given back in another order, and sums with arrays that are zero almost everywhere.
// What is wrong about updates in place shows here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

// An i32 from 0 to `size` - 1 that depends on `at`, of an iteration.
ir::Value* Generator::edited_place(ir::Value* at, int64_t size) {
  ir::Value* moved =
      block_->append(OpCode::kAdd, {at, scalar_i32(random_.between(0, 9))}, {at->type()})->result();
  if (random_.chance(30)) {
    moved = block_->append(OpCode::kMultiply, {moved, scalar_i32(7)}, {at->type()})->result();
  }
  // Now and then outside: such windows are moved inside.
  const int64_t size_of_places = random_.chance(10) ? size + 3 : size;
  return block_->append(OpCode::kRemainder, {moved, scalar_i32(size_of_places)}, {at->type()})
      ->result();
}

ir::Value* Generator::edited_window(ir::Value* array, ir::Value* at, const Dims& window) {
  Values places;
  for (const int64_t size : array->type().dims()) places.push_back(edited_place(at, size));
  return window_at(array, places, window);
}

ir::Value* Generator::window_at(ir::Value* array, const Values& places, const Dims& window) {
  Values operands{array};
  operands.insert(operands.end(), places.begin(), places.end());
  return block_
      ->append(OpCode::kDynamicSlice, operands, {tensor(array->type().dtype(), window)},
               ir::AttributeMap({{"slice_sizes", ir::i64_array(window)}}))
      ->result();
}

// One array, changed in part by what is in another or in itself.
ir::Value* Generator::edited_part(ir::Value* array, ir::Value* other, ir::Value* at) {
  Dims window = array->type().dims();
  const bool is_wide = random_.chance(20);
  for (int64_t& size : window) size = std::min(size, random_.between(1, is_wide ? size : 2));
  if (window.size() > 1 && random_.chance(30)) window.back() = array->type().dims().back();
  const ir::Type type = tensor(array->type().dtype(), window);
  ir::Value* update = edited_window(other, at, window);
  Values places;
  for (const int64_t size : array->type().dims()) places.push_back(edited_place(at, size));
  if (random_.chance(70)) {
    const OpCode code = random_.chance(50) ? OpCode::kAdd : OpCode::kMaximum;
    ir::Value* own =
        random_.chance(40) ? window_at(array, places, window) : edited_window(array, at, window);
    update = block_->append(code, {update, own}, {type})->result();
    if (random_.chance(30)) update = block_->append(code, {own, update}, {type})->result();
  }
  Values operands{array, update};
  operands.insert(operands.end(), places.begin(), places.end());
  return block_->append(OpCode::kDynamicUpdateSlice, operands, {array->type()})->result();
}

ir::Value* Generator::edited_zeros(const ir::Type& type) { return edited_splat(type, 0); }

ir::Value* Generator::edited_splat(const ir::Type& type, double number) {
  HostArray one(type.dtype(), {});
  const uint64_t bits = is_float(type.dtype()) ? float_to_bits(type.dtype(), number)
                                               : static_cast<uint64_t>(std::llround(number));
  std::memcpy(one.mutable_data(), &bits, static_cast<size_t>(one.size_bytes()));
  const ir::AttributeMap value({{"value", ir::make_dense(type, std::move(one))}});
  return block_->append(OpCode::kConstant, {}, {type}, value)->result();
}

// Zero but for what `other` has in one window or at a few places, or but for what a branch makes;
// multiples and sums of such arrays.
ir::Value* Generator::edited_term(const ir::Type& type, ir::Value* other, ir::Value* at) {
  const DType dtype = type.dtype();
  const auto rank = static_cast<int64_t>(type.dims().size());
  if (random_.chance(20)) {
    ir::Value* term = edited_term(type, other, at);
    if (random_.chance(40)) return block_->append(OpCode::kNegate, {term}, {type})->result();
    constexpr double kFactors[] = {-2, -0.5, 0.1, 3};
    Values both{edited_splat(type, kFactors[random_.below(4)]), term};
    if (random_.chance(50)) std::swap(both[0], both[1]);
    return block_->append(OpCode::kMultiply, both, {type})->result();
  }
  // Sums of floats would have other bits in another order.
  if (is_integer(dtype) && random_.chance(15)) {
    ir::Value* first = edited_term(type, other, at);
    return block_->append(OpCode::kAdd, {first, edited_term(type, other, at)}, {type})->result();
  }
  const int64_t kind = random_.below(100);
  if (kind < 20) {
    const int64_t count = random_.between(1, 3);
    Values vectors;
    for (int64_t i = 0; i < count; ++i) {
      Values places;
      for (const int64_t size : type.dims()) {
        places.push_back(
            block_
                ->append(OpCode::kReshape, {edited_place(at, size)}, {tensor(DType::kI32, {1, 1})})
                ->result());
      }
      vectors.push_back(block_
                            ->append(OpCode::kConcatenate, places, {tensor(DType::kI32, {1, rank})},
                                     ir::AttributeMap({{"dimension", ir::i64_attribute(1)}}))
                            ->result());
    }
    ir::Value* indices =
        block_
            ->append(OpCode::kConcatenate, vectors, {tensor(DType::kI32, {count, rank})},
                     ir::AttributeMap({{"dimension", ir::i64_attribute(0)}}))
            ->result();
    const Dims one(type.dims().size(), 1);
    Dims line = one;
    line.back() = count;
    if (type.dims().back() < count) return edited_zeros(type);
    ir::Value* updates =
        block_->append(OpCode::kReshape, {edited_window(other, at, line)}, {tensor(dtype, {count})})
            ->result();
    ir::ScatterDimensionNumbers n;
    for (int64_t d = 0; d < rank; ++d) {
      n.inserted_window_dims.push_back(d);
      n.scatter_dims_to_operand_dims.push_back(d);
    }
    n.index_vector_dim = 1;
    auto op = std::make_unique<ir::Operation>(
        OpCode::kScatter, Values{edited_zeros(type), indices, updates}, std::vector{type},
        ir::AttributeMap({{"scatter_dimension_numbers", ir::Attribute(n)}}));
    op->adopt_region(scalar_region(OpCode::kAdd, dtype));
    return block_->append(std::move(op))->result();
  }
  if (kind < 35) {
    ir::Value* chosen = block_->append(OpCode::kAnd, {at, scalar_i32(1)}, {at->type()})->result();
    auto op = std::make_unique<ir::Operation>(OpCode::kCase, Values{chosen}, std::vector{type});
    ir::Block* const outer_block = block_;
    for (int b = 0; b < 2; ++b) {
      block_ = &op->add_region().add_block();
      ir::Value* given = random_.chance(40) ? edited_zeros(type) : edited_term(type, other, at);
      block_->append(OpCode::kReturn, {given}, {});
    }
    block_ = outer_block;
    return block_->append(std::move(op))->result();
  }
  Dims window = type.dims();
  for (int64_t& size : window) size = std::min(size, random_.between(1, 2));
  ir::Value* update = edited_window(other, at, window);
  if (kind < 50) {
    Dims low, high;
    for (size_t d = 0; d < window.size(); ++d) {
      low.push_back(random_.between(0, type.dims()[d] - window[d]));
      high.push_back(type.dims()[d] - window[d] - low.back());
    }
    return block_
        ->append(OpCode::kPad, {update, edited_zeros(tensor(dtype, {}))}, {type},
                 ir::AttributeMap({{"edge_padding_low", ir::i64_array(low)},
                                   {"edge_padding_high", ir::i64_array(high)},
                                   {"interior_padding", ir::i64_array(Dims(low.size(), 0))}}))
        ->result();
  }
  Values operands{edited_zeros(type), update};
  for (const int64_t size : type.dims()) operands.push_back(edited_place(at, size));
  return block_->append(OpCode::kDynamicUpdateSlice, operands, {type})->result();
}

// As gradients of loops that index a table are added up, and as steps along them are taken.
ir::Value* Generator::edited_sum(ir::Value* array, ir::Value* other, ir::Value* at) {
  Values both{array, edited_term(array->type(), other, at)};
  if (random_.chance(20)) std::swap(both[0], both[1]);
  const OpCode code = random_.chance(40) ? OpCode::kSubtract : OpCode::kAdd;
  return block_->append(code, both, {array->type()})->result();
}

// An array or one or two edits of it, as a flag says or a mask.
ir::Value* Generator::edited_where(ir::Value* array, ir::Value* other, ir::Value* at) {
  ir::Value* edited = edited_part(array, other, at);
  if (random_.chance(30)) edited = edited_part(edited, other, at);
  const ir::AttributeMap less(
      {{"comparison_direction", ir::enum_attribute("comparison_direction", "LT")}});
  const ir::Type flag = tensor(DType::kI1, array->type().dims());
  ir::Value* mask = nullptr;
  if (random_.chance(30)) {
    mask = block_->append(OpCode::kCompare, {array, other}, {flag}, less)->result();
  } else {
    mask = block_
               ->append(OpCode::kCompare, {edited_place(at, 2), scalar_i32(1)},
                        {tensor(DType::kI1, {})}, less)
               ->result();
    if (random_.chance(50)) {
      mask = block_
                 ->append(OpCode::kBroadcastInDim, {mask}, {flag},
                          ir::AttributeMap({{"broadcast_dimensions", ir::i64_array({})}}))
                 ->result();
    }
  }
  Values both{edited, array};
  if (random_.chance(50)) std::swap(both[0], both[1]);
  return block_->append(OpCode::kSelect, {mask, both[0], both[1]}, {array->type()})->result();
}

// Every element: in its place, or from another one.
ir::Value* Generator::edited_whole(ir::Value* array, ir::Value* other) {
  if (random_.chance(60)) {
    return block_->append(OpCode::kMinimum, {array, other}, {array->type()})->result();
  }
  return block_
      ->append(OpCode::kReverse, {array}, {array->type()},
               ir::AttributeMap({{"dimensions", ir::i64_array({0})}}))
      ->result();
}

Generator::Values Generator::edited_by_branch(const Values& arrays, ir::Value* at, int depth) {
  const bool is_if = random_.chance(60);
  const int64_t branches = is_if ? 2 : random_.between(1, 3);
  ir::Value* chosen =
      block_->append(OpCode::kAnd, {at, scalar_i32(is_if ? 1 : 3)}, {at->type()})->result();
  if (is_if) {
    const ir::AttributeMap equal(
        {{"comparison_direction", ir::enum_attribute("comparison_direction", "EQ")}});
    chosen =
        block_->append(OpCode::kCompare, {chosen, scalar_i32(0)}, {tensor(DType::kI1, {})}, equal)
            ->result();
  }
  ir::Block* const outer_block = block_;
  Regions regions;
  for (int64_t b = 0; b < branches; ++b) {
    regions.push_back(std::make_unique<ir::Region>(nullptr));
    block_ = &regions.back()->add_block();
    Values results = random_.chance(40) ? arrays : edited(arrays, at, depth + 1);
    if (random_.chance(15)) results[0] = random_.pick(arrays);
    block_->append(OpCode::kReturn, results, {});
  }
  block_ = outer_block;
  std::vector<ir::Type> types;
  for (const ir::Value* array : arrays) types.push_back(array->type());
  ir::Operation* op =
      append(is_if ? OpCode::kIf : OpCode::kCase, {chosen}, types, {}, std::move(regions));
  Values results;
  for (size_t i = 0; i < types.size(); ++i) results.push_back(op->result(i));
  return results;
}

Generator::Values Generator::edited_by_loop(const Values& arrays, int depth) {
  Values initial{scalar_i32(0)};
  // One that the body only looks at is not carried.
  const bool is_apart = arrays.size() > 1 && random_.chance(40);
  initial.insert(initial.end(), arrays.begin() + (is_apart ? 1 : 0), arrays.end());
  std::vector<ir::Type> types;
  for (const ir::Value* value : initial) types.push_back(value->type());
  ir::Block* const outer_block = block_;
  Regions regions;
  regions.push_back(std::make_unique<ir::Region>(nullptr));
  regions.push_back(std::make_unique<ir::Region>(nullptr));
  ir::Block& test = regions[0]->add_block();
  ir::Block& body = regions[1]->add_block();
  for (const ir::Type& type : types) {
    test.add_argument(type);
    body.add_argument(type);
  }
  block_ = &test;
  const ir::AttributeMap less(
      {{"comparison_direction", ir::enum_attribute("comparison_direction", "LT")}});
  ir::Value* trips = scalar_i32(random_.between(depth == 0 ? 2 : 0, depth == 0 ? 7 : 3));
  ir::Value* go =
      test.append(OpCode::kCompare, {test.argument(0), trips}, {tensor(DType::kI1, {})}, less)
          ->result();
  test.append(OpCode::kReturn, {go}, {});
  block_ = &body;
  Values inside;
  if (is_apart) inside.push_back(arrays[0]);
  for (size_t i = 1; i < types.size(); ++i) inside.push_back(body.argument(i));
  inside = edited(inside, body.argument(0), depth + 1);
  Values next{body.append(OpCode::kAdd, {body.argument(0), scalar_i32(1)}, {types[0]})->result()};
  next.insert(next.end(), inside.begin() + (is_apart ? 1 : 0), inside.end());
  body.append(OpCode::kReturn, next, {});
  block_ = outer_block;
  ir::Operation* op = append(OpCode::kWhile, initial, types, {}, std::move(regions));
  Values results;
  if (is_apart) results.push_back(arrays[0]);
  for (size_t i = 1; i < types.size(); ++i) results.push_back(op->result(i));
  return results;
}

// `arrays` after a few edits; `at`: an i32 that differs between iterations.
Generator::Values Generator::edited(Values arrays, ir::Value* at, int depth) {
  constexpr int kDeepest = 4;
  const Values before = arrays;
  const int64_t edits = random_.between(1, depth < kDeepest ? 3 : 1);
  for (int64_t i = 0; i < edits; ++i) {
    const auto which = static_cast<size_t>(random_.below(static_cast<int64_t>(arrays.size())));
    const int64_t kind = random_.below(depth < kDeepest ? 100 : 70);
    if (kind < 32) {
      arrays[which] = edited_part(arrays[which], random_.pick(arrays), at);
    } else if (kind < 40) {
      arrays[which] = edited_where(arrays[which], random_.pick(arrays), at);
    } else if (kind < 55) {
      arrays[which] = edited_sum(arrays[which], random_.pick(arrays), at);
    } else if (kind < 61) {
      arrays[which] = edited_whole(arrays[which], random_.pick(arrays));
    } else if (kind < 66) {
      std::swap(arrays[0], arrays[which]);
    } else if (kind < 70) {
      arrays[which] = random_.pick(before);
    } else if (kind < 88) {
      arrays = edited_by_branch(arrays, at, depth);
    } else {
      arrays = edited_by_loop(arrays, depth);
    }
  }
  return arrays;
}

bool Generator::edits() {
  static const std::vector<DType> kTypes = {DType::kI32, DType::kI32, DType::kF32, DType::kF32,
                                            DType::kI8,  DType::kF64, DType::kBF16};
  static const std::vector<Dims> kShapes = {{5}, {64}, {130}, {300}, {3, 4}, {12, 31}, {2, 70}};
  const DType dtype = random_.pick(kTypes);
  const Dims dims = random_.pick(kShapes);
  Values arrays;
  const int64_t count = random_.between(1, 3);
  for (int64_t i = 0; i < count; ++i) {
    ir::Value* array = fresh(dtype, dims, Content::kModerate);
    // As it comes from outside, made here, or all zero.
    const int64_t origin = random_.below(100);
    if (origin < 50) array = append(OpCode::kAdd, {array, array})->result();
    if (origin >= 75) array = edited_zeros(array->type());
    arrays.push_back(array);
  }
  arrays = random_.chance(85) ? edited_by_loop(arrays, 0) : edited(arrays, scalar_i32(1), 0);
  values_.insert(values_.end(), arrays.begin(), arrays.end());
  return true;
}

}  // namespace hekla::testing
