// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/state.h"

#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/io/copy.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

using Json = nlohmann::json;

class HostSource final : public ArraySource {
 public:
  HostSource(const std::byte* data, int64_t bytes, std::shared_ptr<const void> owner,
             bool is_mutable)
      : data_(data), bytes_(bytes), owner_(std::move(owner)), is_mutable_(is_mutable) {}

  const std::byte* host_data() const override { return data_; }
  bool is_mutable() const override { return is_mutable_; }
  int64_t size_bytes() const override { return bytes_; }
  Status read(int64_t offset, std::span<std::byte> into, std::stop_token) override {
    copy_past_cache(into.data(), data_ + offset, into.size());
    return ok_status();
  }

 private:
  const std::byte* data_;
  int64_t bytes_;
  std::shared_ptr<const void> owner_;
  bool is_mutable_;
};

constexpr char kDigits[] = "0123456789abcdef";

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

Result<std::vector<std::byte>> bytes_of_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  const std::string_view digits(kDigits, 16);
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const size_t high = digits.find(text[i]), low = digits.find(text[i + 1]);
    if (high == digits.npos || low == digits.npos) return data_loss("items: bad bytes");
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  if (text.size() % 2 != 0) return data_loss("items: half a byte");
  return bytes;
}

}  // namespace

std::shared_ptr<ArraySource> host_source(HostArray array) {
  auto owner = std::make_shared<const HostArray>(std::move(array));
  const std::byte* data = owner->data();
  const int64_t bytes = owner->size_bytes();
  return std::make_shared<HostSource>(data, bytes, std::move(owner), false);
}

std::shared_ptr<ArraySource> mutable_source(const std::byte* data, int64_t bytes,
                                            std::shared_ptr<const void> owner) {
  return std::make_shared<HostSource>(data, bytes, std::move(owner), true);
}

void add_array(State* state, std::string name, const HostArray& array) {
  StateTensor tensor;
  tensor.info = {std::move(name), array.dtype(), array.dims(), ""};
  tensor.arrays.push_back({whole_box(array.dims()), {}, host_source(array)});
  state->tensors.push_back(std::move(tensor));
}

std::string items_text(const std::map<std::string, Item>& items) {
  Json json = Json::object();
  for (const auto& [name, item] : items) {
    Json& entry = json[name];
    if (const bool* value = std::get_if<bool>(&item)) {
      entry = {"bool", *value};
    } else if (const int64_t* number = std::get_if<int64_t>(&item)) {
      entry = {"int", *number};
    } else if (const double* real = std::get_if<double>(&item)) {
      // JSON has no NaN; the shortest text that reads back as the same number, and its sign.
      entry = {"float", fmt::format("{}", *real)};
    } else if (const std::string* text = std::get_if<std::string>(&item)) {
      entry = {"text", *text};
    } else {
      entry = {"bytes", hex(std::get<std::vector<std::byte>>(item))};
    }
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::map<std::string, Item>> parse_items(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return data_loss("{} is not what was written", kItemsFile);
  std::map<std::string, Item> items;
  for (const auto& [name, entry] : json.items()) {
    const auto bad = [&name = name] {
      return data_loss("item \"{}\" is not what was written", name);
    };
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string()) return bad();
    const std::string kind = entry[0].get<std::string>();
    const Json& value = entry[1];
    if (kind == "bool" && value.is_boolean()) {
      items[name] = value.get<bool>();
    } else if (kind == "int" && value.is_number_integer()) {
      items[name] = value.get<int64_t>();
    } else if (kind == "float" && value.is_string()) {
      const std::string number = value.get<std::string>();
      double real = 0;
      const char* end = number.data() + number.size();
      const auto [at, error] = std::from_chars(number.data(), end, real);
      if (error != std::errc() || at != end) return bad();
      items[name] = real;
    } else if (kind == "text" && value.is_string()) {
      items[name] = value.get<std::string>();
    } else if (kind == "bytes" && value.is_string()) {
      HEKLA_ASSIGN_OR_RETURN(std::vector<std::byte> bytes, bytes_of_hex(value.get<std::string>()));
      items[name] = std::move(bytes);
    } else {
      return bad();
    }
  }
  return items;
}

}  // namespace hekla::checkpoint
