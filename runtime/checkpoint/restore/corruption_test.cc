// SPDX-License-Identifier: Apache-2.0
// Steps that are not what was written: flipped bits of every class of bytes, truncated and missing
// files, files of another save. The restart must name the place or give the right values; it must
// not crash, hang, or give a wrong value. HEKLA_CORRUPTION_PLACES chooses how many bytes of each
// file are flipped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/format/testing/write_step.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/restore/testing/written_state.h"
#include "runtime/checkpoint/restore/verify.h"

namespace hekla::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::make_small_state;
using testing::read_file;
using testing::State;
using testing::write_file;
using testing::write_state;
using Bytes = std::vector<std::byte>;

// Ends the test program when a restore hangs.
class Alarm {
 public:
  Alarm() { ::alarm(60); }
  ~Alarm() { ::alarm(0); }
};

class Corruption : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = write_state(step_, state_, 4, {"run", "nonce", 7});
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const auto& entry : fs::recursive_directory_iterator(step_)) {
      if (entry.is_regular_file()) {
        files_.push_back(fs::relative(entry.path(), step_).string());
      }
    }
    std::sort(files_.begin(), files_.end());
    ASSERT_GE(files_.size(), 7u);  // COMMIT, index, view, four shards
  }

  // All values, or the first error.
  Status restore(Verify verify) {
    StepReaderOptions options;
    options.verify = verify;
    options.threads = 1;
    HEKLA_ASSIGN_OR_RETURN(const auto reader, StepReader::open(posix_io(), step_, options));
    if (reader->index().tensors().size() != state_.tensors.size()) {
      return internal_error("{} tensors", reader->index().tensors().size());
    }
    for (size_t t = 0; t < state_.tensors.size(); ++t) {
      HEKLA_ASSIGN_OR_RETURN(const HostArray array, reader->read(static_cast<int32_t>(t)));
      if (!array.identical(state_.values[t])) {
        return internal_error("wrong values of {}", state_.tensors[t].name);
      }
    }
    return ok_status();
  }

  static bool names(const Status& status, const std::string& file) {
    return status.code() == StatusCode::kDataLoss &&
           status.message().find(file) != std::string::npos;
  }

  // What damage to `file` may lead to. Returns whether it was found by looking at everything.
  bool check_damage(const std::string& file, const std::string& what) {
    const Status touched = restore(Verify::kTouched);
    EXPECT_TRUE(touched.ok() || names(touched, file)) << what << ": " << touched.to_string();
    const Status full = restore(Verify::kFull);
    EXPECT_TRUE(full.ok() || names(full, file)) << what << ": " << full.to_string();
    EXPECT_TRUE(touched.ok() || !full.ok()) << what << ": missed by the full verification";
    return !full.ok();
  }

  TemporaryFolder folder_;
  const std::string step_ = folder_.file("step-000000000007");
  State state_ = make_small_state(5);
  std::vector<std::string> files_;
};

int places() {
  const char* text = std::getenv("HEKLA_CORRUPTION_PLACES");
  return text == nullptr ? 60 : std::max(1, std::atoi(text));
}

TEST_F(Corruption, SoundStepIsSound) {
  EXPECT_TRUE(restore(Verify::kTouched).ok());
  EXPECT_TRUE(restore(Verify::kFull).ok());
  const Result<VerifyReport> report = verify_step(posix_io(), step_);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->problems.empty());
  EXPECT_EQ(report->files, static_cast<int64_t>(files_.size()) - 1);
  EXPECT_EQ(report->blocks, 10);  // 4 of rows and flags each, bias, packed
}

TEST_F(Corruption, FlippedBitIsNamedOrHarmless) {
  std::mt19937_64 random(11);
  for (const std::string& file : files_) {
    const Alarm alarm;
    const std::string path = step_ + "/" + file;
    const Bytes sound = read_file(path);
    int found = 0;
    for (int i = 0; i < places(); ++i) {
      // Evenly, moved by chance, so that runs with another number meet other bytes.
      const size_t at = std::min(sound.size() - 1, (sound.size() * i + random() % sound.size()) /
                                                       static_cast<size_t>(places()));
      Bytes damaged = sound;
      damaged[at] ^= static_cast<std::byte>(1u << random() % 8);
      write_file(path, damaged);
      found += check_damage(file, file + ", byte " + std::to_string(at));
      if (HasFailure()) break;
    }
    write_file(path, sound);
    ASSERT_FALSE(HasFailure());
    // Only what fills pages up in a shard belongs to nobody.
    EXPECT_GE(found,
              file.ends_with("h5") && file.starts_with("data") ? places() * 9 / 10 : places())
        << file;
  }
}

// The classes that an even spread may miss in a larger file: the user block and each part of the
// metadata around the payload.
TEST_F(Corruption, EveryPartOfAShardIsCovered) {
  const std::string file = "data/shard-00001.h5";
  const std::string path = step_ + "/" + file;
  const Bytes sound = read_file(path);
  const UserBlock block = parse_user_block(sound).value();
  std::vector<size_t> at = {0,   8,   12,  16,  64,  112, 120,  124,  128,  136,  144,  152,
                            168, 184, 255, 256, 264, 272, 4079, 4080, 4095, 4096, 4200, 8191};
  for (int64_t b = 0; b < block.blocks; ++b) at.push_back(block.table_offset + 8 * b + b % 8);
  for (const ByteRange& area : block.areas) at.insert(at.end(), {static_cast<size_t>(area.begin)});
  for (const ByteRange& range : metadata_ranges(block)) {
    at.insert(at.end(), {static_cast<size_t>(range.begin), static_cast<size_t>(range.end) - 1});
  }
  const Alarm alarm;
  for (const size_t place : at) {
    Bytes damaged = sound;
    damaged[place] ^= std::byte{0x10};
    write_file(path, damaged);
    EXPECT_TRUE(check_damage(file, "byte " + std::to_string(place))) << place;
  }
}

TEST_F(Corruption, TruncatedFileIsNamed) {
  for (const std::string& file : files_) {
    const Alarm alarm;
    const std::string path = step_ + "/" + file;
    const Bytes sound = read_file(path);
    for (int i = 0; i < 100; ++i) {
      const size_t size = sound.size() * static_cast<size_t>(i) / 100;
      write_file(path, std::span(sound).first(size));
      const Status status = restore(Verify::kTouched);
      ASSERT_TRUE(names(status, file)) << file << " cut to " << size << ": " << status.to_string();
    }
    Bytes longer = sound;
    longer.push_back(std::byte{0});
    write_file(path, longer);
    EXPECT_TRUE(names(restore(Verify::kTouched), file)) << file;
    write_file(path, sound);
  }
}

// The size is looked at when the step is opened; later the file may still shrink.
TEST_F(Corruption, FileThatShrinksAfterOpeningIsNamed) {
  const Alarm alarm;
  for (const Verify verify : {Verify::kTouched, Verify::kNone}) {
    for (const int hundredth : {0, 1, 30, 60, 99}) {
      StepReaderOptions options;
      options.verify = verify;
      const auto reader = StepReader::open(posix_io(), step_, options).value();
      const std::string path = step_ + "/data/shard-00002.h5";
      const Bytes sound = read_file(path);
      fs::resize_file(path, sound.size() * static_cast<size_t>(hundredth) / 100);
      for (size_t t = 0; t < state_.tensors.size(); ++t) {
        const Result<HostArray> array = reader->read(static_cast<int32_t>(t));
        EXPECT_TRUE(array.ok() ? array->identical(state_.values[t])
                               : names(array.status(), "shard-00002"))
            << array.status().to_string();
      }
      write_file(path, sound);
    }
  }
}

TEST_F(Corruption, MissingFileIsNamed) {
  for (const std::string& file : files_) {
    fs::rename(step_ + "/" + file, folder_.file("away"));
    const Status status = restore(Verify::kTouched);
    if (file == "COMMIT") {
      EXPECT_EQ(status.code(), StatusCode::kNotFound);
    } else {
      EXPECT_TRUE(names(status, file)) << status.to_string();
      fs::create_directory(step_ + "/" + file);
      EXPECT_TRUE(names(restore(Verify::kTouched), file));
      fs::remove(step_ + "/" + file);
    }
    fs::rename(folder_.file("away"), step_ + "/" + file);
  }
}

TEST_F(Corruption, FilesOfAnotherSaveAreNamed) {
  const Alarm alarm;
  const std::string other = folder_.file("other");
  State values = make_small_state(6);
  for (const ShardIdentity& identity :
       {ShardIdentity{"run", "nonce", 8}, ShardIdentity{"run", "later", 7},
        ShardIdentity{"elsewhere", "nonce", 7}}) {
    ASSERT_TRUE(write_state(other, values, 4, identity).ok());
    for (const std::string& file : files_) {
      if (file == "COMMIT") continue;
      fs::rename(step_ + "/" + file, folder_.file("away"));
      fs::copy_file(other + "/" + file, step_ + "/" + file);
      // The view does not depend on values; it may be the same.
      if (file == "model.h5") {
        check_damage(file, "view of another step");
      } else {
        EXPECT_TRUE(names(restore(Verify::kTouched), file)) << file;
      }
      fs::remove(step_ + "/" + file);
      fs::rename(folder_.file("away"), step_ + "/" + file);
    }
    fs::remove_all(other);
  }
  // The same values saved twice, all shards of the other save: only their user blocks differ.
  ASSERT_TRUE(write_state(other, state_, 4, {"run", "nonce", 8}).ok());
  for (const std::string& file : files_) {
    if (!file.starts_with("data/")) continue;
    fs::copy_file(other + "/" + file, step_ + "/" + file, fs::copy_options::overwrite_existing);
  }
  const Status status = restore(Verify::kTouched);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("step 8"), std::string::npos) << status.message();
}

TEST_F(Corruption, TwoShardsOfOneStepSwappedAreNamed) {
  fs::remove_all(step_);
  std::mt19937_64 random(1);
  state_ = State();
  state_.add("rows", DType::kF32, {600, 128}, "mesh=(a:4) spec=(a)", random);
  ASSERT_TRUE(write_state(step_, state_, 4, {"run", "nonce", 7}).ok());
  const std::string a = step_ + "/data/shard-00002.h5";
  const std::string b = step_ + "/data/shard-00003.h5";
  ASSERT_EQ(fs::file_size(a), fs::file_size(b)) << "else sizes alone would tell";
  fs::rename(a, folder_.file("away"));
  fs::rename(b, a);
  fs::rename(folder_.file("away"), b);
  const Status status = restore(Verify::kTouched);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("data/shard-0000"), std::string::npos) << status.message();
}

TEST_F(Corruption, VerificationListsAllDamageWithTensorAndBlock) {
  const auto flip = [&](const std::string& file, int64_t at) {
    Bytes bytes = read_file(step_ + "/" + file);
    bytes[static_cast<size_t>(at)] ^= std::byte{1};
    write_file(step_ + "/" + file, bytes);
  };
  const auto reader = StepReader::open(posix_io(), step_).value();
  for (const Piece& piece : reader->index().pieces_of(reader->index().find("rows"))) {
    flip("data/shard-0000" + std::to_string(piece.file) + ".h5", piece.offset + 100);
  }
  flip("index.h5", 1000);
  flip("model.h5", 1000);
  Result<VerifyReport> report = verify_step(posix_io(), step_);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->problems.size(), 6u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(report->problems[i].file, "data/shard-0000" + std::to_string(i) + ".h5");
    EXPECT_EQ(report->problems[i].what.find("block 0 of piece ["), 0u) << report->problems[i].what;
    EXPECT_NE(report->problems[i].what.find("of tensor \"rows\""), std::string::npos);
  }
  EXPECT_EQ(report->problems[4].file, "index.h5");
  EXPECT_EQ(report->problems[5].file, "model.h5");
  VerifyOptions options;
  options.payload = false;
  report = verify_step(posix_io(), step_, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems.size(), 2u);
  options = {};
  options.max_problems = 2;
  EXPECT_EQ(verify_step(posix_io(), step_, options)->problems.size(), 2u);
  int64_t last = 0;
  int64_t all = 0;
  options = {};
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
  };
  ASSERT_TRUE(verify_step(posix_io(), step_, options).ok());
  EXPECT_GT(last, all / 2);
  EXPECT_LE(last, all);
}

TEST_F(Corruption, WithoutVerificationSizesAndIndexStillHold) {
  Bytes bytes = read_file(step_ + "/index.h5");
  bytes[500] ^= std::byte{1};
  write_file(step_ + "/index.h5", bytes);
  EXPECT_TRUE(names(restore(Verify::kNone), "index.h5"));
}

}  // namespace
}  // namespace hekla::checkpoint
