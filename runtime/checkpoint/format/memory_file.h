// SPDX-License-Identifier: Apache-2.0
// An HDF5 file in memory: a virtual file driver of our own, so that libhdf5 never owns a file on a
// disk. A new file may have one hole, which stands for payload that lies on the disk alone; what
// libhdf5 writes lands before and behind it. Internal to this folder; on the HDF5 thread.
//
//   0 .. head                 user block and superblock
//   head .. head + payload    the hole, given out by expect_payload
//   behind                    everything else that libhdf5 allocates, without gaps of its own
//   making
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/hdf5.h"

namespace hekla::checkpoint {

struct MemoryFileState;

// A file that is being written.
class NewFile {
 public:
  // `user_block`: 0 or 4096 bytes left alone at the start. `payload`: bytes of the hole.
  static Result<NewFile> create(int64_t user_block, int64_t payload);
  NewFile(NewFile&&) noexcept;
  ~NewFile();

  hid_t id() const { return file_.get(); }
  int64_t payload_begin() const;
  // The next dataset of exactly `bytes` takes the hole's next place, `at` bytes from its start.
  void expect_payload(int64_t at, int64_t bytes);
  // Whether libhdf5 has taken that place.
  bool took_payload() const;
  // What it writes into the hole is dropped; otherwise that is an error.
  void drop_payload();

  struct Bytes {
    std::vector<std::byte> head;  // from offset 0
    std::vector<std::byte> tail;  // behind the hole, up to a multiple of 4096
  };
  // Closes the file and gives its bytes.
  Result<Bytes> finish() &&;

 private:
  NewFile() = default;
  std::unique_ptr<MemoryFileState> state_;  // outlives file_
  Handle file_;
};

struct FilePart {
  int64_t offset = 0;
  std::span<const std::byte> bytes;
};

// A file that is only read, from bytes whose digest has been checked. `parts` ascend; they and
// their bytes outlive the object. What lies between them reads as zeros, as raw data not at all.
class OpenFile {
 public:
  static Result<OpenFile> open(std::vector<FilePart> parts, int64_t file_size);
  OpenFile(OpenFile&&) noexcept;
  ~OpenFile();

  hid_t id() const { return file_.get(); }

 private:
  OpenFile() = default;
  std::unique_ptr<MemoryFileState> state_;  // outlives file_
  Handle file_;
};

}  // namespace hekla::checkpoint
