// SPDX-License-Identifier: Apache-2.0
// ShardSave: the payload of a save (commit/committer.h) that writes tensors into shard files.
//
// Arrays that may change are copied into staging buffers first; what fits is copied by stage_now()
// on the caller's thread, the rest waits for buffers that come back from the writer. Then arrays of
// other memories are fetched chunk by chunk, while large contiguous host arrays are written from
// where they lie. The state is let go as soon as nothing of it is needed.
//
// Used by one thread at a time, but for bytes_done().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/commit/committer.h"
#include "runtime/checkpoint/io/writer.h"
#include "runtime/checkpoint/save/shard_layout.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/checkpoint/sharding/box_copy.h"
#include "runtime/checkpoint/store/group.h"

namespace hekla::checkpoint {

class ShardSave final : public SavePayload {
 public:
  // INVALID_ARGUMENT: the state has no array for a box that the plan wants from this rank, or one
  // of another size. `pool`, `group` and `layout` outlive it; `layout` is used by one save at a
  // time.
  static Result<std::unique_ptr<ShardSave>> make(Group& group, WriterPool& pool,
                                                 std::shared_ptr<ShardLayout> layout, State state,
                                                 std::string id);
  ~ShardSave() override;

  // Stored bytes of arrays that may change.
  int64_t mutable_bytes() const { return mutable_bytes_; }
  // Buffers that stage_now takes.
  int64_t staging_buffers() const { return staging_buffers_; }
  // Copies them now; waits for ever when the pool has fewer buffers than that.
  Status stage_now(std::stop_token stop);
  // Called once, when the caller's arrays may change and be freed.
  std::function<void()> on_staged;
  // Stored bytes that are in the file system's hands.
  int64_t bytes_done() const;
  int64_t bytes_total() const { return layout_->my_bytes; }

  Status allocate(const SaveSite& site) override;
  Status snapshot(const SaveSite& site) override;
  Result<std::vector<FileRecord>> write(const SaveSite& site) override;
  Result<std::vector<FileRecord>> finish(const SaveSite& site, const std::vector<FileRecord>& files,
                                         CommitRecord* record) override;
  void abandon() override;

 private:
  struct PieceSource;
  struct Target;
  struct Staged {
    size_t file = 0;
    size_t piece = 0;
    int64_t at = 0;
    int64_t bytes = 0;
    StagingPool::Buffer buffer;
  };
  enum class Kind { kMutable, kElsewhere, kInPlace };

  ShardSave(Group& group, WriterPool& pool, std::shared_ptr<ShardLayout> layout, std::string id);
  Status find_sources(State state);
  Status open_writer(size_t file, const SaveSite& site, FileUse use);
  void add_staged(Staged staged);
  // Goes over this rank's pieces of a kind; staged chunks go to `take`.
  Status stage(Kind kind, std::stop_token stop, const std::function<void(Staged)>& take);
  Status fill(PieceSource& source, const Piece& piece, int64_t at, std::span<std::byte> into,
              std::stop_token stop);
  void staged();
  std::string key(std::string_view what, int32_t file, int32_t rank) const;
  Status take_parts(size_t file, std::vector<uint64_t>* digests, const SaveSite& site);
  Result<FileRecord> write_metadata(size_t file, const SaveSite& site);
  Result<std::vector<FileRecord>> write_extras(const SaveSite& site);

  Group& group_;
  WriterPool& pool_;
  const std::shared_ptr<ShardLayout> layout_;  // shared with the saver, which keeps it
  const std::string id_;
  std::map<std::string, Item> items_;
  std::vector<ExtraFile> extra_files_;
  std::vector<std::unique_ptr<Target>> targets_;  // by file of the layout
  std::vector<Staged> early_;                     // by stage_now
  int64_t mutable_bytes_ = 0;
  int64_t staging_buffers_ = 0;
  bool is_staged_ = false;
  std::atomic<int64_t> bytes_done_{0};
};

}  // namespace hekla::checkpoint
