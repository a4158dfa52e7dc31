// SPDX-License-Identifier: Apache-2.0
// StepReader: a committed step, opened and checked, out of which boxes of tensors are read.
//
// Opening reads COMMIT and index.h5 and looks at the size of every file; nothing is believed before
// its digest has matched. The shards are touched when something in them is wanted: their user block
// must be that of this save, and every 1 MiB block that is read must have its digest. Reads are
// planned (sharding/restore_plan.h), so a box costs the blocks that it touches and no more, and
// carried out by several threads within a memory budget.
//
// A StepReader is immutable to its users and thread-safe; it is shared by the lazy tensors made
// from it. It takes no lock on the step: give what keeps the step from being deleted as `keep`.
//
// Errors: NOT_FOUND no COMMIT there · DATA_LOSS something is not what was written; the message
// names file and place, and the tensor where there is one · UNIMPLEMENTED a newer format · those of
// io/file.h for failing calls · RESOURCE_EXHAUSTED no memory for an array.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/io/reader.h"
#include "runtime/checkpoint/sharding/restore_plan.h"

namespace hekla::checkpoint {

enum class Verify {
  kTouched,  // what is read
  kFull,     // everything in the step, when it is opened; and what is read
  kNone,     // COMMIT and index alone; exact byte ranges are read
};

struct StepReaderOptions {
  Verify verify = Verify::kTouched;
  int threads = 0;                           // as ReaderOptions
  int64_t budget_bytes = int64_t{64} << 20;  // staging memory of one read, at least 3 MiB
  int64_t bandwidth_limit = 0;               // bytes per second; 0: none
  bool direct = true;                        // try O_DIRECT
};

class LazyTensor;

// Bytes [begin, end) of a shard, by its number in StepReader::shards().
struct ShardRange {
  int32_t file = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ShardRange&) const = default;
};

// Given all that this process is about to read, sorted and apart, says which ranges other processes
// of this machine read at the same time. Those come through the page cache, so that the disk gives
// them once; the rest goes past it. An error ends the read.
using ShareReads = std::function<Result<std::vector<ShardRange>>(std::span<const ShardRange> mine)>;

class StepReader : public std::enable_shared_from_this<StepReader> {
 public:
  // `io` must outlive the reader; `keep` lives as long as it.
  static Result<std::shared_ptr<const StepReader>> open(Io& io, std::string folder,
                                                        const StepReaderOptions& options = {},
                                                        std::shared_ptr<const void> keep = nullptr);

  const std::string& folder() const { return folder_; }
  const CommitRecord& commit() const { return commit_; }
  // Tensors and pieces, by name or number.
  const PieceIndex& index() const { return index_; }
  const std::vector<FileRecord>& shards() const { return shards_; }

  // NOT_FOUND: no such tensor.
  Result<LazyTensor> tensor(std::string_view name) const;
  std::vector<LazyTensor> tensors() const;

  // Fills the arrays; element layout of runtime/base/dtype.h, in the stored dtype.
  // INVALID_ARGUMENT: a wish that does not fit the index, or another number of targets. CANCELLED
  // by `stop`. After an error the arrays hold anything.
  Status read(std::span<const Wanted> wanted, std::span<std::byte* const> targets,
              std::stop_token stop = {}, const ShareReads& share = nullptr) const;
  // One box; the whole tensor without one.
  Result<HostArray> read(int32_t tensor, std::stop_token stop = {}) const;
  Result<HostArray> read(int32_t tensor, const Box& box, std::stop_token stop = {}) const;

  // A file of the step that is neither shard nor index ("extra/loader.json"), verified.
  Result<std::string> read_file(std::string_view path) const;

  // Bytes asked of the file system so far.
  int64_t bytes_read() const;

 private:
  StepReader(Io& io, std::string folder) : io_(io), folder_(std::move(folder)) {}
  Status load(const StepReaderOptions& options);
  Status check_shard(int32_t file) const;
  // The chunks of a packed read, into the arrays.
  Status unpack(const RestorePlan& plan, const PlannedRead& read, std::span<const std::byte> bytes,
                std::span<std::byte* const> targets) const;

  struct Shard {
    std::mutex mutex;
    bool is_checked = false;        // guarded by mutex
    std::vector<uint64_t> digests;  // of its blocks; written once before is_checked
  };

  Io& io_;
  const std::string folder_;
  std::shared_ptr<const void> keep_;
  CommitRecord commit_;
  std::vector<FileRecord> shards_;
  std::vector<std::string> paths_;  // of the shards
  PieceIndex index_;
  std::unique_ptr<Shard[]> states_;
  std::unique_ptr<Reader> reader_;
  RestoreOptions plan_options_;
  Verify verify_ = Verify::kTouched;
  mutable std::atomic<int64_t> other_bytes_{0};  // read beside reader_
};

// An uninitialized array (zeroed with `zero`) whose memory may consist of large pages: filling
// fresh memory is otherwise slower than the disk. OUT_OF_RANGE, RESOURCE_EXHAUSTED as
// HostArray::allocate.
Result<HostArray> allocate_array(DType dtype, Dims dims, bool zero);

// A tensor of a step whose values are read when they are asked for. A small value; any thread.
class LazyTensor {
 public:
  const TensorInfo& info() const { return step_->index().tensors()[tensor_]; }
  int32_t number() const { return tensor_; }
  Result<HostArray> read(std::stop_token stop = {}) const {
    return step_->read(tensor_, std::move(stop));
  }
  // OUT_OF_RANGE-like wishes are INVALID_ARGUMENT.
  Result<HostArray> read(const Box& box, std::stop_token stop = {}) const {
    return step_->read(tensor_, box, std::move(stop));
  }

 private:
  friend class StepReader;
  LazyTensor(std::shared_ptr<const StepReader> step, int32_t tensor)
      : step_(std::move(step)), tensor_(tensor) {}
  std::shared_ptr<const StepReader> step_;
  int32_t tensor_;
};

}  // namespace hekla::checkpoint
