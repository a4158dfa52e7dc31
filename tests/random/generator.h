// SPDX-License-Identifier: Apache-2.0
// The parts of generate.cc. Not for others.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "tests/random/generate.h"
#include "tests/random/random.h"

namespace hekla::testing {

// What values a fresh array has.
enum class Content {
  kAny,       // mostly moderate; integers of any size, sometimes NaN, infinities, signed zeros
  kModerate,  // floats in [-2, 2), no zero; integers -8 to 8 (as far as they fit)
  kPositive,  // floats in [0.5, 2); integers 1 to 8
};

class Generator {
 public:
  Generator(uint64_t seed, const GenerateOptions& options);
  RandomProgram run();

 private:
  using Values = std::vector<ir::Value*>;
  using Regions = std::vector<std::unique_ptr<ir::Region>>;

  // --- generate.cc: values, types, operations ---
  DType any_dtype();
  DType arithmetic_dtype();  // i1 and the types of at most six bits are rare
  DType float_dtype();
  Dims any_dims(int64_t max_rank = 4);
  int64_t any_size();
  bool fits(const Dims& dims) const;
  HostArray array_of(const ir::Type& type, Content content);
  // A new argument of the entry, or a constant where arguments cannot be seen.
  ir::Value* fresh(DType dtype, Dims dims, Content content = Content::kAny);
  ir::Value* constant(HostArray array);
  ir::Value* scalar_i32(int64_t value);
  // Some value in sight; a fresh one now and then.
  ir::Value* any_value();
  ir::Value* value_where(const std::function<bool(const ir::Type&)>& wanted);
  ir::Value* tensor_of_rank(int64_t low, int64_t high);
  // A value of this type: one in sight, one made of another by an operation, or a fresh one.
  ir::Value* want(DType dtype, const Dims& dims);
  // Null when the operation is not well-typed or too large; nothing has happened then.
  ir::Operation* append(ir::OpCode code, Values operands, std::vector<ir::Type> declared = {},
                        std::vector<ir::NamedAttribute> attributes = {}, Regions regions = {});
  void grow(int count);
  bool may_be_nan(const ir::Value& value) const;

  // --- one family each; false when nothing came of it ---
  bool elementwise();
  bool conversion();
  bool movement();
  bool dynamic_movement();
  bool gather();
  bool scatter();
  bool reduce();
  bool reduce_window();
  bool cumulative();
  bool select_and_scatter();
  bool map();
  bool sort();
  bool top_k();
  bool contraction();
  bool attention();
  ir::DotAlgorithm algorithm();
  bool convolution();
  bool algebra();
  bool random_bits();
  bool batch_norm();
  bool loop();
  bool scan();
  bool branch();
  bool call();
  bool other();

  // --- generate_edits.cc ---
  bool edits();
  ir::Value* edited_place(ir::Value* at, int64_t size);
  ir::Value* edited_window(ir::Value* array, ir::Value* at, const Dims& window);
  ir::Value* window_at(ir::Value* array, const Values& places, const Dims& window);
  ir::Value* edited_part(ir::Value* array, ir::Value* other, ir::Value* at);
  ir::Value* edited_whole(ir::Value* array, ir::Value* other);
  ir::Value* edited_zeros(const ir::Type& type);
  ir::Value* edited_splat(const ir::Type& type, double number);
  ir::Value* edited_term(const ir::Type& type, ir::Value* other, ir::Value* at);
  ir::Value* edited_where(ir::Value* array, ir::Value* other, ir::Value* at);
  ir::Value* edited_sum(ir::Value* array, ir::Value* other, ir::Value* at);
  Values edited_by_branch(const Values& arrays, ir::Value* at, int depth);
  Values edited_by_loop(const Values& arrays, int depth);
  Values edited(Values arrays, ir::Value* at, int depth);

  bool reduce_arg();
  bool reduce_in_order();
  bool row_chain();
  ir::Operation* unary(ir::OpCode code, ir::Value* x);
  ir::Operation* binary(ir::OpCode code, ir::Value* x, ir::Value* y);

  // --- regions ---
  // A region on scalars with one operation.
  std::unique_ptr<ir::Region> scalar_region(ir::OpCode code, DType dtype);
  // An associative operation for dtype with a start value: when `neutral`, one that may count any
  // number of times.
  std::pair<ir::OpCode, HostArray> reducer(DType dtype, bool neutral = false);
  struct Window {
    std::vector<ir::NamedAttribute> attributes;
    Dims result;
  };
  Window window(const Dims& dims, bool plain);

  Random random_;
  GenerateOptions options_;
  std::shared_ptr<ir::Module> module_;
  ir::Function* entry_ = nullptr;
  std::vector<HostArray> inputs_;
  ir::Block* block_ = nullptr;  // where operations go
  Values values_;               // in sight
  int depth_ = 0;               // of regions and functions
  bool sees_arguments_ = true;
  int functions_ = 0;  // beside the entry
  int made_ = 0;       // operations, all regions together
};

// Tensor types in short.
inline ir::Type tensor(DType dtype, Dims dims) { return ir::Type::tensor(dtype, std::move(dims)); }
// [n, 2] of i64: `padding`.
ir::Attribute pairs_attribute(const std::vector<std::pair<int64_t, int64_t>>& pairs);
// One element of the dtype with about this value.
HostArray number(DType dtype, double value);
void set_number(HostArray& array, int64_t part, double value);

// Types whose arithmetic every operation has.
bool is_tiny(DType dtype);  // below eight bits, f8E8M0FNU

}  // namespace hekla::testing
