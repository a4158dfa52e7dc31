// SPDX-License-Identifier: Apache-2.0
// ShardSave: the payload of a save (commit/committer.h) that writes tensors into shard files.
//
// Arrays that may change are copied into staging buffers first; what fits is copied by stage_now()
// on the caller's thread, the rest waits for buffers that come back from the writer. Then arrays of
// other memories are fetched chunk by chunk, while large contiguous host arrays are written from
// where they lie. The state is let go as soon as nothing of it is needed.
//
// Compressed pieces go to a Compressor, which gives their chunks places as they come; the file's
// metadata then follows from them.
//
// A file of frozen tensors is linked from the parent step when that holds the same pieces and every
// block of them in memory has the digest of there; nothing is believed of what was frozen. Where it
// has changed, or the file system has no hard links, it is written like the others.
//
// Two checks can be asked for: that what the disk gives back is what was written, before the step
// is committed; and that ranks which hold copies of one box hold the same values.
//
// Used by one thread at a time, but for bytes_done().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/commit/committer.h"
#include "runtime/checkpoint/io/writer.h"
#include "runtime/checkpoint/save/shard_layout.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/checkpoint/sharding/box_copy.h"
#include "runtime/rendezvous/group.h"

namespace hekla::checkpoint {

enum class HowMuch {
  kNone,
  kSample,  // of each file 16 blocks of 1 MiB; of each copy one
  kAll,
};

struct SaveChecks {
  // DATA_LOSS before the commit when files read back are not what was written. Shards are read past
  // the page cache where the file system lets us.
  HowMuch verify_after_write = HowMuch::kNone;
  // DATA_LOSS naming tensor, box and ranks when copies differ. Equal on all ranks.
  HowMuch check_replicas = HowMuch::kNone;
};

class ShardSave final : public SavePayload {
 public:
  // INVALID_ARGUMENT: the state has no array for a box that the plan wants from this rank, or one
  // of another size. `pool`, `group` and `layout` outlive it; `layout` is used by one save at a
  // time.
  static Result<std::unique_ptr<ShardSave>> make(rendezvous::Group& group, WriterPool& pool,
                                                 std::shared_ptr<ShardLayout> layout, State state,
                                                 std::string id, const SaveChecks& checks = {});
  ~ShardSave() override;

  // Stored bytes of arrays that may change.
  int64_t mutable_bytes() const { return mutable_bytes_; }
  // Buffers that stage_now takes.
  int64_t staging_buffers() const { return staging_buffers_; }
  // Copies them now; waits for ever when the pool has fewer buffers than that. Arrays that are
  // compared first are left: has_to_compare() says whether there are some.
  Status stage_now(std::stop_token stop);
  // Some of the arrays that may change are needed until snapshot() has ended.
  bool has_to_compare() const { return has_to_compare_; }
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
  struct Replica;
  struct Staged {
    size_t file = 0;
    size_t piece = 0;
    int64_t at = 0;
    int64_t bytes = 0;
    StagingPool::Buffer buffer;
    bool is_hashed = false;  // the file's writer has the digests
  };
  enum class Kind { kMutable, kElsewhere, kInPlace };

  ShardSave(rendezvous::Group& group, WriterPool& pool, std::shared_ptr<ShardLayout> layout,
            std::string id, const SaveChecks& checks);
  Status find_sources(State state);
  static PieceSource source_of(const LocalArray& array, DType dtype, const Piece& piece);
  bool is_rate_limited() const;
  Status open_writer(size_t file, const SaveSite& site, FileUse use);
  Status link_frozen(size_t file, const SaveSite& site);
  // What of the parent's file is not as it would be written; empty: nothing.
  Result<std::string> difference(size_t file, const SaveSite& site, FileRecord* record,
                                 std::vector<uint64_t>* digests);
  struct BlockRange {
    int64_t first = 0;
    int64_t count = 0;
  };
  // Digests of a piece's blocks in memory, in order, until `visit` says false.
  Status visit_blocks(PieceSource& source, const Piece& piece, BlockRange range,
                      std::stop_token stop,
                      const std::function<bool(int64_t block, uint64_t digest)>& visit);
  Status find_replicas(const State& state);
  Status hash_replicas(const SaveSite& site);
  Status compare_replicas() const;
  // What was written of a file, against what should have been.
  Status read_back(size_t file, const SaveSite& site, const ShardImage::Finished& written);
  Status read_back(const std::string& path, std::string_view text);
  void add_staged(Staged staged);
  // How much of a piece from `at` on is one item: whole chunks of a compressed one.
  int64_t item_bytes(const Piece& piece, int64_t at) const;
  static void add_chunks(Target& target, size_t piece_number, const Piece& piece, int64_t at,
                         int64_t bytes, const std::byte* data, StagingPool::Buffer buffer = {});
  // Of the step, with the chunks of the packed files where they lie.
  Result<std::vector<Piece>> placed_pieces() const;
  // Goes over this rank's pieces of a kind; staged chunks go to `take`.
  Status stage(Kind kind, std::stop_token stop, const std::function<void(Staged)>& take);
  // Of dense host memory: each block is hashed where the copy has just read it.
  Status fill_hashed(PieceSource& source, const Piece& piece, const Staged& staged,
                     FileWriter& writer, std::stop_token stop);
  Status fill(PieceSource& source, const Piece& piece, int64_t at, std::span<std::byte> into,
              std::stop_token stop);
  void staged();
  std::string key(std::string_view what, int32_t file, int32_t rank) const;
  Status take_parts(size_t file, std::vector<uint64_t>* digests, const SaveSite& site);
  Result<FileRecord> write_metadata(size_t file, const SaveSite& site);
  Result<std::vector<FileRecord>> write_extras(const SaveSite& site);

  rendezvous::Group& group_;
  WriterPool& pool_;
  const std::shared_ptr<ShardLayout> layout_;  // shared with the saver, which keeps it
  const std::string id_;
  const SaveChecks checks_;
  std::map<std::string, Item> items_;
  std::vector<ExtraFile> extra_files_;
  std::vector<std::unique_ptr<Target>> targets_;  // by file of the layout
  std::vector<Staged> early_;                     // by stage_now
  std::vector<Replica> replicas_;
  std::string replica_digests_;  // as they go to the store
  int64_t mutable_bytes_ = 0;
  int64_t staging_buffers_ = 0;
  bool has_to_compare_ = false;
  bool is_allocated_ = false;  // what is frozen is linked or will be written
  bool is_staged_ = false;
  std::optional<CommitRecord> parent_;
  std::atomic<int64_t> bytes_done_{0};
};

}  // namespace hekla::checkpoint
