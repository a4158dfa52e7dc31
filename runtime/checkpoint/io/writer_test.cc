// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/host.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/format/digest.h"

namespace hekla::checkpoint {
namespace {

std::vector<std::byte> noise(int64_t bytes, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  for (size_t at = 0; at < data.size(); at += 8) {
    const uint64_t drawn = draw();
    std::memcpy(data.data() + at, &drawn, std::min<size_t>(8, data.size() - at));
  }
  return data;
}

WriterOptions small_options() {
  WriterOptions options;
  options.threads = 2;
  options.item_bytes = kMiB;
  options.staging_bytes = 2 * kMiB;
  return options;
}

// Three extents as a shard has them: large and even, large with a tail, unaligned and small.
struct Shard {
  std::vector<std::byte> a = noise(3 * kMiB, 1);
  std::vector<std::byte> b = noise(2 * kMiB + 70001, 2);
  std::vector<std::byte> c = noise(1000, 3);
  static constexpr int64_t kA = 4096, kB = kA + 3 * kMiB;
  int64_t at_c = kB + static_cast<int64_t>(b.size());  // in the block in which b ends
  int64_t file_bytes = (at_c + 1000 + 4095) / 4096 * 4096;
  int64_t blocks = 3 + 3;

  Status write(WriterPool& pool, const std::string& path, std::vector<uint64_t>* digests,
               bool* direct = nullptr, std::stop_token stop = {}) const {
    HEKLA_ASSIGN_OR_RETURN(const auto writer,
                           FileWriter::create(pool, path, file_bytes, blocks, stop));
    writer->add({a.data(), static_cast<int64_t>(a.size()), kA, 0});
    writer->add({b.data(), static_cast<int64_t>(b.size()), kB, 3});
    HEKLA_RETURN_IF_ERROR(writer->drain());
    HEKLA_RETURN_IF_ERROR(writer->write(c, at_c));
    EXPECT_EQ(writer->bytes_written(), static_cast<int64_t>(a.size() + b.size() + c.size()));
    *digests = writer->digests();
    if (direct != nullptr) *direct = writer->is_direct();
    return writer->close();
  }
  void expect_in(Io& io, const std::string& path, const std::vector<uint64_t>& digests) const {
    const Result<std::string> text = read_file(io, path, 64 * kMiB);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    ASSERT_EQ(static_cast<int64_t>(text->size()), file_bytes);
    std::string expected(static_cast<size_t>(file_bytes), '\0');
    std::memcpy(expected.data() + kA, a.data(), a.size());
    std::memcpy(expected.data() + kB, b.data(), b.size());
    std::memcpy(expected.data() + at_c, c.data(), c.size());
    EXPECT_TRUE(*text == expected);
    ASSERT_EQ(digests.size(), 6u);
    EXPECT_EQ(digests[1], block_digest(std::span(a).subspan(kMiB, kMiB)));
    EXPECT_EQ(digests[5], block_digest(std::span(b).subspan(2 * kMiB)));
  }
};

TEST(Writer, WritesWhatItIsGivenAndItsDigests) {
  TemporaryFolder folder;
  const Shard shard;
  for (const bool direct : {true, false}) {
    WriterOptions options = small_options();
    options.direct = direct;
    const auto pool = WriterPool::create(posix_io(), options);
    ASSERT_TRUE(pool.ok());
    std::vector<uint64_t> digests;
    const std::string path = folder.file(direct ? "direct" : "buffered");
    ASSERT_TRUE(shard.write(**pool, path, &digests).ok());
    shard.expect_in(posix_io(), path, digests);
  }
}

TEST(Writer, AlignedMemoryGoesOutAsItIs) {
  TemporaryFolder folder;
  const auto pool = WriterPool::create(posix_io(), small_options());
  const auto writer = FileWriter::create(**pool, folder.file("a"), 4 * kMiB, 4);
  ASSERT_TRUE(writer.ok());
  const std::vector<std::byte> data = noise(4 * kMiB, 5);
  for (int64_t block = 0; block < 4; ++block) {
    // More chunks than the pool has buffers: acquire waits for the writer.
    auto buffer = (*pool)->staging().acquire({});
    ASSERT_TRUE(buffer.ok());
    std::memcpy(buffer->data(), data.data() + block * kMiB, kMiB);
    (*writer)->add(std::move(*buffer), kMiB, block * kMiB, block);
  }
  ASSERT_TRUE((*writer)->close().ok());
  EXPECT_EQ((*pool)->staging().in_use(), 0);
  EXPECT_LE((*pool)->staging().peak(), 2);
  const auto text = read_file(posix_io(), folder.file("a"), 4 * kMiB);
  EXPECT_EQ(std::memcmp(text->data(), data.data(), data.size()), 0);
  EXPECT_EQ((*writer)->digests()[3], block_digest(std::span(data).subspan(3 * kMiB)));
}

TEST(Writer, SeveralProcessesMayFillOneFile) {
  TemporaryFolder folder;
  const auto pool = WriterPool::create(posix_io(), small_options());
  const auto first = FileWriter::create(**pool, folder.file("a"), 2 * kMiB, 2);
  const auto second =
      FileWriter::create(**pool, folder.file("a"), 2 * kMiB, 2, {}, FileUse::kShared);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<std::byte> data = noise(2 * kMiB, 6);
  (*second)->add({data.data() + kMiB, kMiB, kMiB, 1});
  (*first)->add({data.data(), kMiB, 0, 0});
  ASSERT_TRUE((*first)->close().ok() && (*second)->close().ok());
  const auto text = read_file(posix_io(), folder.file("a"), 2 * kMiB);
  EXPECT_EQ(std::memcmp(text->data(), data.data(), data.size()), 0);
}

TEST(Writer, RefusedDirectWritesFallBack) {
  const Shard shard;
  for (const IoCall call : {IoCall::kOpen, IoCall::kPwrite, IoCall::kFallocate}) {
    MemoryIo memory;
    ScriptedIo io(memory);
    if (call == IoCall::kOpen) {
      memory.set_direct_allowed(false);
    } else {
      io.add({.call = call, .count = 1, .error = call == IoCall::kFallocate ? EOPNOTSUPP : EINVAL});
    }
    const auto pool = WriterPool::create(io, small_options());
    std::vector<uint64_t> digests;
    bool direct = true;
    const Status status = shard.write(**pool, "/a", &digests, &direct);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(direct, call == IoCall::kFallocate);
    shard.expect_in(memory, "/a", digests);
  }
}

TEST(Writer, ShortWritesAndInterruptsAreCarriedOn) {
  const Shard shard;
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kPwrite, .first = 2, .count = 9, .action = FaultRule::Action::kShort});
  io.add({.call = IoCall::kPwrite, .first = 14, .count = 3, .error = EINTR});
  const auto pool = WriterPool::create(io, small_options());
  std::vector<uint64_t> digests;
  const Status status = shard.write(**pool, "/a", &digests);
  ASSERT_TRUE(status.ok()) << status.to_string();
  shard.expect_in(memory, "/a", digests);
  EXPECT_GE(io.faults(), 10);
}

TEST(Writer, EveryFailingCallIsNamedAndTheNextFileIsWritten) {
  const Shard shard;
  int64_t failures = 0;
  for (const int error : {ENOSPC, EIO}) {
    for (const bool direct : {true, false}) {
      WriterOptions options = small_options();
      options.direct = direct;
      for (int64_t call = 1;; ++call) {
        MemoryIo memory;
        ScriptedIo io(memory);
        io.add({.path = "/a", .changes_only = true, .first = call, .error = error});
        const auto pool = WriterPool::create(io, options);
        std::vector<uint64_t> digests;
        const Status status = shard.write(**pool, "/a", &digests);
        if (io.faults() == 0) break;
        EXPECT_EQ(io.open_files(), 0);
        if (!status.ok()) {
          ++failures;
          EXPECT_EQ(status.code(),
                    error == ENOSPC ? StatusCode::kResourceExhausted : StatusCode::kInternal);
          EXPECT_NE(status.message().find("/a"), std::string::npos) << status.message();
          EXPECT_NE(status.message().find(fmt::format("errno {}", error)), std::string::npos);
        }
        ASSERT_TRUE(shard.write(**pool, "/next", &digests).ok());
        shard.expect_in(memory, "/next", digests);
      }
    }
  }
  EXPECT_GT(failures, 30);
}

TEST(Writer, AFullDiskIsFoundBeforeAnythingIsWritten) {
  MemoryIo memory;
  memory.set_capacity(kMiB);
  const auto pool = WriterPool::create(memory, small_options());
  const auto writer = FileWriter::create(**pool, "/a", 2 * kMiB, 2);
  EXPECT_EQ(writer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(writer.status().message().find("fallocate of 2097152 bytes of /a"), std::string::npos)
      << writer.status().message();
}

TEST(Writer, ExtentsOutsideTheFileAreRefused) {
  MemoryIo memory;
  const auto pool = WriterPool::create(memory, small_options());
  const std::vector<std::byte> data(static_cast<size_t>(kMiB));
  for (const WriteExtent& extent :
       {WriteExtent{data.data(), kMiB, 1, 0}, WriteExtent{data.data(), kMiB, -4096, 0},
        WriteExtent{data.data(), -1, 0, 0}, WriteExtent{data.data(), kMiB, 0, 1}}) {
    MemoryIo disk;
    const auto writer = FileWriter::create(**pool, "/" + random_hex(4), kMiB, 1);
    (*writer)->add(extent);
    EXPECT_EQ((*writer)->drain().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Writer, CancellingStopsIt) {
  MemoryIo memory;
  WriterOptions options = small_options();
  options.bandwidth_limit = kMiB;  // seconds for this file: it is cancelled while it waits
  const auto pool = WriterPool::create(memory, options);
  std::stop_source stop;
  const Shard shard;
  const auto writer =
      FileWriter::create(**pool, "/a", shard.file_bytes, shard.blocks, stop.get_token());
  (*writer)->add({shard.a.data(), 3 * kMiB, 4096, 0});
  stop.request_stop();
  EXPECT_EQ((*writer)->drain().code(), StatusCode::kCancelled);
  EXPECT_EQ((*writer)->close().code(), StatusCode::kCancelled);
}

TEST(Writer, TheBandwidthLimitHolds) {
  MemoryIo memory;
  WriterOptions options = small_options();
  options.bandwidth_limit = 32 * kMiB;
  const auto pool = WriterPool::create(memory, options);
  const std::vector<std::byte> data(static_cast<size_t>(8 * kMiB));
  const auto writer = FileWriter::create(**pool, "/a", 8 * kMiB, 8);
  const auto start = std::chrono::steady_clock::now();
  (*writer)->add({data.data(), 8 * kMiB, 0, 0});
  ASSERT_TRUE((*writer)->drain().ok());
  // The first item goes at once, each later one when the ones before have used up their time.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(7 * 1000 / 32));
}

TEST(Staging, WaitingEndsWithACancel) {
  const auto pool = StagingPool::create(4096, 4096);
  auto held = (*pool)->acquire({});
  ASSERT_TRUE(held.ok());
  std::stop_source stop;
  std::thread canceller([&] { stop.request_stop(); });
  EXPECT_EQ((*pool)->acquire(stop.get_token()).status().code(), StatusCode::kCancelled);
  canceller.join();
  held->reset();
  EXPECT_TRUE((*pool)->acquire({}).ok());
}

}  // namespace
}  // namespace hekla::checkpoint
