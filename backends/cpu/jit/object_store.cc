// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/object_store.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/log.h"
#include "runtime/base/sha256.h"

namespace hekla::cpu {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 20;

void append(std::vector<std::byte>& out, const void* data, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

void append_text(std::vector<std::byte>& out, const std::string& text) {
  const uint64_t size = text.size();
  append(out, &size, sizeof(size));
  append(out, text.data(), text.size());
}

// Reads what append wrote; false when the bytes end too early.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool number(uint64_t& value) {
    if (bytes_.size() < sizeof(value)) return false;
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_ = bytes_.subspan(sizeof(value));
    return true;
  }
  bool text(std::string& value) {
    uint64_t size = 0;
    if (!number(size) || size > bytes_.size()) return false;
    value.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return true;
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

ObjectStore::ObjectStore(const std::string& folder, std::string generator)
    : generator_(std::move(generator)) {
  if (folder.empty()) return;
  Result<std::unique_ptr<FileCache>> cache = FileCache::open(folder, kMaxBytes);
  if (cache.ok()) {
    cache_ = *std::move(cache);
  } else {
    log_message(LogLevel::kWarning, "cpu: generated code is not kept: {}",
                cache.status().message());
  }
}

std::string ObjectStore::key(std::span<const std::string> symbols) const {
  std::vector<std::string> sorted(symbols.begin(), symbols.end());
  std::sort(sorted.begin(), sorted.end());
  Sha256 hash;
  auto add = [&](const std::string& text) {
    hash.update(std::as_bytes(std::span(text.data(), text.size() + 1)));
  };
  add(generator_);
  for (const std::string& symbol : sorted) add(symbol);
  return "cpu objects " + hash.hex();
}

std::optional<std::vector<ObjectFile>> ObjectStore::load(std::span<const std::string> symbols) {
  if (cache_ == nullptr) return std::nullopt;
  const std::optional<std::vector<std::byte>> bytes = cache_->load(key(symbols));
  if (!bytes.has_value()) return std::nullopt;
  return unpack(*bytes);
}

void ObjectStore::store(std::span<const std::string> symbols,
                        std::span<const ObjectFile* const> objects) {
  if (cache_ == nullptr) return;
  const Status status = cache_->store(key(symbols), pack(objects));
  if (!status.ok()) {
    log_message(LogLevel::kWarning, "cpu: {} kernels are not kept on disk: {}", symbols.size(),
                status.message());
  }
}

std::vector<std::byte> ObjectStore::pack(std::span<const ObjectFile* const> objects) {
  std::vector<std::byte> bytes;
  const uint64_t count = objects.size();
  append(bytes, &count, sizeof(count));
  for (const ObjectFile* object : objects) {
    const uint64_t symbols = object->symbols.size();
    append(bytes, &symbols, sizeof(symbols));
    for (const std::string& symbol : object->symbols) append_text(bytes, symbol);
    append_text(bytes, object->bytes);
  }
  return bytes;
}

std::optional<std::vector<ObjectFile>> ObjectStore::unpack(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  uint64_t count = 0;
  if (!reader.number(count)) return std::nullopt;
  std::vector<ObjectFile> objects;
  for (uint64_t i = 0; i < count; ++i) {
    ObjectFile object;
    uint64_t symbols = 0;
    if (!reader.number(symbols)) return std::nullopt;
    for (uint64_t k = 0; k < symbols; ++k) {
      std::string symbol;
      if (!reader.text(symbol)) return std::nullopt;
      object.symbols.push_back(std::move(symbol));
    }
    if (!reader.text(object.bytes)) return std::nullopt;
    objects.push_back(std::move(object));
  }
  if (reader.left() != 0) return std::nullopt;
  return objects;
}

}  // namespace hekla::cpu
