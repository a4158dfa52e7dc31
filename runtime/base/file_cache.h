// SPDX-License-Identifier: Apache-2.0
// FileCache: bytes under keys in a folder, kept between processes; compiled code, pipelines.
//
// One file per entry. An entry is written beside its place and renamed, so that readers see all of
// it or nothing, and several processes may share a folder without locks: the last writer of a key
// wins. Each file carries its key and a SHA-256 of key and bytes; a file that does not check
// is removed with a log line and counts as absent, so a cache never gives wrong bytes and never
// fails what uses it. The folder is bounded: when it outgrows its limit, the entries that were used
// longest ago go. Only the first store looks at all files, so a process that finds what it needs
// starts as fast with ten thousand entries as with ten. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla {

// HEKLA_CACHE_DIR; else "hekla" in XDG_CACHE_HOME or in ~/.cache. Empty when there is none of them,
// or when HEKLA_CACHE_DIR is set and empty: then nothing is to be cached.
std::string default_cache_folder();

class FileCache {
 public:
  struct Stats {
    int64_t hits = 0;
    int64_t misses = 0;   // corrupt entries included
    int64_t corrupt = 0;  // found and removed
    int64_t evictions = 0;
  };

  // Makes the folder, for this user alone, with its parents. PERMISSION_DENIED or INTERNAL, with
  // folder and reason, when it cannot be written. `max_bytes` bounds the files' sizes.
  static Result<std::unique_ptr<FileCache>> open(std::string folder, int64_t max_bytes);

  // The bytes stored under `key`; marks the entry as used now.
  std::optional<std::vector<std::byte>> load(std::string_view key);
  // RESOURCE_EXHAUSTED: the entry alone is larger than the limit; INTERNAL: the file system's
  // words. The entries before stay as they are.
  Status store(std::string_view key, std::span<const std::byte> bytes);

  Stats stats() const;
  const std::string& folder() const { return folder_; }
  // Where the entry of a key lies.
  std::string path_of(std::string_view key) const;

 private:
  FileCache(std::string folder, int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes), known_bytes_(max_bytes) {}
  // Sums up the folder, drops old temporary files and, above the limit, the oldest entries.
  void sweep();

  const std::string folder_;
  const int64_t max_bytes_;
  std::mutex sweep_mutex_;
  // This process's view; other processes add unseen. Full until the first store has counted.
  std::atomic<int64_t> known_bytes_;
  std::atomic<int64_t> hits_{0}, misses_{0}, corrupt_{0}, evictions_{0};
};

}  // namespace hekla
