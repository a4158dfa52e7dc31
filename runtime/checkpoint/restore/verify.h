// SPDX-License-Identifier: Apache-2.0
// Looking over a whole step: what in it is not as it was written, and where.
//
// Follows the hash tree from COMMIT down and goes on behind what it finds, so that all damage is
// listed. Needs neither index nor view to be sound. Thread-safe; reads with several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/shard_reader.h"
#include "runtime/checkpoint/format/user_block.h"
#include "runtime/checkpoint/io/reader.h"

namespace hekla::checkpoint {

struct VerifyOptions {
  bool payload = true;        // false: sizes and everything but the tensors' large pieces
  size_t max_problems = 100;  // stops after so many
  ReaderOptions reader;
  // Bytes looked at and bytes in the step; from any thread, now and then.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct Problem {
  std::string file;  // relative to the step
  std::string what;  // with offset, and tensor, box and block where it is payload
};

struct VerifyReport {
  std::vector<Problem> problems;  // in the order of COMMIT's files
  int64_t files = 0;              // looked at
  int64_t blocks = 0;             // of payload, compared with their digests
  int64_t bytes = 0;              // read
};

// An error is one of looking (no COMMIT: NOT_FOUND, a failing call, CANCELLED); damage is in the
// report.
Result<VerifyReport> verify_step(Io& io, const std::string& folder,
                                 const VerifyOptions& options = {}, std::stop_token stop = {});

// The COMMIT record of a step's folder. NOT_FOUND without one, DATA_LOSS for a damaged one.
Result<CommitRecord> read_commit(Io& io, const std::string& folder);
// DATA_LOSS when the file is missing or has another size than COMMIT says.
Status check_size(Io& io, const std::string& folder, const FileRecord& file);
// What a shard says of itself, every byte of it but payload verified. Errors as read_user_block's;
// memory for the metadata.
Result<ShardContents> read_shard_file(Io& io, const std::string& folder, const CommitRecord& commit,
                                      const FileRecord& file, int32_t number);
// The user block of shard number `number`, which must belong to the step; -1: whichever number it
// says. DATA_LOSS otherwise.
Result<UserBlock> read_user_block(Io& io, const std::string& folder, const CommitRecord& commit,
                                  const FileRecord& file, int32_t number);

}  // namespace hekla::checkpoint
