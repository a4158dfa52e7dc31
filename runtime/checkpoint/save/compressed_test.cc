// SPDX-License-Identifier: Apache-2.0
// Compressed pieces, from memory into files and back: whole and in boxes, after any fault.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/restore/verify.h"
#include "runtime/checkpoint/save/testing/savers.h"

namespace hekla::checkpoint {
namespace {

using Values = testing::State;
using testing::check_power_cuts;
using testing::expect_step;
using testing::folder_of;
using testing::kRoot;
using testing::kStride;
using testing::PowerCuts;
using testing::save;
using testing::state_of;
using testing::with_savers;

SaverOptions packing(Compression how = Compression::kZstd) {
  SaverOptions options = testing::small_options();
  options.plan.compress = {{"*", how}};
  return options;
}

// Random bits are all that the states have; half of each word becomes small.
Values compressible(Values values) {
  for (HostArray& array : values.values) {
    if (array.size_bytes() < 1000 || dtype_bits(array.dtype()) < 8) continue;
    std::byte* bytes = array.mutable_data();
    for (int64_t i = 0; i < array.size_bytes(); i += 2) bytes[i] &= std::byte{3};
  }
  return values;
}

// Of a step: pieces in chunks, chunks, those that are coded, bytes in the file and stored.
struct Counts {
  int64_t pieces = 0, chunks = 0, coded = 0, in_file = 0, bytes = 0;
};
Counts counts_of(Io& io, const std::string& folder) {
  Counts counts;
  const auto reader = StepReader::open(io, folder);
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  for (const Piece& piece : (*reader)->index().pieces()) {
    if (piece.chunks == nullptr) continue;
    ++counts.pieces;
    counts.in_file += bytes_in_file(piece);
    counts.bytes += piece.bytes;
    for (const Chunk& chunk : piece.chunks->chunks) {
      ++counts.chunks;
      counts.coded += chunk.is_coded ? 1 : 0;
    }
  }
  return counts;
}

TEST(Compressed, ValuesComeBackFromAnySource) {
  TemporaryFolder temporary;
  int number = 0;
  const Values values = compressible(testing::make_state(1));
  for (const int world : {1, 4}) {
    for (const testing::MakeSource& make :
         {testing::MakeSource(host_source), testing::MakeSource(testing::mutable_copy),
          testing::MakeSource([](HostArray array) {
            return std::make_shared<testing::ElsewhereSource>(std::move(array));
          })}) {
      const std::string root = temporary.file(std::to_string(number++));
      SaverOptions options = packing();
      options.plan.ranks_per_file = 2;
      options.checks.verify_after_write = HowMuch::kAll;
      with_savers(posix_io(), root, world, options, [&](int rank, Saver& saver) {
        for (int64_t step = 1; step <= 2; ++step) {  // the layout is kept
          save(saver, step, state_of(values, rank, world, make));
        }
      });
      expect_step(posix_io(), root, 2, values);
      const Counts counts = counts_of(posix_io(), join_path(root, step_name(2)));
      EXPECT_GE(counts.pieces, 3);
      EXPECT_GT(counts.coded, counts.chunks / 2);
      EXPECT_LT(counts.in_file, counts.bytes * 9 / 10);
      if (HasFatalFailure()) return;
    }
  }
}

// Boxes take parts of chunks, also of padded ones and of packed elements.
TEST(Compressed, AnyBoxIsThatOfTheValues) {
  MemoryIo io;
  Values values;
  std::mt19937_64 random(5);
  const std::string rows = "mesh=(x:4) spec=(x)", columns = "mesh=(x:4) spec=(None,x)";
  values.add("a", DType::kF32, {700, 1000}, rows, random);
  values.add("b", DType::kBF16, {3, 5, 90001}, columns, random);
  values.add("c", DType::kF6E2M3FN, {1201, 1003}, rows, random);
  values.add("d", DType::kC64, {300000}, "mesh=(x:4) spec=()", random);
  values.add("e", DType::kI2, {9, 400000}, rows, random);
  values = compressible(std::move(values));
  with_savers(io, kRoot, 4, packing(),
              [&](int rank, Saver& saver) { save(saver, 1, state_of(values, rank, 4)); });
  EXPECT_GT(counts_of(io, folder_of(1)).chunks, 12);
  for (const Verify verify : {Verify::kTouched, Verify::kNone}) {
    StepReaderOptions options;
    options.verify = verify;
    const auto reader = StepReader::open(io, folder_of(1), options);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    for (int i = 0; i < 60; ++i) {
      const auto t = static_cast<size_t>(i) % values.tensors.size();
      Box box;
      for (const int64_t dim : values.tensors[t].shape) {
        const auto start = static_cast<int64_t>(random() % static_cast<uint64_t>(dim));
        box.start.push_back(start);
        const int64_t most = std::min<int64_t>(dim - start, i % 3 == 0 ? dim : 40);
        box.size.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)));
      }
      const auto array = (*reader)->read(static_cast<int32_t>(t), box);
      ASSERT_TRUE(array.ok()) << array.status().to_string();
      ASSERT_TRUE(array->identical(testing::part_of(values.values[t], box))) << i;
    }
    // A narrow box reads its chunks and no more.
    const int64_t before = (*reader)->bytes_read();
    ASSERT_TRUE((*reader)->read(0, {{0, 0}, {1, 1}}).ok());
    EXPECT_LT((*reader)->bytes_read() - before, int64_t{2} << 20);
  }
}

TEST(Compressed, AutoLooksAtTheTensor) {
  MemoryIo io;
  Values values = testing::make_state(1);
  Values easy = values;
  for (size_t t = 0; t < values.tensors.size(); ++t) {
    if (values.tensors[t].name != "rows") continue;
    std::byte* bytes = easy.values[t].mutable_data();
    for (int64_t i = 0; i < easy.values[t].size_bytes(); i += 4) bytes[i] = bytes[i + 1] = {};
  }
  with_savers(io, kRoot, 1, packing(Compression::kAuto), [&](int, Saver& saver) {
    save(saver, 1, state_of(values, 0, 1));
    save(saver, 2, state_of(easy, 0, 1));
  });
  EXPECT_EQ(counts_of(io, folder_of(1)).coded, 0);  // noise
  const Counts counts = counts_of(io, folder_of(2));
  EXPECT_GT(counts.coded, 4);
  EXPECT_LT(counts.coded, counts.chunks);
  expect_step(io, kRoot, 1, values);
  expect_step(io, kRoot, 2, easy);
}

// Memory does not grow with the state: all of it passes through three staging buffers.
TEST(Compressed, OverwrittenArraysAndLittleStaging) {
  for (const int64_t staging_mib : {1, 64}) {
    MemoryIo io;
    const Values values = compressible(testing::make_state(3));
    SaverOptions options = packing();
    options.writer.staging_bytes = staging_mib << 20;
    with_savers(io, kRoot, 1, options, [&](int, Saver& saver) {
      std::vector<std::shared_ptr<std::vector<std::byte>>> memory;
      State state = state_of(values, 0, 1, [&](HostArray array) {
        const auto bytes =
            std::make_shared<std::vector<std::byte>>(array.bytes().begin(), array.bytes().end());
        memory.push_back(bytes);
        return mutable_source(bytes->data(), static_cast<int64_t>(bytes->size()), bytes);
      });
      const auto handle = saver.save(1, std::move(state));
      ASSERT_TRUE(handle.ok()) << handle.status().to_string();
      for (const auto& bytes : memory) std::fill(bytes->begin(), bytes->end(), std::byte{0xAA});
      ASSERT_TRUE((*handle)->wait().ok()) << (*handle)->error().to_string();
      EXPECT_LE(saver.pool().staging().peak(), staging_mib);
    });
    expect_step(io, kRoot, 1, values);
  }
}

TEST(CompressedFaults, EveryFailingCallIsCleanAndTheNextSaveWorks) {
  const Values values = compressible(testing::make_small_state(1));
  int64_t failures = 0;
  for (const int error : {ENOSPC, EIO}) {
    // Each fails every other call; plain saves try them all.
    for (int64_t call = error == EIO ? 1 : 2;; call += 2 * kStride) {
      MemoryIo memory;
      ScriptedIo io(memory);
      int64_t faults = 0;
      with_savers(io, kRoot, 1, packing(), [&](int, Saver& saver) {
        save(saver, 1, state_of(values, 0, 1));
        io.add({.changes_only = true, .first = call, .error = error});
        const auto handle = saver.save(2, state_of(values, 0, 1));
        ASSERT_TRUE(handle.ok());
        const Status status = (*handle)->wait();
        faults = io.faults();
        io.clear();
        EXPECT_EQ(saver.pool().staging().in_use(), 0);
        EXPECT_EQ(io.open_files(), 0);
        if (!status.ok()) {
          ++failures;
          EXPECT_NE(status.message().find(fmt::format("errno {}", error)), std::string::npos)
              << status.message();
        }
        EXPECT_EQ(*newest_step(memory, kRoot), status.ok() ? 2 : 1);
        save(saver, 3, state_of(values, 0, 1));
      });
      if (faults == 0) break;
      expect_step(memory, kRoot, 3, values);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(failures, 30 / kStride);
}

TEST(CompressedFaults, PowerCutsLeaveThePreviousOrTheNewStep) {
  MemoryIo disk;
  const Values first = compressible(testing::make_small_state(1)),
               second = compressible(testing::make_small_state(2));
  int64_t from = 0;
  with_savers(disk, kRoot, 2, packing(), [&](int rank, Saver& saver) {
    save(saver, 1, state_of(first, rank, 2));
    if (rank == 0) from = disk.journal_size();
    save(saver, 2, state_of(second, rank, 2));
  });
  EXPECT_GT(counts_of(disk, folder_of(2)).coded, 2);
  const PowerCuts cuts = check_power_cuts(disk, kRoot, from, 150 * kStride, first, second);
  EXPECT_GE(cuts.old_steps, 1 / kStride);
  EXPECT_GT(cuts.new_steps, 0);
}

// Bits of every part of a packed file flipped, and the file cut at many places: named, or without
// effect because nothing lies there. Never another value, never a crash.
TEST(CompressedFaults, DamageIsNamedAndNeverBecomesAValue) {
  MemoryIo io;
  const Values values = compressible(testing::make_small_state(1));
  with_savers(io, kRoot, 1, packing(),
              [&](int, Saver& saver) { save(saver, 1, state_of(values, 0, 1)); });
  const std::string path = folder_of(1) + "/data/packed-00000.h5";
  const int64_t size = stat_file(io, path)->size;
  const auto file = File::open(io, path, O_RDWR);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> good(static_cast<size_t>(size));
  ASSERT_TRUE(file->read(good, 0).ok());
  int64_t named = 0;
  const auto look = [&](const std::string& what, bool must_be_named) {
    const auto report = verify_step(io, folder_of(1));
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    if (must_be_named) {
      EXPECT_EQ(report->problems.size(), 1u) << what;
    }
    named += report->problems.empty() ? 0 : 1;
    for (const Problem& problem : report->problems) EXPECT_EQ(problem.file, "data/packed-00000.h5");
    const auto reader = StepReader::open(io, folder_of(1));
    for (size_t t = 0; reader.ok() && t < values.tensors.size(); ++t) {
      const auto array = (*reader)->read(static_cast<int32_t>(t));
      if (array.ok()) {
        EXPECT_TRUE(array->identical(values.values[t])) << what;
      } else {
        EXPECT_EQ(array.status().code(), StatusCode::kDataLoss) << array.status().to_string();
      }
    }
  };
  std::mt19937_64 random(4);
  for (int i = 0; i < 120 / kStride; ++i) {
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    std::byte byte = good[static_cast<size_t>(at)] ^ std::byte{static_cast<uint8_t>(1u << i % 8)};
    ASSERT_TRUE(file->write({&byte, 1}, at).ok());
    look(fmt::format("bit at {}", at), false);
    ASSERT_TRUE(file->write({&good[static_cast<size_t>(at)], 1}, at).ok());
  }
  EXPECT_GT(named, 60 / kStride);
  for (int i = 0; i < 100 / kStride; ++i) {
    ASSERT_TRUE(file->truncate(size * i / (100 / kStride)).ok());
    look(fmt::format("cut {}", i), true);
    ASSERT_TRUE(file->write(good, 0).ok());
  }
}

}  // namespace
}  // namespace hekla::checkpoint
