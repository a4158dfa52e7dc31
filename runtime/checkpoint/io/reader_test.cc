// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/reader.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/format/digest.h"

namespace hekla::checkpoint {
namespace {

class ReaderTest : public testing::Test {
 protected:
  // A piece of `bytes` at `offset` of a file that goes on behind it.
  void make(Io& io, const std::string& path, int64_t offset, int64_t bytes) {
    std::mt19937_64 draw(7);
    text_.resize(static_cast<size_t>(offset + bytes + 100));
    for (char& c : text_) c = static_cast<char>(draw());
    ASSERT_TRUE(create_file(io, path, text_).ok());
    piece_ = std::as_bytes(std::span(text_))
                 .subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
    digests_.clear();
    for (int64_t at = 0; at < bytes; at += kBlockBytes) {
      digests_.push_back(block_digest(
          piece_.subspan(static_cast<size_t>(at), std::min<size_t>(kBlockBytes, bytes - at))));
    }
    request_ = {};
    request_.offset = offset;
    request_.bytes = bytes;
    request_.digests = digests_;
  }
  ReaderOptions options() const {
    ReaderOptions options;
    options.threads = 2;
    options.item_bytes = kMiB;
    options.budget_bytes = 4 * kMiB;
    return options;
  }
  Status read_into(Io& io, const std::string& path, std::vector<std::byte>* into) {
    const auto reader = Reader::create(io, options());
    into->assign(static_cast<size_t>(request_.bytes), std::byte{0});
    request_.into = into->data();
    return (*reader)->read(std::span(&path, 1), std::span(&request_, 1));
  }

  std::string text_;
  std::span<const std::byte> piece_;
  std::vector<uint64_t> digests_;
  ReadRequest request_;
};

TEST_F(ReaderTest, GivesVerifiedBytesAtAnyOffset) {
  TemporaryFolder folder;
  for (const int64_t offset : {int64_t{0}, int64_t{4096}, int64_t{12345}}) {
    const std::string path = folder.file(std::to_string(offset));
    make(posix_io(), path, offset, 3 * kMiB + 77);
    std::vector<std::byte> into;
    const Status status = read_into(posix_io(), path, &into);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(std::equal(into.begin(), into.end(), piece_.begin(), piece_.end()));
  }
}

TEST_F(ReaderTest, GivesSomeBlocksToAFunction) {
  TemporaryFolder folder;
  const std::string path = folder.file("a");
  make(posix_io(), path, 4096, 5 * kMiB);
  std::vector<std::byte> got(static_cast<size_t>(5 * kMiB));
  std::mutex mutex;
  int64_t bytes = 0;
  request_.first_block = 1;
  request_.blocks = 3;
  request_.take = [&](int64_t at, std::span<const std::byte> part) {
    const std::lock_guard lock(mutex);
    std::memcpy(got.data() + at, part.data(), part.size());
    bytes += static_cast<int64_t>(part.size());
    return ok_status();
  };
  const auto reader = Reader::create(posix_io(), options());
  ASSERT_TRUE((*reader)->read(std::span(&path, 1), std::span(&request_, 1)).ok());
  EXPECT_EQ(bytes, 3 * kMiB);
  EXPECT_EQ(std::memcmp(got.data() + kMiB, piece_.data() + kMiB, 3 * kMiB), 0);
  EXPECT_EQ((*reader)->bytes_read(), 3 * kMiB);
}

TEST_F(ReaderTest, GivesTheFunctionWhatLiesInMemoryAlready) {
  TemporaryFolder folder;
  const std::string path = folder.file("a");
  make(posix_io(), path, 4096, 2 * kMiB + 4999);
  // Aligned, so that direct reads go there; and not, so that they cannot.
  std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, 4 * kMiB)), std::free);
  for (const int64_t shift : {0, 8}) {
    std::memset(memory.get(), 0x5a, 4 * kMiB);
    request_.into = memory.get() + shift;
    request_.take = [&](int64_t at, std::span<const std::byte> part) {
      const bool is_there =
          part.data() == request_.into + at &&
          std::equal(part.begin(), part.end(), piece_.begin() + static_cast<ptrdiff_t>(at));
      return is_there ? ok_status() : internal_error("other bytes at {}", at);
    };
    const auto reader = Reader::create(posix_io(), options());
    const Status status = (*reader)->read(std::span(&path, 1), std::span(&request_, 1));
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(request_.into[request_.bytes], std::byte{0x5a}) << "written behind the piece";
  }
}

TEST_F(ReaderTest, AFlippedBitIsNamed) {
  TemporaryFolder folder;
  make(posix_io(), folder.file("good"), 4096, 2 * kMiB + 5);
  text_[static_cast<size_t>(4096 + kMiB + 17)] ^= 1;
  ASSERT_TRUE(create_file(posix_io(), folder.file("bad"), text_).ok());
  std::vector<std::byte> into;
  const Status status = read_into(posix_io(), folder.file("bad"), &into);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("bad: 1048576 bytes at offset 1052672 (block 1 of"),
            std::string::npos)
      << status.message();
}

TEST_F(ReaderTest, ACutFileIsNamed) {
  MemoryIo memory;
  make(memory, "/a", 4096, 2 * kMiB);
  ASSERT_TRUE(create_file(memory, "/cut", std::string_view(text_).substr(0, 2 * kMiB)).ok());
  std::vector<std::byte> into;
  const Status status = read_into(memory, "/cut", &into);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("/cut ends at 2097152"), std::string::npos) << status.message();
}

TEST_F(ReaderTest, FaultsOfTheFileSystem) {
  MemoryIo memory;
  make(memory, "/a", 4096, 3 * kMiB + 9);
  std::vector<std::byte> into;
  {
    ScriptedIo io(memory);
    io.add({.call = IoCall::kPread, .count = 1, .error = EINVAL});  // direct reads refused
    io.add({.call = IoCall::kPread, .first = 3, .count = 5, .action = FaultRule::Action::kShort});
    io.add({.call = IoCall::kPread, .first = 8, .count = 2, .error = EINTR});
    const Status status = read_into(io, "/a", &into);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(std::equal(into.begin(), into.end(), piece_.begin(), piece_.end()));
  }
  {
    ScriptedIo io(memory);
    io.add({.call = IoCall::kPread, .first = 2, .error = EIO});
    const Status status = read_into(io, "/a", &into);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("of /a"), std::string::npos) << status.message();
    EXPECT_EQ(io.open_files(), 0);
  }
}

TEST_F(ReaderTest, BadRequestsAreRefused) {
  MemoryIo memory;
  make(memory, "/a", 0, kMiB);
  const auto reader = Reader::create(memory, options());
  const std::string path = "/a";
  for (int kind = 0; kind < 5; ++kind) {
    ReadRequest request = request_;
    if (kind == 0) request.file = 1;
    if (kind == 1) request.offset = -1;
    if (kind == 2) request.first_block = 2;
    if (kind == 3) request.blocks = 2;
    if (kind == 4) request.bytes = 5 * kMiB;  // more blocks than digests
    EXPECT_EQ((*reader)->read(std::span(&path, 1), std::span(&request, 1)).code(),
              StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hekla::checkpoint
