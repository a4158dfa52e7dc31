// SPDX-License-Identifier: Apache-2.0
// Contractions, convolutions, transforms, linear algebra, random bits, batch normalisation.
#include <algorithm>
#include <numeric>

#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

namespace {

DType wider(Random& random, DType dtype) {
  if (random.chance(70)) return dtype;
  switch (dtype) {
    case DType::kBF16:
    case DType::kF16:
      return DType::kF32;
    case DType::kI8:
      return DType::kI32;
    case DType::kUI8:
      return DType::kUI32;
    case DType::kF32:
      return DType::kF64;
    default:
      return is_float(dtype) && dtype_bits(dtype) == 8 ? DType::kF32 : dtype;
  }
}

ir::Attribute float_attribute(float value) {
  return ir::Attribute(
      ir::FloatValue{ir::Type::scalar(DType::kF32), float_to_bits(DType::kF32, value)});
}

}  // namespace

bool Generator::contraction() {
  ir::Value* x = tensor_of_rank(0, 4);
  if (x == nullptr) return false;
  const DType dtype = x->type().dtype();
  if (dtype == DType::kI1 || dtype == DType::kF8E8M0FNU) return false;
  if (depth_ > 0 && !is_integer(dtype)) return false;
  const Dims& dims = x->type().dims();
  if (random_.chance(15) && x->type().rank() >= 1 && x->type().rank() <= 2) {
    Dims other = {dims.back()};
    if (random_.chance(60)) other.push_back(any_size());
    if (!fits(other)) return false;
    Dims out(dims.begin(), dims.end() - 1);
    out.insert(out.end(), other.begin() + 1, other.end());
    return append(OpCode::kDot, {x, want(dtype, other)}, {tensor(wider(random_, dtype), out)}) !=
           nullptr;
  }
  struct Dim {
    int64_t size;
    int64_t left = -1;  // batching or contracting with this dimension of the left side
  };
  ir::DotDimensionNumbers n;
  std::vector<Dim> right;
  Dims out, out_left;
  std::vector<int64_t> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  random_.shuffle(order);
  std::vector<int64_t> batching, contracting;
  for (int64_t d : order) {
    const int64_t kind = random_.below(10);
    if (kind < 2) batching.push_back(d);
    if (kind >= 2 && kind < 6) contracting.push_back(d);
  }
  for (int64_t d : batching) right.push_back({dims[static_cast<size_t>(d)], d});
  for (int64_t d : contracting) right.push_back({dims[static_cast<size_t>(d)], d});
  const int64_t free = random_.between(0, 2);
  for (int64_t i = 0; i < free; ++i) right.push_back({random_.between(1, 20), -1});
  random_.shuffle(right);
  const auto place = [&](int64_t left) {
    for (size_t i = 0; i < right.size(); ++i) {
      if (right[i].left == left) return static_cast<int64_t>(i);
    }
    return int64_t{-1};
  };
  n.lhs_batching_dimensions = batching;
  n.lhs_contracting_dimensions = contracting;
  for (int64_t d : batching) {
    n.rhs_batching_dimensions.push_back(place(d));
    out.push_back(dims[static_cast<size_t>(d)]);
  }
  for (int64_t d : contracting) n.rhs_contracting_dimensions.push_back(place(d));
  for (size_t d = 0; d < dims.size(); ++d) {
    const auto at = static_cast<int64_t>(d);
    if (std::find(batching.begin(), batching.end(), at) == batching.end() &&
        std::find(contracting.begin(), contracting.end(), at) == contracting.end()) {
      out.push_back(dims[d]);
    }
  }
  Dims other;
  for (const Dim& d : right) {
    other.push_back(d.size);
    if (d.left < 0) out.push_back(d.size);
  }
  if (!fits(other) || !fits(out)) return false;
  std::vector<ir::NamedAttribute> attributes = {{"dot_dimension_numbers", ir::Attribute(n)}};
  if (is_float(dtype) && random_.chance(25)) attributes.push_back({"algorithm", algorithm()});
  return append(OpCode::kDotGeneral, {x, want(dtype, other)}, {tensor(wider(random_, dtype), out)},
                std::move(attributes)) != nullptr;
}

// One of those that StableHLO knows.
ir::DotAlgorithm Generator::algorithm() {
  struct Known {
    DType type, sum;
    std::vector<int64_t> products;
  };
  const std::vector<Known> known = {
      {DType::kF8E4M3FN, DType::kF32, {1}}, {DType::kF8E5M2, DType::kF32, {1}},
      {DType::kF16, DType::kF16, {1}},      {DType::kF16, DType::kF32, {1}},
      {DType::kBF16, DType::kBF16, {1}},    {DType::kBF16, DType::kF32, {1, 3, 6, 9}},
      {DType::kTF32, DType::kF32, {1, 3}},  {DType::kF32, DType::kF32, {1}},
      {DType::kF64, DType::kF64, {1}}};
  const Known& chosen = random_.pick(known);
  ir::DotAlgorithm algorithm;
  algorithm.lhs_precision_type = algorithm.rhs_precision_type = ir::Type::scalar(chosen.type);
  algorithm.accumulation_type = ir::Type::scalar(chosen.sum);
  algorithm.num_primitive_operations = random_.pick(chosen.products);
  algorithm.allow_imprecise_accumulation = dtype_bits(chosen.type) == 8 && random_.chance(50);
  return algorithm;
}

bool Generator::convolution() {
  DType dtype = arithmetic_dtype();
  while (dtype == DType::kI1 || is_tiny(dtype)) dtype = arithmetic_dtype();
  const int64_t spatial = random_.between(0, 3);
  const int64_t groups = random_.chance(75) ? 1 : random_.between(2, 3);
  const bool in_batch = random_.chance(30);
  const int64_t feature_groups = in_batch ? 1 : groups;
  const int64_t batch_groups = in_batch ? groups : 1;
  const int64_t kernel_in = random_.between(1, 4);
  const int64_t kernel_out = groups * random_.between(1, 4);
  // As the gradient by the kernel of a channels-first convolution: a window of the image's size.
  const bool is_gradient = spatial > 0 && random_.chance(25);
  Dims sizes, kernel;
  std::vector<int64_t> strides, lhs_dilation, rhs_dilation, reversal;
  std::vector<std::pair<int64_t, int64_t>> padding;
  for (int64_t i = 0; i < spatial; ++i) {
    sizes.push_back(random_.between(1, spatial == 1 ? 17 : 7));
    kernel.push_back(is_gradient ? sizes.back() + random_.between(-1, 1) : random_.between(1, 4));
    kernel.back() = std::max<int64_t>(1, kernel.back());
    strides.push_back(random_.chance(60) ? 1 : random_.between(1, 3));
    lhs_dilation.push_back(random_.chance(75) ? 1 : random_.between(1, 3));
    rhs_dilation.push_back(random_.chance(75) ? 1 : random_.between(1, 3));
    padding.push_back({random_.between(-1, 3), random_.between(-1, 3)});
    reversal.push_back(random_.chance(20) ? 1 : 0);
  }
  const auto rank = static_cast<size_t>(spatial + 2);
  const auto permutation = [&] {
    std::vector<int64_t> p(rank);
    std::iota(p.begin(), p.end(), 0);
    if (!is_gradient) random_.shuffle(p);
    return p;
  };
  ir::ConvDimensionNumbers n;
  const auto in = permutation(), w = permutation(), out = permutation();
  n.input_batch_dimension = in[0];
  n.input_feature_dimension = in[1];
  n.input_spatial_dimensions.assign(in.begin() + 2, in.end());
  n.kernel_input_feature_dimension = w[0];
  n.kernel_output_feature_dimension = w[1];
  n.kernel_spatial_dimensions.assign(w.begin() + 2, w.end());
  n.output_batch_dimension = out[0];
  n.output_feature_dimension = out[1];
  n.output_spatial_dimensions.assign(out.begin() + 2, out.end());
  Dims input_dims(rank), kernel_dims(rank);
  input_dims[static_cast<size_t>(in[0])] = batch_groups * random_.between(1, 3);
  input_dims[static_cast<size_t>(in[1])] = kernel_in * feature_groups;
  kernel_dims[static_cast<size_t>(w[0])] = kernel_in;
  kernel_dims[static_cast<size_t>(w[1])] = kernel_out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    input_dims[static_cast<size_t>(in[i + 2])] = sizes[i];
    kernel_dims[static_cast<size_t>(w[i + 2])] = kernel[i];
  }
  std::vector<ir::NamedAttribute> attributes = {
      {"dimension_numbers", ir::Attribute(n)},
      {"feature_group_count", ir::i64_attribute(feature_groups)},
      {"batch_group_count", ir::i64_attribute(batch_groups)}};
  if (spatial > 0) {
    attributes.push_back({"window_strides", ir::i64_array(strides)});
    attributes.push_back({"lhs_dilation", ir::i64_array(lhs_dilation)});
    attributes.push_back({"rhs_dilation", ir::i64_array(rhs_dilation)});
    attributes.push_back({"padding", pairs_attribute(padding)});
    attributes.push_back(
        {"window_reversal", ir::bool_array(std::vector<bool>(reversal.begin(), reversal.end()))});
  }
  // The result's shape follows from the rest: asked for with a shape of that rank first.
  std::vector<ir::Value*> operands = {want(dtype, input_dims), want(dtype, kernel_dims)};
  return append(OpCode::kConvolution, operands, {tensor(wider(random_, dtype), Dims(rank, 1))},
                attributes) != nullptr;
}

bool Generator::algebra() {
  const bool is_double = random_.chance(30);
  const DType real = is_double ? DType::kF64 : DType::kF32;
  if (random_.chance(60)) {
    static const std::vector<const char*> kKinds = {"FFT", "IFFT", "RFFT", "IRFFT"};
    const std::string kind = kKinds[static_cast<size_t>(random_.below(4))];
    const int64_t rank = random_.between(1, 3);
    std::vector<int64_t> length;
    for (int64_t i = 0; i < rank; ++i) length.push_back(random_.between(1, rank == 1 ? 33 : 8));
    // Passes with loops, convolutions, and pairs of real numbers of both.
    static const std::vector<int64_t> kPrimes = {29, 31, 37, 53, 61, 67, 71, 127};
    if (rank == 1 && random_.chance(40)) {
      length[0] = random_.pick(kPrimes) * random_.between(1, 4);
    }
    Dims dims = length;
    if (kind == "IRFFT") dims.back() = length.back() / 2 + 1;
    if (random_.chance(50)) dims.insert(dims.begin(), random_.between(1, 4));
    if (!fits(dims)) return false;
    const DType dtype = kind == "RFFT" ? real : complex_of(real);
    return append(OpCode::kFft, {fresh(dtype, dims, Content::kModerate)}, {},
                  {{"fft_type", ir::enum_attribute("fft_type", kind)},
                   {"fft_length", ir::i64_array(length)}}) != nullptr;
  }
  int64_t n = random_.between(1, 8);
  Dims dims = {n, n};
  if (random_.chance(40)) dims.insert(dims.begin(), random_.between(1, 3));
  // As many small matrices as a back end may do side by side.
  if (random_.chance(25)) {
    const int64_t rows = random_.between(2, 17), count = 1024 / (rows * rows) + random_.below(20);
    if (fits({count, rows, rows})) {
      n = rows;
      dims = {count, n, n};
    }
  }
  const DType dtype = random_.chance(20) ? complex_of(real) : real;
  // Strong diagonals: the result then depends smoothly on the entries.
  HostArray a = array_of(tensor(dtype, dims), Content::kModerate);
  const int64_t parts = is_complex(dtype) ? 2 : 1;
  const bool is_cholesky = random_.chance(40);
  for (int64_t m = 0; m < a.size() / (n * n); ++m) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = (m * n * n + i * n + i) * parts;
      set_number(a, at, 3.0 * static_cast<double>(n) + 1 + random_.unit());
      if (parts == 2) set_number(a, at + 1, 0);
    }
  }
  ir::Value* matrix = constant(std::move(a));
  values_.push_back(matrix);
  if (is_cholesky) {
    return append(OpCode::kCholesky, {matrix}, {},
                  {{"lower", ir::Attribute(ir::BoolValue{random_.chance(50)})}}) != nullptr;
  }
  const bool left = random_.chance(50);
  Dims other = dims;
  other[other.size() - (left ? 1 : 2)] = random_.between(1, 6);
  static const std::vector<const char*> kTransposes = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  return append(OpCode::kTriangularSolve, {matrix, fresh(dtype, other, Content::kModerate)}, {},
                {{"left_side", ir::Attribute(ir::BoolValue{left})},
                 {"lower", ir::Attribute(ir::BoolValue{random_.chance(50)})},
                 {"unit_diagonal", ir::Attribute(ir::BoolValue{false})},
                 {"transpose_a",
                  ir::enum_attribute("transpose",
                                     kTransposes[static_cast<size_t>(random_.below(3))])}}) !=
         nullptr;
}

bool Generator::random_bits() {
  const bool is_philox = random_.chance(50);
  const int64_t words = is_philox && random_.chance(50) ? 3 : 2;
  static const std::vector<DType> kTypes = {DType::kUI8,  DType::kUI16, DType::kUI32,
                                            DType::kUI32, DType::kUI64, DType::kI32};
  const DType dtype = random_.pick(kTypes);
  const Dims dims = any_dims();
  return append(OpCode::kRngBitGenerator, {want(DType::kUI64, {words})},
                {tensor(DType::kUI64, {words}), tensor(dtype, dims)},
                {{"rng_algorithm",
                  ir::enum_attribute("rng_algorithm", is_philox ? "PHILOX" : "THREE_FRY")}}) !=
         nullptr;
}

bool Generator::batch_norm() {
  static const std::vector<DType> kTypes = {DType::kF32, DType::kF32, DType::kF64, DType::kF16,
                                            DType::kBF16};
  const DType dtype = random_.pick(kTypes);
  Dims dims = any_dims();
  if (dims.empty()) dims = {any_size()};
  const int64_t feature = random_.below(static_cast<int64_t>(dims.size()));
  const Dims per_feature = {dims[static_cast<size_t>(feature)]};
  if (!fits(dims)) return false;
  const std::vector<ir::NamedAttribute> attributes = {
      {"epsilon", float_attribute(0.25F)}, {"feature_index", ir::i64_attribute(feature)}};
  const auto moderate = [&](const Dims& shape) { return fresh(dtype, shape, Content::kModerate); };
  const auto positive = [&] { return fresh(dtype, per_feature, Content::kPositive); };
  ir::Value* x = moderate(dims);
  switch (random_.below(3)) {
    case 0:
      return append(OpCode::kBatchNormTraining, {x, moderate(per_feature), moderate(per_feature)},
                    {}, attributes) != nullptr;
    case 1:
      return append(OpCode::kBatchNormInference,
                    {x, moderate(per_feature), moderate(per_feature), moderate(per_feature),
                     positive()},
                    {}, attributes) != nullptr;
    default:
      return append(OpCode::kBatchNormGrad,
                    {x, moderate(per_feature), moderate(per_feature), positive(), moderate(dims)},
                    {}, attributes) != nullptr;
  }
}

}  // namespace hekla::testing
