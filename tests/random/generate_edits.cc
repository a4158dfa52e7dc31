// SPDX-License-Identifier: Apache-2.0
// Loops that carry arrays and change parts of them, as tables, buffers and caches are filled:
// windows that are read and written, in branches which leave the other arrays as they are, in inner
// loops, and given back in another order. What is wrong about updates in place shows here.
#include <algorithm>
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
  Values operands{array};
  for (const int64_t size : array->type().dims()) operands.push_back(edited_place(at, size));
  return block_
      ->append(OpCode::kDynamicSlice, operands, {tensor(array->type().dtype(), window)},
               ir::AttributeMap({{"slice_sizes", ir::i64_array(window)}}))
      ->result();
}

// One array, changed in part by what is in another or in itself.
ir::Value* Generator::edited_part(ir::Value* array, ir::Value* other, ir::Value* at) {
  Dims window = array->type().dims();
  for (int64_t& size : window) size = std::min(size, random_.between(1, 2));
  if (window.size() > 1 && random_.chance(30)) window.back() = array->type().dims().back();
  const ir::Type type = tensor(array->type().dtype(), window);
  ir::Value* update = edited_window(other, at, window);
  if (random_.chance(70)) {
    const OpCode code = random_.chance(50) ? OpCode::kAdd : OpCode::kMaximum;
    update = block_->append(code, {update, edited_window(array, at, window)}, {type})->result();
  }
  Values operands{array, update};
  for (const int64_t size : array->type().dims()) operands.push_back(edited_place(at, size));
  return block_->append(OpCode::kDynamicUpdateSlice, operands, {array->type()})->result();
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
    if (kind < 55) {
      arrays[which] = edited_part(arrays[which], random_.pick(arrays), at);
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
    // As it comes from outside, or made here.
    if (random_.chance(50)) array = append(OpCode::kAdd, {array, array})->result();
    arrays.push_back(array);
  }
  arrays = random_.chance(85) ? edited_by_loop(arrays, 0) : edited(arrays, scalar_i32(1), 0);
  values_.insert(values_.end(), arrays.begin(), arrays.end());
  return true;
}

}  // namespace hekla::testing
