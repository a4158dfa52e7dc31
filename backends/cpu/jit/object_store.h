// SPDX-License-Identifier: Apache-2.0
// ObjectStore: object files of executables on disk, for later processes.
//
// An entry holds all objects of one executable and is found by the symbols it must define, which
// are hashes of kernels, by the target, by LLVM's version and by the source of our generator.
// Nothing here fails: what cannot be read counts as absent, what cannot be written is logged.
// Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file_cache.h"

namespace hekla::cpu {

struct ObjectFile {
  std::vector<std::string> symbols;  // in the order in which they are looked up
  std::string bytes;
};

class ObjectStore {
 public:
  // `folder` is made when it is not there; an empty one gives a store that keeps nothing.
  // `generator`: everything beside the kernels that the code depends on.
  ObjectStore(const std::string& folder, std::string generator);

  std::optional<std::vector<ObjectFile>> load(std::span<const std::string> symbols);
  void store(std::span<const std::string> symbols, std::span<const ObjectFile* const> objects);

  // For tests and tools: an entry as bytes and back. nullopt: these are no objects.
  static std::vector<std::byte> pack(std::span<const ObjectFile* const> objects);
  static std::optional<std::vector<ObjectFile>> unpack(std::span<const std::byte> bytes);

 private:
  std::string key(std::span<const std::string> symbols) const;

  const std::string generator_;
  std::unique_ptr<FileCache> cache_;  // null: keeps nothing
};

}  // namespace hekla::cpu
