// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/attribute.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hekla::ir {

bool ArrayValue::operator==(const ArrayValue& other) const { return elements == other.elements; }

bool ResultAccuracy::operator==(const ResultAccuracy& other) const {
  const auto same = [](double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  };
  return same(atol, other.atol) && same(rtol, other.rtol) && ulps == other.ulps &&
         mode == other.mode;
}

bool DictionaryValue::operator==(const DictionaryValue& other) const {
  return entries == other.entries;
}

const Attribute* DictionaryValue::find(std::string_view name) const {
  for (const NamedAttribute& entry : entries) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

bool DenseValue::operator==(const DenseValue& other) const {
  return type == other.type && is_splat == other.is_splat && values.identical(other.values);
}

Result<HostArray> DenseValue::expand() const {
  if (!is_splat) return values;
  HEKLA_ASSIGN_OR_RETURN(HostArray full, HostArray::allocate(type.dtype(), type.dims(), false));
  const size_t width = static_cast<size_t>(dtype_bytes(type.dtype()));
  std::byte* out = full.mutable_data();
  const size_t total = static_cast<size_t>(full.size_bytes());
  if (total == 0) return full;
  std::memcpy(out, values.data(), width);
  // Doubling copies: one memcpy per power of two.
  for (size_t done = width; done < total; done *= 2) {
    std::memcpy(out + done, out, std::min(done, total - done));
  }
  return full;
}

const Attribute::Content& Attribute::content() const {
  static const Content kAbsent;
  return content_ == nullptr ? kAbsent : *content_;
}

bool Attribute::operator==(const Attribute& other) const {
  return content_ == other.content_ || content() == other.content();
}

Attribute i64_attribute(int64_t value) { return IntegerValue{Type::scalar(DType::kI64), value}; }

Attribute i64_array(std::vector<int64_t> values) {
  return IntArrayValue{DType::kI64, std::move(values)};
}

Attribute bool_array(const std::vector<bool>& values) {
  return IntArrayValue{DType::kI1, std::vector<int64_t>(values.begin(), values.end())};
}

Attribute enum_attribute(std::string_view kind, std::string_view value) {
  return EnumValue{std::string(kind), std::string(value)};
}

Attribute make_dense(Type type, HostArray values) {
  if (type.dtype() == DType::kI1) {
    bool is_normal = true;
    for (std::byte b : values.bytes()) is_normal = is_normal && b <= std::byte{1};
    if (!is_normal) {
      std::byte* data = values.mutable_data();
      for (int64_t i = 0; i < values.size(); ++i) data[i] = std::byte{data[i] != std::byte{0}};
    }
  }
  const int64_t width = dtype_bytes(type.dtype());
  const bool has_one = values.size() == 1;
  const bool type_has_one =
      std::all_of(type.dims().begin(), type.dims().end(), [](int64_t d) { return d == 1; });
  if (has_one && type_has_one) {
    return DenseValue{type, values.with_shape(type.dtype(), type.dims()), false};
  }
  const std::byte* data = values.data();
  // All elements are equal exactly when the array equals itself shifted by one element.
  const bool all_equal =
      values.size() > 0 &&
      std::memcmp(data, data + width, static_cast<size_t>(values.size_bytes() - width)) == 0;
  if (has_one || all_equal) {
    HostArray one(type.dtype(), {});
    std::memcpy(one.mutable_data(), data, static_cast<size_t>(width));
    const bool is_empty = std::find(type.dims().begin(), type.dims().end(), 0) != type.dims().end();
    if (is_empty) return DenseValue{type, HostArray(type.dtype(), type.dims()), false};
    return DenseValue{std::move(type), std::move(one), true};
  }
  return DenseValue{type, values.with_shape(type.dtype(), type.dims()), false};
}

Attribute make_dictionary(std::vector<NamedAttribute> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedAttribute> unique;
  for (NamedAttribute& entry : entries) {
    if (!unique.empty() && unique.back().first == entry.first) {
      unique.back() = std::move(entry);
    } else {
      unique.push_back(std::move(entry));
    }
  }
  return DictionaryValue{std::move(unique)};
}

}  // namespace hekla::ir
