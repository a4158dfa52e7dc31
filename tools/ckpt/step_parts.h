// SPDX-License-Identifier: Apache-2.0
// What the tools add to runtime/checkpoint/restore: finding a step, walking a tensor in bounded
// parts, packing elements into stored bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/restore/step_reader.h"

namespace hekla::tools {

using StepPointer = std::shared_ptr<const checkpoint::StepReader>;

// What is held in memory of a tensor at a time.
inline constexpr int64_t kPartBytes = int64_t{8} << 20;

// The folder of a step: `path` itself when it has a COMMIT, else the newest committed step below
// it. NOT_FOUND when there is none.
Result<std::string> find_step(Io& io, const std::string& path);
// find_step and StepReader::open.
Result<StepPointer> open_step(Io& io, const std::string& path);
// The index with its digests, verified; errors of read_index.
Result<checkpoint::StepIndex> read_step_index(Io& io, const checkpoint::StepReader& step);

// Cuts a box into parts of at most `max_elements` that follow each other in row-major order.
std::vector<checkpoint::Box> row_major_parts(const checkpoint::Box& box, int64_t max_elements);

// Calls `take` with all elements of a tensor in row-major order, as they lie in host memory, in
// parts of at most about `max_bytes`; each with its box.
Status for_each_part(const checkpoint::StepReader& step, int32_t tensor, int64_t max_bytes,
                     const std::function<Status(const checkpoint::Box& part,
                                                std::span<const std::byte> bytes)>& take);

// Turns elements in host memory into stored bytes; packed types in groups of eight, so that the
// elements may come in parts of any length.
class Packer {
 public:
  explicit Packer(DType dtype) : dtype_(dtype) {}
  // The stored bytes that are complete with `elements`; valid until the next call.
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
