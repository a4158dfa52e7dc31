// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/type.h"

#include <fmt/format.h>

#include <algorithm>

namespace hekla::ir {

struct Type::Data {
  Kind kind = Kind::kNone;
  DType dtype = DType::kInvalid;
  bool is_index = false;
  std::shared_ptr<const Quantization> quantization;  // shared by the types made from one element
  Dims dims;
  Dims bounds;
  std::vector<Type> elements;
  std::vector<Type> results;
  std::string text;

  bool operator==(const Data& other) const {
    const bool same_quantization = quantization == other.quantization ||
                                   (quantization != nullptr && other.quantization != nullptr &&
                                    *quantization == *other.quantization);
    return kind == other.kind && dtype == other.dtype && is_index == other.is_index &&
           same_quantization && dims == other.dims && bounds == other.bounds &&
           elements == other.elements && results == other.results && text == other.text;
  }
};

const Type::Data& Type::data() const {
  static const Data kNoneData;
  return data_ == nullptr ? kNoneData : *data_;
}

namespace {

// Shortest text that reads back to the same double and looks like a float.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string quantization_text(const Quantization& q) {
  const int bits = dtype_bits(q.storage);
  const bool is_signed = is_signed_integer(q.storage);
  // All of the type's values; the largest of 64 bits, which no sender uses, wraps to -1 if
  // unsigned.
  const uint64_t mask = ~uint64_t{0} >> (64 - bits);
  const int64_t high = static_cast<int64_t>(is_signed ? mask >> 1 : mask);
  const int64_t low = is_signed ? -high - 1 : 0;
  std::string text = fmt::format("!quant.uniform<{}{}", is_signed ? "i" : "u", bits);
  if (q.storage_min != low || q.storage_max != high) {
    text += fmt::format("<{}:{}>", q.storage_min, q.storage_max);
  }
  text += fmt::format(":{}", dtype_name(q.expressed));
  if (q.axis >= 0) text += fmt::format(":{}", q.axis);
  text += q.axis >= 0 ? ", {" : ", ";
  for (size_t i = 0; i < q.scales.size(); ++i) {
    if (i > 0) text += ", ";
    text += float_text(q.scales[i]);
    if (i < q.zero_points.size() && q.zero_points[i] != 0) {
      text += fmt::format(":{}", q.zero_points[i]);
    }
  }
  text += q.axis >= 0 ? "}>" : ">";
  return text;
}

std::string dim_text(int64_t dim) { return dim == kDynamic ? "?" : fmt::format("{}", dim); }

}  // namespace

Type Type::scalar(DType dtype) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kScalar;
  data->dtype = dtype;
  return Type(std::move(data));
}

Type Type::index() {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kScalar;
  data->dtype = DType::kI64;
  data->is_index = true;
  return Type(std::move(data));
}

Type Type::quantized(Quantization quantization) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kScalar;
  data->dtype = quantization.storage;
  data->quantization = std::make_shared<const Quantization>(std::move(quantization));
  return Type(std::move(data));
}

Type Type::tensor(const Type& element, Dims dims, Dims bounds) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kTensor;
  data->dtype = element.data().dtype;
  data->is_index = element.data().is_index;
  data->quantization = element.data().quantization;
  data->dims = std::move(dims);
  data->bounds = std::move(bounds);
  return Type(std::move(data));
}

Type Type::unranked_tensor(const Type& element) {
  auto data = std::make_shared<Data>(tensor(element, {}).data());
  data->kind = Kind::kUnrankedTensor;
  return Type(std::move(data));
}

Type Type::token() {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kToken;
  return Type(std::move(data));
}

Type Type::tuple(std::vector<Type> elements) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kTuple;
  data->elements = std::move(elements);
  return Type(std::move(data));
}

Type Type::function(std::vector<Type> inputs, std::vector<Type> results) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kFunction;
  data->elements = std::move(inputs);
  data->results = std::move(results);
  return Type(std::move(data));
}

Type Type::future(std::vector<Type> elements) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kFuture;
  data->elements = std::move(elements);
  return Type(std::move(data));
}

Type Type::buffer(const Type& element, Dims dims) {
  auto data = std::make_shared<Data>(tensor(element, std::move(dims)).data());
  data->kind = Kind::kBuffer;
  return Type(std::move(data));
}

Type Type::witness() {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kWitness;
  return Type(std::move(data));
}

Type Type::opaque(std::string text) {
  auto data = std::make_shared<Data>();
  data->kind = Kind::kOpaque;
  data->text = std::move(text);
  return Type(std::move(data));
}

Type::Kind Type::kind() const { return data().kind; }

bool Type::is_static_tensor() const {
  return is_tensor() && std::find(dims().begin(), dims().end(), kDynamic) == dims().end();
}

DType Type::dtype() const { return data().dtype; }
bool Type::is_index() const { return data().is_index; }
const Quantization* Type::quantization() const { return data().quantization.get(); }

Type Type::element() const {
  auto scalar = std::make_shared<Data>();
  scalar->kind = Kind::kScalar;
  scalar->dtype = data().dtype;
  scalar->is_index = data().is_index;
  scalar->quantization = data().quantization;
  return Type(std::move(scalar));
}

const Dims& Type::dims() const { return data().dims; }
const Dims& Type::bounds() const { return data().bounds; }
const std::vector<Type>& Type::elements() const { return data().elements; }
const std::vector<Type>& Type::results() const { return data().results; }
const std::string& Type::text() const { return data().text; }

std::string Type::to_string() const {
  const Data& d = data();
  switch (d.kind) {
    case Kind::kNone:
      return "none";
    case Kind::kScalar:
      if (d.quantization != nullptr) return quantization_text(*d.quantization);
      return d.is_index ? "index" : std::string(dtype_name(d.dtype));
    case Kind::kUnrankedTensor:
      return fmt::format("tensor<*x{}>", element().to_string());
    case Kind::kTensor:
    case Kind::kBuffer: {
      std::string text = d.kind == Kind::kTensor ? "tensor<" : "memref<";
      for (int64_t dim : d.dims) text += dim_text(dim) + "x";
      text += element().to_string();
      if (!d.bounds.empty()) {
        text += ", #stablehlo.bounds<";
        for (size_t i = 0; i < d.bounds.size(); ++i) {
          text += (i > 0 ? ", " : "") + dim_text(d.bounds[i]);
        }
        text += ">";
      }
      return text + ">";
    }
    case Kind::kToken:
      return "!stablehlo.token";
    case Kind::kTuple:
      return fmt::format("tuple<{}>", types_string(d.elements));
    case Kind::kFuture:
      return fmt::format("!stablehlo.future<{}>", types_string(d.elements));
    case Kind::kFunction: {
      const bool bare = d.results.size() == 1 && d.results[0].kind() != Kind::kFunction;
      const std::string results = types_string(d.results);
      return fmt::format("({}) -> ", types_string(d.elements)) +
             (bare ? results : fmt::format("({})", results));
    }
    case Kind::kWitness:
      return "!shape.witness";
    case Kind::kOpaque:
      return d.text;
  }
  return "none";
}

bool Type::operator==(const Type& other) const {
  return data_ == other.data_ || data() == other.data();
}

std::string types_string(const std::vector<Type>& types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) text += (i > 0 ? ", " : "") + types[i].to_string();
  return text;
}

std::vector<Type> flat_types(const std::vector<Type>& types) {
  std::vector<Type> flat;
  for (const Type& type : types) {
    if (!type.is_tuple()) {
      flat.push_back(type);
      continue;
    }
    for (Type& part : flat_types(type.elements())) flat.push_back(std::move(part));
  }
  return flat;
}

}  // namespace hekla::ir
