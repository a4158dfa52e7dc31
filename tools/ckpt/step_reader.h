// SPDX-License-Identifier: Apache-2.0
// A committed step as the tools read it: COMMIT, index, and verified bytes of any box.
//
// open() reads COMMIT and index; user block and digest table of a shard are read and verified when
// the first of its bytes are wanted. Nothing is handed out before its digest has matched. Memory is
// bounded by the index and by what the caller asks for at once. One thread at a time.
// Errors: NOT_FOUND no step there (no COMMIT) · DATA_LOSS corrupt, naming file and place · those of
// runtime/checkpoint/io/file.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/io/file.h"
#include "runtime/checkpoint/sharding/restore_plan.h"

namespace hekla::tools {

// COMMIT of a step's folder, with every listed file there in its size.
Result<checkpoint::CommitRecord> read_commit(checkpoint::Io& io, const std::string& folder);

// The folder of a step: `path` itself when it has a COMMIT or a step's name, else the newest
// committed step below it. NOT_FOUND when there is none.
Result<std::string> find_step(checkpoint::Io& io, const std::string& path);

class StepReader {
 public:
  static Result<StepReader> open(checkpoint::Io& io, std::string folder);

  const std::string& folder() const { return folder_; }
  const checkpoint::CommitRecord& commit() const { return commit_; }
  const checkpoint::StepIndex& index() const { return index_; }
  const checkpoint::TensorInfo& tensor(int32_t id) const;
  std::string path_of(int32_t file) const;

  // Verified user block and digests of a shard; kept.
  struct Shard {
    checkpoint::File file;
    checkpoint::UserBlock block;
    std::vector<uint64_t> digests;
  };
  Result<const Shard*> shard(int32_t file);

  // The elements of a box, dense and row major as in host memory, into `memory`.
  Status read(int32_t tensor, const checkpoint::Box& box, std::span<std::byte> memory);

 private:
  StepReader() = default;
  checkpoint::Io* io_ = nullptr;
  std::string folder_;
  checkpoint::CommitRecord commit_;
  checkpoint::StepIndex index_;
  std::unique_ptr<checkpoint::PieceIndex> pieces_;
  std::map<int32_t, Shard> shards_;
};

// Calls `take` with the elements of `box` in row-major order, in parts of at most about `max_bytes`
// in host memory; a part is the box that it is given with.
Status for_each_part(StepReader& step, int32_t tensor, const checkpoint::Box& box,
                     int64_t max_bytes,
                     const std::function<Status(const checkpoint::Box& part,
                                                std::span<const std::byte> bytes)>& take);

// Cuts a box into parts that follow each other in row-major order.
std::vector<checkpoint::Box> row_major_parts(const checkpoint::Box& box, int64_t max_elements);

// Turns elements in host memory into stored bytes; packed types in groups, so that parts may end
// anywhere.
class Packer {
 public:
  explicit Packer(DType dtype) : dtype_(dtype) {}
  // The stored bytes that are complete with `elements`.
  std::span<const std::byte> add(std::span<const std::byte> elements);
  // What is left, filled up with zero bits.
  std::span<const std::byte> finish();

 private:
  std::span<const std::byte> pack(std::span<const std::byte> elements);
  DType dtype_;
  std::vector<std::byte> waiting_;  // fewer than 8 elements of a packed type
  std::vector<std::byte> packed_;
};

}  // namespace hekla::tools
