// SPDX-License-Identifier: Apache-2.0
#include "backends/ffi/attributes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace hekla::ffi {

// Values are behind pointers, which stay.
struct Attributes::Dictionary {
  std::vector<std::unique_ptr<Value>> owned;
  std::vector<XLA_FFI_ByteSpan*> names;
  std::vector<XLA_FFI_AttrType> types;
  std::vector<void*> values;
  XLA_FFI_Attrs view{sizeof(XLA_FFI_Attrs), nullptr, 0, nullptr, nullptr, nullptr};

  Status add(std::string name, const ir::Attribute& attribute);
  static Result<std::unique_ptr<Dictionary>> make(std::vector<ir::NamedAttribute> entries);
};

struct Attributes::Value {
  std::string name, text;
  XLA_FFI_ByteSpan name_span{}, text_span{};
  std::array<std::byte, 16> bytes{};
  XLA_FFI_Scalar scalar{};
  HostArray elements;
  XLA_FFI_Array array{};
  std::unique_ptr<Dictionary> dictionary;

  // What the entry points to.
  using Content = std::pair<XLA_FFI_AttrType, void*>;

  Content set_scalar(DType dtype, uint64_t value) {
    std::memcpy(bytes.data(), &value, sizeof(value));  // little-endian: the low bytes come first
    scalar = {to_data_type(dtype), bytes.data()};
    return {XLA_FFI_AttrType_SCALAR, &scalar};
  }
  Content set_array(HostArray values) {
    elements = std::move(values);
    array = {to_data_type(elements.dtype()), static_cast<size_t>(elements.size()),
             elements.mutable_data()};
    return {XLA_FFI_AttrType_ARRAY, &array};
  }
  Content set_dictionary(std::unique_ptr<Dictionary> entries) {
    dictionary = std::move(entries);
    return {XLA_FFI_AttrType_DICTIONARY, &dictionary->view};
  }

  Result<Content> set(const ir::Attribute& attribute) {
    if (const auto* flag = attribute.get<ir::BoolValue>()) {
      return set_scalar(DType::kI1, flag->value ? 1 : 0);
    }
    if (const auto* number = attribute.get<ir::IntegerValue>()) {
      return set_scalar(number->type.dtype(), static_cast<uint64_t>(number->value));
    }
    if (const auto* number = attribute.get<ir::FloatValue>()) {
      return set_scalar(number->type.dtype(), number->bits);
    }
    if (const auto* string = attribute.get<ir::StringValue>()) {
      text = string->value;
      text_span = {text.data(), text.size()};
      return Content{XLA_FFI_AttrType_STRING, &text_span};
    }
    if (const auto* dense = attribute.get<ir::DenseValue>()) {
      if (!dense->type.is_static_tensor() || dense->type.quantization() != nullptr) {
        return unimplemented("elements of type {}", dense->type.to_string());
      }
      HEKLA_ASSIGN_OR_RETURN(HostArray values, dense->expand());
      return set_array(std::move(values));
    }
    if (const auto* list = attribute.get<ir::IntArrayValue>()) {
      HostArray values(list->dtype, {static_cast<int64_t>(list->values.size())});
      const auto width = static_cast<size_t>(dtype_bytes(list->dtype));
      for (size_t i = 0; i < list->values.size(); ++i) {
        std::memcpy(values.mutable_data() + i * width, &list->values[i], width);
      }
      return set_array(std::move(values));
    }
    if (const auto* entries = attribute.get<ir::DictionaryValue>()) {
      HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<Dictionary> inner, Dictionary::make(entries->entries));
      return set_dictionary(std::move(inner));
    }
    return unimplemented(
        "handlers take booleans, numbers, strings, arrays and dictionaries, not lists nor types; a "
        "list of numbers goes as a NumPy array");
  }
};

Status Attributes::Dictionary::add(std::string name, const ir::Attribute& attribute) {
  auto value = std::make_unique<Value>();
  Result<Value::Content> content = value->set(attribute);
  if (!content.ok()) return content.status().with_context(fmt::format("attribute {}", name));
  value->name = std::move(name);
  value->name_span = {value->name.data(), value->name.size()};
  names.push_back(&value->name_span);
  types.push_back(content->first);
  values.push_back(content->second);
  owned.push_back(std::move(value));
  return ok_status();
}

Result<std::unique_ptr<Attributes::Dictionary>> Attributes::Dictionary::make(
    std::vector<ir::NamedAttribute> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  auto made = std::make_unique<Dictionary>();
  for (auto& [name, attribute] : entries) {
    HEKLA_RETURN_IF_ERROR(made->add(std::move(name), attribute));
  }
  made->view.size = static_cast<int64_t>(made->names.size());
  made->view.types = made->types.data();
  made->view.names = made->names.data();
  made->view.attrs = made->values.data();
  return made;
}

Attributes::Attributes() : dictionary_(std::make_unique<Dictionary>()) {}
Attributes::Attributes(Attributes&&) noexcept = default;
Attributes& Attributes::operator=(Attributes&&) noexcept = default;
Attributes::~Attributes() = default;

Result<Attributes> Attributes::make(const ir::DictionaryValue& dictionary) {
  Attributes attributes;
  HEKLA_ASSIGN_OR_RETURN(attributes.dictionary_, Dictionary::make(dictionary.entries));
  return attributes;
}

const XLA_FFI_Attrs& Attributes::view() const { return dictionary_->view; }

XLA_FFI_DataType to_data_type(DType dtype) {
  switch (dtype) {
    case DType::kInvalid:
      return XLA_FFI_DataType_TOKEN;
    case DType::kI1:
      return XLA_FFI_DataType_PRED;
    case DType::kI2:
      return XLA_FFI_DataType_S2;
    case DType::kI4:
      return XLA_FFI_DataType_S4;
    case DType::kI8:
      return XLA_FFI_DataType_S8;
    case DType::kI16:
      return XLA_FFI_DataType_S16;
    case DType::kI32:
      return XLA_FFI_DataType_S32;
    case DType::kI64:
      return XLA_FFI_DataType_S64;
    case DType::kUI2:
      return XLA_FFI_DataType_U2;
    case DType::kUI4:
      return XLA_FFI_DataType_U4;
    case DType::kUI8:
      return XLA_FFI_DataType_U8;
    case DType::kUI16:
      return XLA_FFI_DataType_U16;
    case DType::kUI32:
      return XLA_FFI_DataType_U32;
    case DType::kUI64:
      return XLA_FFI_DataType_U64;
    case DType::kF4E2M1FN:
      return XLA_FFI_DataType_F4E2M1FN;
    case DType::kF8E3M4:
      return XLA_FFI_DataType_F8E3M4;
    case DType::kF8E4M3:
      return XLA_FFI_DataType_F8E4M3;
    case DType::kF8E4M3FN:
      return XLA_FFI_DataType_F8E4M3FN;
    case DType::kF8E4M3FNUZ:
      return XLA_FFI_DataType_F8E4M3FNUZ;
    case DType::kF8E4M3B11FNUZ:
      return XLA_FFI_DataType_F8E4M3B11FNUZ;
    case DType::kF8E5M2:
      return XLA_FFI_DataType_F8E5M2;
    case DType::kF8E5M2FNUZ:
      return XLA_FFI_DataType_F8E5M2FNUZ;
    case DType::kF8E8M0FNU:
      return XLA_FFI_DataType_F8E8M0FNU;
    case DType::kBF16:
      return XLA_FFI_DataType_BF16;
    case DType::kF16:
      return XLA_FFI_DataType_F16;
    case DType::kTF32:  // the same bits as f32
    case DType::kF32:
      return XLA_FFI_DataType_F32;
    case DType::kF64:
      return XLA_FFI_DataType_F64;
    case DType::kC64:
      return XLA_FFI_DataType_C64;
    case DType::kC128:
      return XLA_FFI_DataType_C128;
    case DType::kF6E2M3FN:  // no numbers in minor version 3
    case DType::kF6E3M2FN:
      break;
  }
  return XLA_FFI_DataType_INVALID;
}

}  // namespace hekla::ffi
