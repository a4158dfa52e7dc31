// SPDX-License-Identifier: Apache-2.0
// The COMMIT record of a step: UTF-8 text that names every file with size and digests and ends with
// a digest over itself. A step without a valid record does not exist.
//
// Lines `key=value` in any order, `files=N`, then N lines with tabs between path, size, metadata
// digest, table digest, writer and, for a linked file, step and nonce of the save that wrote it;
// last `digest=` over everything above it. Bytes below 0x20, 0x7f and '%' in values and paths are
// written as %xx. Keys that a reader does not know are skipped, a higher major version is refused.
// Pure functions; bad input of any kind gives DATA_LOSS (a higher major: UNIMPLEMENTED), in time
// and memory linear in its size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

inline constexpr int kFormatMajor = 1;
inline constexpr int kFormatMinor = 2;  // 1: linked files; 2: meshes in the index
inline constexpr size_t kMaxCommitBytes = size_t{256} << 20;

// The save that wrote a file.
struct FileOrigin {
  int64_t step = 0;
  std::string nonce;

  bool operator==(const FileOrigin&) const = default;
};

// One file of a step.
struct FileRecord {
  std::string path;             // relative to the step's directory: "data/shard-00000.h5"
  int64_t size = 0;             // bytes
  std::string metadata_digest;  // of a shard: all but user block and payload; else the whole file
  std::string table_digest;     // of a shard: its table of block digests; else empty
  int32_t writer = 0;           // rank
  // Of a shard that is a hard link to one of an earlier step; COMMIT alone says it, not the index.
  std::optional<FileOrigin> origin = std::nullopt;

  bool operator==(const FileRecord&) const = default;
};

struct CommitRecord {
  int32_t format_minor = kFormatMinor;  // that the step was written with
  int64_t step = 0;
  std::string run_uuid;
  std::string nonce;           // of the save
  std::string wall_time;       // "2026-11-21T18:05:00Z"
  std::string writer_version;  // "hekla 0.1.0"
  int32_t world_size = 1;
  std::string mesh;  // text for people; may be empty
  uint64_t layout_hash = 0;
  int64_t tensors = 0;
  int64_t logical_bytes = 0;
  std::map<std::string, double> metrics;  // for "keep the best k"; every double survives
  std::string reason;                     // "interval", "manual", "preempt", "final"
  std::optional<int64_t> parent_step;     // of an incremental save
  std::vector<FileRecord> files;

  bool operator==(const CommitRecord&) const = default;
};

// INVALID_ARGUMENT when a field cannot be written: a path that check_path refuses or that comes
// twice, a negative size, a digest that is none, text that is not UTF-8.
Result<std::string> write_commit(const CommitRecord& record);

Result<CommitRecord> parse_commit(std::string_view text);

// Seconds since 1970 of a record's wall_time. DATA_LOSS: not of that form.
Result<int64_t> parse_wall_time(const std::string& text);

}  // namespace hekla::checkpoint
