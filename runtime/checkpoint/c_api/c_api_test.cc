// SPDX-License-Identifier: Apache-2.0
// The C interface as another language uses it: save, restore, a step in parts, errors, many
// threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/c_api/checkpoint_c.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kRows = 300, kColumns = 200;
constexpr int64_t kBytes = kRows * kColumns * 4;

std::string take(char* text) {
  std::string copy(text);
  hekla_checkpoint_free(text);
  return copy;
}

// What Python hands over: an array that is asked for its bytes, and let go.
struct Source {
  std::vector<float> values;
  std::atomic<int>* released;

  static int read(void* context, int64_t offset, void* into, int64_t bytes) {
    const auto* source = static_cast<Source*>(context);
    std::memcpy(into, reinterpret_cast<const std::byte*>(source->values.data()) + offset,
                static_cast<size_t>(bytes));
    return 0;
  }
  static int fail(void*, int64_t, void*, int64_t) {
    hekla_checkpoint_set_error("the array is gone");
    return 1;
  }
  static void release(void* context) {
    auto* source = static_cast<Source*>(context);
    source->released->fetch_add(1);
    delete source;
  }
};

class CApi : public ::testing::Test {
 protected:
  void open(const char* options = R"({"staging_bytes": 4194304, "on_busy": "wait"})") {
    ASSERT_EQ(hekla_checkpoint_manager_open(root_.c_str(), options, 0, 1, "", &manager_), 0)
        << hekla_checkpoint_error();
  }
  ~CApi() override {
    hekla_checkpoint_manager_destroy(manager_);
    EXPECT_EQ(released_, given_);
  }

  // "w": every element is `value`; read in the background.
  hekla_checkpoint_state* state_of(float value, hekla_checkpoint_read read = Source::read) {
    hekla_checkpoint_state* state = nullptr;
    EXPECT_EQ(hekla_checkpoint_state_create(&state), 0);
    const int64_t shape[] = {kRows, kColumns}, start[] = {0, 0};
    EXPECT_EQ(hekla_checkpoint_state_add_tensor(state, "w", "f32", 2, shape, "", 1, 0, nullptr), 0);
    auto* source =
        new Source{std::vector<float>(static_cast<size_t>(kRows * kColumns), value), &released_};
    ++given_;
    EXPECT_EQ(hekla_checkpoint_state_add_box(state, start, shape, nullptr, kBytes, 0, read,
                                             Source::release, source),
              0);
    EXPECT_EQ(hekla_checkpoint_state_add_int(state, "value", static_cast<int64_t>(value)), 0);
    EXPECT_EQ(hekla_checkpoint_state_add_file(state, "loader.txt", "at 7", 4, 0), 0);
    return state;
  }

  int save(int64_t step, float value) {
    hekla_checkpoint_state* state = state_of(value);
    const int code = hekla_checkpoint_manager_save_now(manager_, step, state, "{}");
    hekla_checkpoint_state_destroy(state);
    return code;
  }

  TemporaryFolder folder_;
  const std::string root_ = folder_.file("run");
  hekla_checkpoint_manager* manager_ = nullptr;
  std::atomic<int> released_{0};
  int given_ = 0;
};

TEST_F(CApi, AStepIsReadInParts) {
  open();
  ASSERT_EQ(save(1, 1), 0) << hekla_checkpoint_error();
  ASSERT_EQ(save(2, 2), 0) << hekla_checkpoint_error();
  hekla_checkpoint_step* step = nullptr;
  ASSERT_EQ(hekla_checkpoint_step_open(root_.c_str(), -1, "touched", &step), 0)
      << hekla_checkpoint_error();
  char* json = nullptr;
  ASSERT_EQ(hekla_checkpoint_step_info(step, &json), 0);
  const std::string info = take(json);
  EXPECT_NE(info.find(R"("step":2)"), std::string::npos) << info;
  EXPECT_NE(info.find(R"("files":["loader.txt"])"), std::string::npos) << info;
  const int64_t before = hekla_checkpoint_step_bytes_read(step);
  EXPECT_LT(before, kBytes);
  std::vector<float> first(6), second(1);
  const char* names[] = {"w", "w"};
  const int64_t boxes[] = {7, 100, 2, 3, 299, 199, 1, 1};
  void* into[] = {first.data(), second.data()};
  const int64_t bytes[] = {24, 4};
  ASSERT_EQ(hekla_checkpoint_step_read(step, 2, names, boxes, into, bytes), 0)
      << hekla_checkpoint_error();
  EXPECT_EQ(first, std::vector<float>(6, 2));
  EXPECT_EQ(second[0], 2);
  EXPECT_GT(hekla_checkpoint_step_bytes_read(step), before);
  char* data = nullptr;
  int64_t size = 0;
  ASSERT_EQ(hekla_checkpoint_step_read_file(step, "loader.txt", &data, &size), 0);
  EXPECT_EQ(take(data), "at 7");
  // Too little room, a box outside, no such tensor.
  const int64_t too_few[] = {24, 3};
  EXPECT_EQ(hekla_checkpoint_step_read(step, 2, names, boxes, into, too_few),
            static_cast<int>(StatusCode::kInvalidArgument));
  const int64_t outside[] = {299, 0, 2, 3};
  EXPECT_EQ(hekla_checkpoint_step_read(step, 1, names, outside, into, bytes),
            static_cast<int>(StatusCode::kInvalidArgument));
  const char* unknown[] = {"v"};
  EXPECT_EQ(hekla_checkpoint_step_read(step, 1, unknown, boxes, into, bytes),
            static_cast<int>(StatusCode::kNotFound));
  EXPECT_NE(std::string(hekla_checkpoint_error()).find("\"v\""), std::string::npos);
  hekla_checkpoint_step_destroy(step);
}

TEST_F(CApi, ThereIsNoStepYet) {
  open();
  hekla_checkpoint_step* step = nullptr;
  EXPECT_EQ(hekla_checkpoint_step_open(root_.c_str(), -1, "touched", &step),
            static_cast<int>(StatusCode::kNotFound));
  EXPECT_EQ(hekla_checkpoint_step_open(root_.c_str(), 3, "touched", &step),
            static_cast<int>(StatusCode::kNotFound));
}

// Saves go on while threads look at the handles, read steps and ask what there is.
TEST_F(CApi, ThreadsMayShareHandles) {
  open(R"({"staging_bytes": 4194304, "on_busy": "wait", "max_to_keep": 2})");
  ASSERT_EQ(save(1, 1), 0) << hekla_checkpoint_error();
  std::atomic<bool> ends{false};
  hekla_checkpoint_step* step = nullptr;
  ASSERT_EQ(hekla_checkpoint_step_open(root_.c_str(), 1, "touched", &step), 0);
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      std::vector<float> whole(static_cast<size_t>(kRows * kColumns));
      const char* name = "w";
      const int64_t box[] = {0, 0, kRows, kColumns};
      void* into = whole.data();
      while (!ends) {
        EXPECT_EQ(hekla_checkpoint_step_read(step, 1, &name, box, &into, &kBytes), 0)
            << hekla_checkpoint_error();
        EXPECT_EQ(whole.back(), 1);
        char* steps = nullptr;
        EXPECT_EQ(hekla_checkpoint_manager_steps(manager_, &steps), 0);
        EXPECT_NE(take(steps), "[]");
      }
    });
  }
  for (int64_t number = 2; number <= 12; ++number) {
    hekla_checkpoint_state* state = state_of(static_cast<float>(number));
    hekla_checkpoint_save_handle* handle = nullptr;
    ASSERT_EQ(hekla_checkpoint_manager_save(manager_, number, state, "{}", &handle), 0)
        << hekla_checkpoint_error();
    hekla_checkpoint_state_destroy(state);
    std::thread other([&] {
      int64_t done = 0, total = 0;
      double blocked = 0, seconds = 0;
      hekla_checkpoint_save_progress(handle, &done, &total, &blocked, &seconds);
      EXPECT_LE(done, total);
      EXPECT_EQ(hekla_checkpoint_save_wait(handle, 60, 0), 0);
    });
    EXPECT_EQ(hekla_checkpoint_save_wait(handle, 60, 0), 0) << hekla_checkpoint_error();
    other.join();
    hekla_checkpoint_save_destroy(handle);
  }
  ends = true;
  for (std::thread& reader : readers) reader.join();
  hekla_checkpoint_step_destroy(step);
  ASSERT_EQ(hekla_checkpoint_manager_wait(manager_, 60), 0);
  hekla_checkpoint_restored* restored = nullptr;
  ASSERT_EQ(hekla_checkpoint_manager_restore(manager_, -1, "{}", &restored), 0);
  void* data = nullptr;
  int64_t size = 0;
  ASSERT_EQ(hekla_checkpoint_restored_data(restored, 0, 0, &data, &size), 0);
  EXPECT_EQ(size, kBytes);
  EXPECT_EQ(static_cast<const float*>(data)[0], 12);
  hekla_checkpoint_restored_destroy(restored);
  EXPECT_EQ(hekla_checkpoint_manager_close(manager_), 0);
}

TEST_F(CApi, WhatACallbackSaysIsTheErrorOfTheSave) {
  open();
  hekla_checkpoint_state* state = state_of(1, Source::fail);
  EXPECT_NE(hekla_checkpoint_manager_save_now(manager_, 1, state, "{}"), 0);
  EXPECT_NE(std::string(hekla_checkpoint_error()).find("the array is gone"), std::string::npos);
  hekla_checkpoint_state_destroy(state);
  EXPECT_EQ(save(2, 2), 0) << hekla_checkpoint_error();
}

TEST_F(CApi, WrongOptionsAreNamed) {
  hekla_checkpoint_manager* none = nullptr;
  EXPECT_EQ(
      hekla_checkpoint_manager_open(root_.c_str(), R"({"save_intervall": 3})", 0, 1, "", &none),
      static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_NE(std::string(hekla_checkpoint_error()).find("save_intervall"), std::string::npos);
}

}  // namespace
}  // namespace hekla::checkpoint
