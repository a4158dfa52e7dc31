// SPDX-License-Identifier: Apache-2.0
// Frozen tensors: a step takes over the files of the step before when what they hold is what would
// be written, and only then.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
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

// "rows" is large and cut, "packed" a copy on all ranks, "flags" goes with the metadata.
const std::vector<std::string> kFrozen = {"rows", "pack*", "flags"};

bool is_frozen(const std::string& name) {
  return name == "rows" || name == "packed" || name == "flags";
}

SaverOptions options_of_test() {
  SaverOptions options = testing::small_options();
  options.plan.frozen = kFrozen;
  return options;
}

// Values of another step: the frozen ones stay.
Values next_values(const Values& values, uint64_t seed) {
  Values next = testing::make_small_state(seed);
  for (size_t t = 0; t < next.tensors.size(); ++t) {
    if (is_frozen(next.tensors[t].name)) next.values[t] = values.values[t];
  }
  return next;
}

// Another value in the first element of a tensor.
void change(Values* values, const std::string& name) {
  for (size_t t = 0; t < values->tensors.size(); ++t) {
    if (values->tensors[t].name != name) continue;
    std::byte* first = values->values[t].mutable_data();
    *first ^= std::byte{1};
  }
}

// The frozen files of a step: path and inode.
std::map<std::string, uint64_t> frozen_files(Io& io, const std::string& folder) {
  std::map<std::string, uint64_t> files;
  const auto commit = read_commit(io, folder);
  EXPECT_TRUE(commit.ok()) << commit.status().to_string();
  for (const FileRecord& file : commit->files) {
    if (!file.path.starts_with("data/frozen-")) continue;
    files[file.path] = stat_file(io, join_path(folder, file.path))->inode;
  }
  return files;
}

int64_t links_of(Io& io, const std::string& folder) {
  int64_t links = 0;
  const auto commit = read_commit(io, folder);
  EXPECT_TRUE(commit.ok()) << commit.status().to_string();
  for (const FileRecord& file : commit->files) links += file.origin ? 1 : 0;
  return links;
}

TEST(Frozen, UnchangedFilesAreLinkedAndOutliveTheStepThatWroteThem) {
  TemporaryFolder temporary;
  int case_number = 0;
  for (const int world : {1, 4}) {
    for (const testing::MakeSource& make :
         {testing::MakeSource(host_source), testing::MakeSource(testing::mutable_copy),
          testing::MakeSource([](HostArray array) {
            return std::make_shared<testing::ElsewhereSource>(std::move(array));
          })}) {
      const std::string root = temporary.file(std::to_string(case_number++));
      const auto folder = [&](int64_t step) { return join_path(root, step_name(step)); };
      std::vector<Values> values = {testing::make_small_state(1)};
      for (uint64_t seed = 2; seed <= 3; ++seed) values.push_back(next_values(values[0], seed));
      // The third step is another process's: what is linked is found on the disk.
      for (const auto& steps : {std::vector<int>{0, 1}, std::vector<int>{2}}) {
        with_savers(posix_io(), root, world, options_of_test(), [&](int rank, Saver& saver) {
          for (const int i : steps) save(saver, i + 1, state_of(values[i], rank, world, make));
        });
      }
      const std::map<std::string, uint64_t> files = frozen_files(posix_io(), folder(1));
      EXPECT_EQ(files.size(), static_cast<size_t>(world));
      EXPECT_EQ(links_of(posix_io(), folder(1)), 0);
      const CommitRecord first = *read_commit(posix_io(), folder(1));
      for (const int64_t step : {2, 3}) {
        EXPECT_EQ(frozen_files(posix_io(), folder(step)), files);
        const CommitRecord commit = *read_commit(posix_io(), folder(step));
        EXPECT_EQ(commit.parent_step, step - 1);
        for (const FileRecord& file : commit.files) {
          if (!file.path.starts_with("data/frozen-")) continue;
          EXPECT_EQ(file.origin, (FileOrigin{1, first.nonce})) << file.path;
        }
      }
      expect_step(posix_io(), root, 1, values[0]);
      ASSERT_TRUE(delete_step(posix_io(), root, 1).ok());
      for (const int i : {1, 2}) expect_step(posix_io(), root, i + 1, values[i]);
      ASSERT_TRUE(delete_step(posix_io(), root, 2).ok());
      expect_step(posix_io(), root, 3, values[2]);
      if (HasFatalFailure()) return;
    }
  }
}

// The pattern is no promise that anybody believes.
TEST(Frozen, WhatHasChangedIsWritten) {
  for (const char* changed : {"rows", "packed", "flags"}) {
    for (const bool is_mutable : {false, true}) {
      MemoryIo io;
      std::vector<Values> values = {testing::make_small_state(1)};
      values.push_back(next_values(values[0], 2));
      change(&values[1], changed);
      values.push_back(next_values(values[1], 3));
      with_savers(io, kRoot, 4, options_of_test(), [&](int rank, Saver& saver) {
        for (int i = 0; i < 3; ++i) {
          save(saver, i + 1,
               is_mutable ? state_of(values[i], rank, 4, testing::mutable_copy)
                          : state_of(values[i], rank, 4));
        }
      });
      // One rank holds the element; the others' files are links.
      EXPECT_EQ(links_of(io, folder_of(2)), 3) << changed;
      EXPECT_EQ(links_of(io, folder_of(3)), 4);
      for (int i = 0; i < 3; ++i) expect_step(io, kRoot, i + 1, values[i]);
    }
  }
}

TEST(Frozen, AnotherLayoutIsWritten) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 1, options_of_test(), [&](int, Saver& saver) {
    save(saver, 1, state_of(values, 0, 1));
    State more = state_of(values, 0, 1);
    add_array(&more, "a first tensor", HostArray(DType::kF32, {3}));  // the numbers move up
    save(saver, 2, std::move(more));
    save(saver, 3, state_of(values, 0, 1));
    save(saver, 4, state_of(values, 0, 1));
  });
  EXPECT_EQ(links_of(io, folder_of(2)), 0);
  EXPECT_EQ(links_of(io, folder_of(3)), 0);
  EXPECT_EQ(links_of(io, folder_of(4)), 1);
  expect_step(io, kRoot, 4, values);
}

TEST(Frozen, AStepThatIsReplacedIsNoParent) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 1, options_of_test(), [&](int, Saver& saver) {
    SaveArguments again;
    again.overwrite = true;
    save(saver, 1, state_of(values, 0, 1));
    for (int i = 0; i < 2; ++i) {
      const auto handle = saver.save(1, state_of(values, 0, 1), again);
      ASSERT_TRUE(handle.ok() && (*handle)->wait().ok()) << (*handle)->error().to_string();
    }
  });
  expect_step(io, kRoot, 1, values);
}

TEST(Frozen, WithoutHardLinksItIsWritten) {
  const Values values = testing::make_small_state(1);
  for (const int error : {EXDEV, EPERM, EMLINK, EOPNOTSUPP, ENOENT}) {
    MemoryIo memory;
    ScriptedIo io(memory);
    with_savers(io, kRoot, 1, options_of_test(), [&](int, Saver& saver) {
      save(saver, 1, state_of(values, 0, 1));
      io.add({.call = IoCall::kLink, .path = "frozen", .error = error});
      save(saver, 2, state_of(values, 0, 1));
    });
    EXPECT_EQ(io.faults(), 1);
    EXPECT_EQ(links_of(memory, folder_of(2)), 0);
    expect_step(memory, kRoot, 2, values);
  }
}

// A parent whose file is damaged is not built upon, where that can be seen without reading all of
// it.
TEST(Frozen, ADamagedParentIsNotLinked) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 1, options_of_test(), [&](int, Saver& saver) {
    save(saver, 1, state_of(values, 0, 1));
    const std::string path = join_path(folder_of(1), "data/frozen-00000.h5");
    const int64_t size = stat_file(io, path)->size;
    for (const int64_t place : {int64_t{100}, size - 5000}) {
      const auto file = File::open(io, path, O_RDWR);
      std::byte byte;
      ASSERT_TRUE(file->read({&byte, 1}, place).ok());
      byte ^= std::byte{4};
      ASSERT_TRUE(file->write({&byte, 1}, place).ok());
      save(saver, 2, state_of(values, 0, 1));
      EXPECT_EQ(links_of(io, folder_of(2)), 0) << place;
      expect_step(io, kRoot, 2, values);
      ASSERT_TRUE(delete_step(io, kRoot, 2).ok());
      byte ^= std::byte{4};
      ASSERT_TRUE(file->write({&byte, 1}, place).ok());
    }
  });
}

TEST(Frozen, AFileOfAnotherSaveIsNotTakenForTheLink) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  Values other = values;
  change(&other, "rows");
  with_savers(io, kRoot, 1, options_of_test(), [&](int, Saver& saver) {
    save(saver, 1, state_of(values, 0, 1));
    save(saver, 2, state_of(values, 0, 1));
    save(saver, 3, state_of(other, 0, 1));
  });
  const std::string file = "/data/frozen-00000.h5";
  ASSERT_TRUE(unlink_file(io, folder_of(2) + file).ok());
  ASSERT_EQ(io.link(folder_of(3) + file, folder_of(2) + file), 0);
  const auto report = verify_step(io, folder_of(2));
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_NE(report->problems[0].what.find("files of two saves are mixed"), std::string::npos)
      << report->problems[0].what;
  const auto reader = StepReader::open(io, folder_of(2));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->tensor("rows")->read().status().code(), StatusCode::kDataLoss);
}

// Each changing call of a save that links fails once: the old step stands, the next save works.
TEST(FrozenFaults, EveryFailingCallIsCleanAndTheNextSaveWorks) {
  const Values values = testing::make_small_state(1);
  int64_t failures = 0;
  for (int64_t call = 1;; call += kStride) {
    MemoryIo memory;
    ScriptedIo io(memory);
    int64_t faults = 0;
    with_savers(io, kRoot, 1, options_of_test(), [&](int, Saver& saver) {
      save(saver, 1, state_of(values, 0, 1));
      io.add({.changes_only = true, .first = call, .error = EIO});
      const auto handle = saver.save(2, state_of(values, 0, 1));
      ASSERT_TRUE(handle.ok());
      const Status status = (*handle)->wait();
      faults = io.faults();
      io.clear();
      EXPECT_EQ(saver.pool().staging().in_use(), 0);
      EXPECT_EQ(io.open_files(), 0);
      failures += status.ok() ? 0 : 1;
      EXPECT_EQ(*newest_step(memory, kRoot), status.ok() ? 2 : 1);
      save(saver, 3, state_of(values, 0, 1));
    });
    if (faults == 0) break;
    EXPECT_EQ(links_of(memory, folder_of(3)), 1);
    expect_step(memory, kRoot, 1, values);
    expect_step(memory, kRoot, 3, values);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(failures, 20 / kStride);
}

// The names of links are as durable as files that were written.
TEST(FrozenFaults, PowerCutsLeaveThePreviousOrTheNewStep) {
  MemoryIo disk;
  const Values first = testing::make_small_state(1), second = next_values(first, 2);
  int64_t from = 0;
  with_savers(disk, kRoot, 2, options_of_test(), [&](int rank, Saver& saver) {
    save(saver, 1, state_of(first, rank, 2));
    if (rank == 0) from = disk.journal_size();
    save(saver, 2, state_of(second, rank, 2));
    if (rank == 0) {
      ASSERT_TRUE(delete_step(disk, kRoot, 1).ok());
    }
  });
  EXPECT_EQ(links_of(disk, folder_of(2)), 2);
  const PowerCuts cuts = check_power_cuts(disk, kRoot, from, 40 * kStride, first, second);
  EXPECT_GE(cuts.old_steps, 2 / kStride);
  EXPECT_GT(cuts.new_steps, 0);
}

}  // namespace
}  // namespace hekla::checkpoint
