// SPDX-License-Identifier: Apache-2.0
// Values, types, and how a program grows.
#include "tests/random/generate.h"

#include <algorithm>
#include <cmath>

#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/infer.h"
#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

namespace {

// From which array sizes on dimensions are drawn at which ordinary devices choose otherwise.
constexpr int64_t kMiddleElements = 1000;
constexpr int64_t kLargeElements = 20'000;

}  // namespace

GenerateOptions mixed_sizes(uint64_t seed) {
  switch (seed % 20) {
    case 0:
      return {4, 60'000, false};
    case 1:
    case 2:
    case 3:
    case 4:
      return {6, 4'000, false};
    default:
      return {};
  }
}

bool is_tiny(DType dtype) {
  return dtype == DType::kI1 || dtype_bits(dtype) < 8 || dtype == DType::kF8E8M0FNU;
}

ir::Attribute pairs_attribute(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  const Dims dims = {static_cast<int64_t>(pairs.size()), 2};
  HostArray values(DType::kI64, dims);
  for (size_t i = 0; i < pairs.size(); ++i) {
    values.mutable_as<int64_t>()[2 * i] = pairs[i].first;
    values.mutable_as<int64_t>()[2 * i + 1] = pairs[i].second;
  }
  return ir::make_dense(tensor(DType::kI64, dims), std::move(values));
}

void set_number(HostArray& array, int64_t part, double value) {
  const DType dtype = complex_part(array.dtype());
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  uint64_t bits = 0;
  if (is_float(dtype)) {
    bits = float_to_bits(dtype, dtype == DType::kF8E8M0FNU ? std::fabs(value) : value);
  } else if (dtype == DType::kI1) {
    bits = value != 0 ? 1 : 0;
  } else {
    const int unused = 64 - dtype_bits(dtype);
    const auto whole = static_cast<uint64_t>(static_cast<int64_t>(value)) << unused;
    bits = is_signed_integer(dtype) ? static_cast<uint64_t>(static_cast<int64_t>(whole) >> unused)
                                    : whole >> unused;
  }
  std::memcpy(array.mutable_data() + static_cast<size_t>(part) * width, &bits, width);
}

HostArray number(DType dtype, double value) {
  HostArray array(dtype, {});
  set_number(array, 0, value);
  return array;
}

Generator::Generator(uint64_t seed, const GenerateOptions& options)
    : random_(seed), options_(options), module_(std::make_shared<ir::Module>()) {}

DType Generator::any_dtype() {
  static const std::vector<DType> kCommon = {
      DType::kF32, DType::kF32,  DType::kF32, DType::kF32, DType::kF32,  DType::kI32,
      DType::kI32, DType::kI32,  DType::kF64, DType::kI64, DType::kUI32, DType::kI1,
      DType::kI1,  DType::kBF16, DType::kF16, DType::kI8,  DType::kUI8,  DType::kC64};
  static const std::vector<DType> kAll = [] {
    std::vector<DType> all;
    for (int i = 1; i < kDTypeCount; ++i) {
      // tf32 has no name in the C API.
      if (const auto dtype = static_cast<DType>(i); dtype != DType::kTF32) all.push_back(dtype);
    }
    return all;
  }();
  return random_.pick(random_.chance(70) ? kCommon : kAll);
}

DType Generator::arithmetic_dtype() {
  DType dtype = any_dtype();
  while (is_tiny(dtype) && !random_.chance(10)) dtype = any_dtype();
  return dtype;
}

DType Generator::float_dtype() {
  static const std::vector<DType> kFloats = {DType::kF32,      DType::kF32,    DType::kF32,
                                             DType::kF64,      DType::kF16,    DType::kBF16,
                                             DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E4M3FNUZ};
  return random_.pick(kFloats);
}

int64_t Generator::any_size() {
  static const std::vector<int64_t> kSizes = {1, 1, 2, 2,  3,  3,  3,  4,  4,  5,  5,  6,  7,  7,
                                              8, 8, 9, 11, 13, 16, 17, 19, 31, 32, 33, 63, 64, 65};
  static const std::vector<int64_t> kMiddle = {96, 127, 128, 129, 255, 256, 257, 320, 500, 1000};
  static const std::vector<int64_t> kLong = {511, 512, 513, 1023, 1024, 1025, 2048, 4097, 20'000};
  if (random_.chance(1)) return 0;
  if (options_.max_elements >= kLargeElements && random_.chance(25)) return random_.pick(kLong);
  if (options_.max_elements >= kMiddleElements && random_.chance(40)) return random_.pick(kMiddle);
  return random_.pick(kSizes);
}

bool Generator::fits(const Dims& dims) const {
  double count = 1;
  for (int64_t d : dims) count *= static_cast<double>(d);
  return count <= static_cast<double>(options_.max_elements);
}

Dims Generator::any_dims(int64_t max_rank) {
  // Often a shape that is there, so that values meet.
  if (!values_.empty() && random_.chance(50)) {
    const ir::Value* value = random_.pick(values_);
    if (value->type().rank() <= max_rank) return value->type().dims();
  }
  Dims dims(static_cast<size_t>(random_.between(0, max_rank)));
  for (int64_t& d : dims) d = any_size();
  while (!fits(dims)) {
    auto largest = std::max_element(dims.begin(), dims.end());
    *largest = std::max<int64_t>(1, *largest / 3);
  }
  return dims;
}

HostArray Generator::array_of(const ir::Type& type, Content content) {
  HostArray array(type.dtype(), type.dims());
  const DType part = complex_part(type.dtype());
  const int64_t count = array.size() * (is_complex(type.dtype()) ? 2 : 1);
  const bool has_specials = content == Content::kAny && random_.chance(20);
  const bool is_wide = content == Content::kAny && random_.chance(40);
  static const std::vector<double> kSpecials = {0.0,  -0.0,  NAN,  INFINITY, -INFINITY, 1.0,
                                                -1.0, 100.0, -0.5, 2.5,      65536.0,   -300.25};
  for (int64_t i = 0; i < count; ++i) {
    double value = 0;
    if (is_float(part)) {
      value = random_.unit() * 4 - 2;
      if (has_specials && random_.chance(25)) value = random_.pick(kSpecials);
      if (content == Content::kPositive) value = 0.5 + random_.unit() * 1.5;
      if (content == Content::kModerate && std::fabs(value) < 0.01) value = 0.75;
    } else if (content == Content::kPositive) {
      value = static_cast<double>(random_.between(1, 8));
    } else {
      value = static_cast<double>(random_.between(is_unsigned_integer(part) ? 0 : -8, 8));
      if (is_wide) value = std::ldexp(random_.unit() - 0.5, static_cast<int>(random_.below(64)));
    }
    set_number(array, i, value);
  }
  return array;
}

ir::Value* Generator::constant(HostArray array) {
  const ir::Type type = tensor(array.dtype(), array.dims());
  ir::Operation* op =
      block_->append(OpCode::kConstant, {}, {type},
                     ir::AttributeMap({{"value", ir::make_dense(type, std::move(array))}}));
  return op->result();
}

ir::Value* Generator::scalar_i32(int64_t value) {
  return constant(number(DType::kI32, static_cast<double>(value)));
}

ir::Value* Generator::fresh(DType dtype, Dims dims, Content content) {
  const ir::Type type = tensor(dtype, std::move(dims));
  HostArray array = array_of(type, content);
  ir::Value* value = nullptr;
  if (sees_arguments_ && random_.chance(75)) {
    value = entry_->body().front().add_argument(type);
    inputs_.push_back(std::move(array));
  } else {
    value = constant(std::move(array));
  }
  values_.push_back(value);
  return value;
}

ir::Value* Generator::any_value() {
  if (values_.empty() || random_.chance(8)) return fresh(any_dtype(), any_dims());
  // Half of the time one of the newest, so that chains become long.
  if (random_.chance(50)) {
    const auto recent = std::min<int64_t>(4, static_cast<int64_t>(values_.size()));
    return values_[values_.size() - 1 - static_cast<size_t>(random_.below(recent))];
  }
  return random_.pick(values_);
}

ir::Value* Generator::value_where(const std::function<bool(const ir::Type&)>& wanted) {
  for (int i = 0; i < 12 && !values_.empty(); ++i) {
    ir::Value* value = any_value();
    if (wanted(value->type())) return value;
  }
  return nullptr;
}

ir::Value* Generator::tensor_of_rank(int64_t low, int64_t high) {
  ir::Value* value =
      value_where([&](const ir::Type& type) { return type.rank() >= low && type.rank() <= high; });
  if (value != nullptr) return value;
  Dims dims = any_dims(high);
  while (static_cast<int64_t>(dims.size()) < low) dims.push_back(random_.between(1, 5));
  while (!fits(dims)) {
    for (int64_t& d : dims) d = std::max<int64_t>(1, d / 2);
  }
  return fresh(any_dtype(), dims);
}

ir::Value* Generator::want(DType dtype, const Dims& dims) {
  const ir::Type type = tensor(dtype, dims);
  Values same, same_shape, same_size, spreads;
  for (ir::Value* value : values_) {
    const ir::Type& has = value->type();
    if (has == type) {
      same.push_back(value);
    } else if (has.dims() == dims) {
      same_shape.push_back(value);
    } else if (has.dtype() == dtype && element_count(has.dims()) == element_count(dims)) {
      same_size.push_back(value);
    } else if (has.dtype() == dtype && has.rank() <= type.rank() && has.rank() <= 1 &&
               (has.rank() == 0 || (!dims.empty() && has.dims()[0] == dims.back()))) {
      spreads.push_back(value);
    }
  }
  if (!same.empty() && random_.chance(70)) return random_.pick(same);
  const auto result = [&](ir::Operation* op) -> ir::Value* { return op->result(); };
  const bool from_any = dtype != DType::kI1 && !is_tiny(dtype) && !is_complex(dtype);
  if (!same_shape.empty() && from_any && random_.chance(40)) {
    ir::Value* from = random_.pick(same_shape);
    if (ir::Operation* op = append(OpCode::kConvert, {from}, {type})) return result(op);
  }
  if (!same_size.empty() && random_.chance(40)) {
    if (auto* op = append(OpCode::kReshape, {random_.pick(same_size)}, {type})) return result(op);
  }
  if (!spreads.empty() && random_.chance(60)) {
    ir::Value* from = random_.pick(spreads);
    std::vector<int64_t> places;
    if (from->type().rank() == 1) places.push_back(type.rank() - 1);
    if (auto* op = append(OpCode::kBroadcastInDim, {from}, {type},
                          {{"broadcast_dimensions", ir::i64_array(places)}})) {
      return result(op);
    }
  }
  if (!same.empty()) return random_.pick(same);
  return fresh(dtype, dims);
}

ir::Operation* Generator::append(OpCode code, Values operands, std::vector<ir::Type> declared,
                                 std::vector<ir::NamedAttribute> attributes, Regions regions) {
  for (const ir::Value* operand : operands) {
    if (operand == nullptr) return nullptr;
  }
  std::sort(attributes.begin(), attributes.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto make = [&](std::vector<ir::Type> types) {
    auto op = std::make_unique<ir::Operation>(code, operands, std::move(types),
                                              ir::AttributeMap(attributes));
    for (auto it = op->attributes().begin(); it != op->attributes().end();) {
      // Readers leave out what has its default value.
      if (ir::is_default_attribute(code, it->first, it->second)) {
        op->attributes().erase(std::string(it->first));
        it = op->attributes().begin();
      } else {
        ++it;
      }
    }
    return op;
  };
  auto op = make(declared);
  for (auto& region : regions) op->adopt_region(std::move(region));
  const Result<std::vector<ir::Type>> types = ir::infer_result_types(*op);
  if (!types.ok()) return nullptr;
  for (const ir::Type& type : *types) {
    if (!type.is_tensor()) continue;
    double count = 1;
    for (int64_t d : type.dims()) count *= static_cast<double>(d);
    if (count > 4 * static_cast<double>(options_.max_elements)) return nullptr;
  }
  if (op->result_types() != *types) {
    if (op->region_count() > 0) return nullptr;
    op = make(*types);
  }
  ir::Operation* made = block_->append(std::move(op));
  for (size_t i = 0; i < made->result_count(); ++i) {
    if (made->result(i)->type().is_tensor()) values_.push_back(made->result(i));
  }
  ++made_;
  return made;
}

void Generator::grow(int count) {
  struct Family {
    bool (Generator::*make)();
    int weight;
    int deepest;  // below how many regions it stands
  };
  static const std::vector<Family> kFamilies = {
      {&Generator::elementwise, 38, 9}, {&Generator::conversion, 8, 9},
      {&Generator::movement, 20, 9},    {&Generator::dynamic_movement, 6, 9},
      {&Generator::gather, 4, 9},       {&Generator::scatter, 4, 9},
      {&Generator::reduce, 10, 9},      {&Generator::reduce_window, 4, 9},
      {&Generator::cumulative, 3, 9},   {&Generator::reduce_arg, 2, 9},
      {&Generator::row_chain, 4, 0},    {&Generator::select_and_scatter, 2, 0},
      {&Generator::map, 2, 9},          {&Generator::sort, 6, 9},
      {&Generator::top_k, 2, 9},        {&Generator::contraction, 6, 9},
      {&Generator::convolution, 4, 0},  {&Generator::algebra, 3, 0},
      {&Generator::random_bits, 2, 9},  {&Generator::batch_norm, 2, 0},
      {&Generator::loop, 4, 1},         {&Generator::scan, 3, 1},
      {&Generator::branch, 4, 1},       {&Generator::call, 2, 1},
      {&Generator::other, 3, 9}};
  static const int kTotal = [] {
    int total = 0;
    for (const Family& family : kFamilies) total += family.weight;
    return total;
  }();
  static const std::vector<bool (Generator::*)()> kLoops = {
      &Generator::reduce,      &Generator::reduce,     &Generator::reduce_window,
      &Generator::cumulative,  &Generator::cumulative, &Generator::scatter,
      &Generator::sort,        &Generator::sort,       &Generator::top_k,
      &Generator::contraction, &Generator::contraction};
  const int goal = made_ + count;
  for (int tries = 0; made_ < goal && tries < 20 * count; ++tries) {
    if (options_.loops && depth_ == 0 && random_.chance(60)) {
      (this->*random_.pick(kLoops))();
      continue;
    }
    int64_t at = random_.below(kTotal);
    for (const Family& family : kFamilies) {
      at -= family.weight;
      if (at >= 0) continue;
      if (depth_ <= family.deepest) (this->*family.make)();
      break;
    }
  }
}

RandomProgram Generator::run() {
  auto function = std::make_unique<ir::Function>("main");
  function->visibility = ir::Function::Visibility::kPublic;
  entry_ = function.get();
  module_->functions.push_back(std::move(function));
  block_ = &entry_->body().add_block();
  // One seed in a few is of one or two operations, and one of many.
  int ops = options_.ops;
  if (random_.chance(25)) ops = static_cast<int>(random_.between(1, 3));
  if (random_.chance(8)) ops *= 3;
  if (options_.attention) {
    attention();
  } else if (options_.edits) {
    edits();
  } else {
    fresh(any_dtype(), any_dims());
    grow(ops);
  }
  // All that nobody uses, and now and then something inside.
  std::vector<ir::Value*> results;
  for (const auto& op : block_->operations()) {
    for (size_t i = 0; i < op->result_count(); ++i) {
      ir::Value* value = op->result(i);
      if (!value->type().is_tensor() || op->code() == OpCode::kConstant) continue;
      if (!value->has_uses() || (!options_.attention && random_.chance(10)))
        results.push_back(value);
    }
  }
  if (results.empty()) results.push_back(values_.back());
  block_->append(OpCode::kFuncReturn, results, {});
  std::vector<ir::Type> types;
  for (const ir::Value* value : results) types.push_back(value->type());
  entry_->type = ir::Type::function(block_->argument_types(), types);
  entry_->argument_attributes.resize(block_->argument_count());
  entry_->result_attributes.resize(types.size());
  // Without what operations that were given up left behind as users of values.
  return {ir::clone_module(*module_), std::move(inputs_)};
}

RandomProgram random_program(uint64_t seed, const GenerateOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace hekla::testing
