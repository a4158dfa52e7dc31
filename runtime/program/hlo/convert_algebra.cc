// SPDX-License-Identifier: Apache-2.0
// Linear algebra, FFT, random numbers, batch normalisation.
#include <utility>

#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;

// The word of an enumeration; null for a number that it does not have.
const char* word_of(std::span<const char* const> words, int64_t number) {
  if (number < 0 || number >= static_cast<int64_t>(words.size())) return nullptr;
  return words[static_cast<size_t>(number)];
}

Result<Leaves> convert_fft(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  constexpr const char* kTypes[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  const char* type = word_of(kTypes, site.fields().integer(kFftType));
  if (type == nullptr) return site.error("the FFT type number {}", site.fields().integer(kFftType));
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> length, site.integers(kFftLength));
  return site.append(OpCode::kFft, std::move(operands),
                     {{"fft_type", ir::enum_attribute("fft_type", type)},
                      {"fft_length", ir::i64_array(std::move(length))}});
}

Result<Leaves> convert_cholesky(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const Message options,
                         site.fields().message(kCholeskyOptions, "Cholesky options"));
  return site.append(OpCode::kCholesky, std::move(operands),
                     {{"lower", ir::BoolValue{options.flag(1)}}});
}

Result<Leaves> convert_triangular_solve(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const Message options,
                         site.fields().message(kTriangularSolveOptions, "solve options"));
  constexpr const char* kWords[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  const char* transpose = word_of(kWords, options.integer(4));
  if (transpose == nullptr || options.integer(4) == 0) {
    return site.error("the transposition number {}", options.integer(4));
  }
  return site.append(OpCode::kTriangularSolve, std::move(operands),
                     {{"left_side", ir::BoolValue{options.flag(1)}},
                      {"lower", ir::BoolValue{options.flag(2)}},
                      {"unit_diagonal", ir::BoolValue{options.flag(3)}},
                      {"transpose_a", ir::enum_attribute("transpose", transpose)}});
}

Result<Leaves> convert_rng(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(2));
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_ASSIGN_OR_RETURN(const ir::Type type, site.array_type());
  constexpr const char* kWords[] = {"INVALID", "UNIFORM", "NORMAL"};
  const int64_t number = site.fields().integer(kDistribution);
  const char* distribution = word_of(kWords, number);
  if (distribution == nullptr || number == 0)
    return site.error("the distribution number {}", number);
  const Dims rank = {type.rank()};
  operands.push_back(
      site.builder().constant(HostArray::from<int64_t>(DType::kI64, rank, type.dims())));
  return site.append(OpCode::kRng, std::move(operands),
                     {{"rng_distribution", ir::enum_attribute("rng_distribution", distribution)}});
}

Result<Leaves> convert_rng_bit_generator(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  constexpr const char* kWords[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
  const char* algorithm = word_of(kWords, site.fields().integer(kRngAlgorithm));
  if (algorithm == nullptr) {
    return site.error("the algorithm number {}", site.fields().integer(kRngAlgorithm));
  }
  const ir::Attribute word = ir::enum_attribute("rng_algorithm", algorithm);
  // Of older writers: the bits alone, and the state is given up.
  if (site.shape().is_array() && !operands.empty()) {
    return Leaves{site.append_as(OpCode::kRngBitGenerator, {operands[0]->type(), site.shape().type},
                                 operands, {{"rng_algorithm", word}})[1]};
  }
  return site.append(OpCode::kRngBitGenerator, std::move(operands), {{"rng_algorithm", word}});
}

Result<Leaves> convert_batch_norm(const Site& site, OpCode code) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  return site.append(
      code, std::move(operands),
      {{"epsilon", ir::FloatValue{ir::Type::scalar(DType::kF32), site.fields().bits(kEpsilon)}},
       {"feature_index", ir::i64_attribute(site.fields().integer(kFeatureIndex))}});
}

Result<Leaves> convert_batch_norm_training(const Site& site) {
  return convert_batch_norm(site, OpCode::kBatchNormTraining);
}
Result<Leaves> convert_batch_norm_inference(const Site& site) {
  return convert_batch_norm(site, OpCode::kBatchNormInference);
}
Result<Leaves> convert_batch_norm_grad(const Site& site) {
  return convert_batch_norm(site, OpCode::kBatchNormGrad);
}

constexpr Handler kAlgebra[] = {
    {"batch-norm-grad", convert_batch_norm_grad},
    {"batch-norm-inference", convert_batch_norm_inference},
    {"batch-norm-training", convert_batch_norm_training},
    {"cholesky", convert_cholesky},
    {"fft", convert_fft},
    {"rng", convert_rng},
    {"rng-bit-generator", convert_rng_bit_generator},
    {"triangular-solve", convert_triangular_solve},
};

}  // namespace

std::span<const Handler> algebra_handlers() { return kAlgebra; }

}  // namespace hekla::hlo
