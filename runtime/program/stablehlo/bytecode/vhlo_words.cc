// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/vhlo_words.h"

#include <algorithm>

namespace hekla::stablehlo {
namespace {

const std::vector<VhloEnum>& enums() {
  static const std::vector<VhloEnum> kEnums = {
      {3, 2, "ComparisonDirectionV1", "comparison_direction", {"EQ", "NE", "GE", "GT", "LE", "LT"}},
      {4,
       3,
       "ComparisonTypeV1",
       "comparison_type",
       {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"}},
      {5,
       0,
       "CustomCallApiVersionV1",
       "custom_call_api_version",
       {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"}},
      {7, 6, "FftTypeV1", "fft_type", {"FFT", "IFFT", "RFFT", "IRFFT"}},
      {11, 8, "PrecisionV1", "precision", {"DEFAULT", "HIGH", "HIGHEST"}},
      {12, 9, "RngAlgorithmV1", "rng_algorithm", {"DEFAULT", "THREE_FRY", "PHILOX"}},
      {13, 10, "RngDistributionV1", "rng_distribution", {"", "UNIFORM", "NORMAL"}},
      {16,
       12,
       "TransposeV1",
       "transpose",
       {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}},
      {19, 16, "ResultAccuracyModeV1", "result_accuracy_mode", {"DEFAULT", "HIGHEST", "TOLERANCE"}},
  };
  return kEnums;
}

template <typename Matches>
const VhloEnum* find(const Matches& matches) {
  const auto it = std::find_if(enums().begin(), enums().end(), matches);
  return it == enums().end() ? nullptr : &*it;
}

}  // namespace

const VhloEnum* vhlo_enum_of_code(uint64_t code) {
  return find([&](const VhloEnum& e) { return e.code == code; });
}

const VhloEnum* vhlo_enum_of_native_code(uint64_t native_code) {
  return native_code == 0 ? nullptr
                          : find([&](const VhloEnum& e) { return e.native_code == native_code; });
}

const VhloEnum* vhlo_enum_of_name(std::string_view name) {
  return find([&](const VhloEnum& e) { return e.name == name; });
}

const VhloEnum* vhlo_enum_of_kind(std::string_view kind) {
  return find([&](const VhloEnum& e) { return e.kind == kind; });
}

}  // namespace hekla::stablehlo
