// SPDX-License-Identifier: Apache-2.0
// Type: the types of StableHLO values and of type attributes.
//
// A Type is an immutable value that shares its description with its copies; comparison is by
// structure. It may be used from any thread. A default-constructed Type is `none`. The makers trust
// their arguments: readers check sizes and nesting before they build a type.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/host_array.h"

namespace hekla::ir {

// A dimension that is not known before the launch ("?"), and a bound that is not given.
inline constexpr int64_t kDynamic = std::numeric_limits<int64_t>::min();

// Uniform quantization of an element type: real = (stored - zero_point) * scale. One scale and zero
// point per tensor, or one per index of `axis`.
struct Quantization {
  DType storage = DType::kI8;
  DType expressed = DType::kF32;
  int64_t axis = -1;  // -1: per tensor
  std::vector<double> scales;
  std::vector<int64_t> zero_points;
  int64_t storage_min = 0;
  int64_t storage_max = 0;
  bool operator==(const Quantization&) const = default;
};

class Type {
 public:
  enum class Kind : uint8_t {
    kNone,
    kScalar,  // an element type by itself: in attributes only
    kTensor,
    kUnrankedTensor,
    kToken,
    kTuple,
    kFunction,
    kFuture,
    kBuffer,   // memref, in custom calls
    kWitness,  // shape witness
    kOpaque,   // another dialect's type, kept as text
  };

  Type() = default;
  static Type scalar(DType dtype);
  static Type index();
  static Type quantized(Quantization quantization);
  // `element` is a scalar. `bounds` is empty or has one entry per dimension, kDynamic where there
  // is no bound; it is meaningful for dynamic dimensions only.
  static Type tensor(const Type& element, Dims dims, Dims bounds = {});
  static Type tensor(DType dtype, Dims dims) { return tensor(scalar(dtype), std::move(dims)); }
  static Type unranked_tensor(const Type& element);
  static Type token();
  static Type tuple(std::vector<Type> elements);
  static Type function(std::vector<Type> inputs, std::vector<Type> results);
  static Type future(std::vector<Type> elements);
  static Type buffer(const Type& element, Dims dims);
  static Type witness();
  static Type opaque(std::string text);

  Kind kind() const;
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_scalar() const { return kind() == Kind::kScalar; }
  bool is_tensor() const { return kind() == Kind::kTensor; }
  bool is_token() const { return kind() == Kind::kToken; }
  bool is_tuple() const { return kind() == Kind::kTuple; }
  // A ranked tensor without dynamic dimensions.
  bool is_static_tensor() const;

  // Of scalars, tensors and buffers; a quantized type gives its storage type, index gives kI64.
  DType dtype() const;
  bool is_index() const;
  // Null when the element type is not quantized.
  const Quantization* quantization() const;
  // The element type by itself.
  Type element() const;
  // Of ranked tensors and buffers.
  const Dims& dims() const;
  int64_t rank() const { return static_cast<int64_t>(dims().size()); }
  const Dims& bounds() const;
  // Parts of tuples and futures, inputs of functions.
  const std::vector<Type>& elements() const;
  // Results of functions.
  const std::vector<Type>& results() const;
  const std::string& text() const;

  // StableHLO's spelling: "tensor<2x?xf32>", "!stablehlo.token", "(tensor<f32>) -> tensor<f32>".
  std::string to_string() const;
  bool operator==(const Type& other) const;

 private:
  struct Data;
  explicit Type(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const Data& data() const;
  std::shared_ptr<const Data> data_;  // shared by copies, immutable; null is `none`
};

// "tensor<f32>, tensor<i1>".
std::string types_string(const std::vector<Type>& types);

// The types in order, each tuple as its parts: what a program's caller gives and gets.
std::vector<Type> flat_types(const std::vector<Type>& types);

}  // namespace hekla::ir
