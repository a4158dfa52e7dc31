// SPDX-License-Identifier: Apache-2.0
// Who has a buffer's storage: launches that consume it, references from outside, deletion.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backends/pjrt/abi.h"
#include "plugin_api/hekla_holds.h"

namespace hekla::pjrt {
namespace {

class CountedStorage : public Storage {
 public:
  explicit CountedStorage(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~CountedStorage() override { --alive_; }
  int64_t size_bytes() const override { return 16; }

 private:
  std::atomic<int>& alive_;
};

class BufferOwnershipTest : public testing::Test {
 protected:
  BufferOwnershipTest() {
    add_error_and_event_slots(api_);
    add_buffer_slots(api_);
    make();
  }
  ~BufferOwnershipTest() override { destroy(); }

  void make() {
    buffer_ = make_buffer(nullptr, nullptr, nullptr, DType::kF32, {4},
                          std::make_shared<CountedStorage>(alive_), Completion::ready());
  }
  template <typename Args>
  bool call(PJRT_Error* (*slot)(Args*), Args& args) {
    args.struct_size = sizeof(Args);
    args.buffer = buffer_;
    PJRT_Error* error = slot(&args);
    if (error == nullptr) return true;
    PJRT_Error_Destroy_Args destroy = {};
    destroy.struct_size = sizeof(destroy);
    destroy.error = error;
    api_.PJRT_Error_Destroy(&destroy);
    return false;
  }
  bool refer() {
    PJRT_Buffer_IncreaseExternalReferenceCount_Args args = {};
    return call(api_.PJRT_Buffer_IncreaseExternalReferenceCount, args);
  }
  bool unrefer() {
    PJRT_Buffer_DecreaseExternalReferenceCount_Args args = {};
    return call(api_.PJRT_Buffer_DecreaseExternalReferenceCount, args);
  }
  template <typename Args>
  void call_holds(PJRT_Error* (*slot)(Args*), Args& args) {
    args.struct_size = sizeof(Args);
    EXPECT_EQ(slot(&args), nullptr);
  }
  Hekla_Hold* hold() {
    Hekla_Holds_Switch_Args on = {};
    on.is_on = true;
    call_holds(holds_->holds_switch, on);
    PJRT_Buffer_UnsafePointer_Args pointer = {};
    const bool is_held = call(api_.PJRT_Buffer_UnsafePointer, pointer);
    on.is_on = false;
    call_holds(holds_->holds_switch, on);
    return is_held ? find(pointer.buffer_pointer) : nullptr;
  }
  Hekla_Hold* find(uintptr_t pointer) {
    Hekla_Hold_Find_Args args = {};
    args.pointer = pointer;
    call_holds(holds_->hold_find, args);
    EXPECT_EQ(args.size_bytes, args.hold == nullptr ? 0 : 16);
    return args.hold;
  }
  void release(Hekla_Hold* hold) {
    Hekla_Hold_Release_Args args = {};
    args.hold = hold;
    call_holds(holds_->hold_release, args);
  }
  bool delete_buffer() {
    PJRT_Buffer_Delete_Args args = {};
    return call(api_.PJRT_Buffer_Delete, args);
  }
  bool is_deleted() {
    PJRT_Buffer_IsDeleted_Args args = {};
    EXPECT_TRUE(call(api_.PJRT_Buffer_IsDeleted, args));
    return args.is_deleted;
  }
  void destroy() {
    PJRT_Buffer_Destroy_Args args = {};
    EXPECT_TRUE(call(api_.PJRT_Buffer_Destroy, args));
  }

  PJRT_Api api_ = {};
  const Hekla_Holds_Extension* holds_ =
      reinterpret_cast<const Hekla_Holds_Extension*>(holds_extension());
  std::atomic<int> alive_{0};
  PJRT_Buffer* buffer_ = nullptr;
};

TEST_F(BufferOwnershipTest, DeleteFreesWhatNobodyRefersTo) {
  EXPECT_TRUE(delete_buffer());
  EXPECT_TRUE(is_deleted());
  EXPECT_EQ(alive_, 0);
}

TEST_F(BufferOwnershipTest, ReferencesOutliveDelete) {
  ASSERT_TRUE(refer());
  ASSERT_TRUE(refer());
  EXPECT_TRUE(delete_buffer());
  EXPECT_TRUE(is_deleted());
  EXPECT_FALSE(storage_of(*buffer_).ok());
  EXPECT_FALSE(refer());
  EXPECT_TRUE(unrefer());
  EXPECT_EQ(alive_, 1);
  EXPECT_TRUE(unrefer());
  EXPECT_EQ(alive_, 0);
  EXPECT_FALSE(unrefer());
}

TEST_F(BufferOwnershipTest, DestroyEndsReferences) {
  ASSERT_TRUE(refer());
  destroy();
  EXPECT_EQ(alive_, 0);
  make();
}

TEST_F(BufferOwnershipTest, ReferencesKeepTheStorageFromLaunches) {
  ASSERT_TRUE(refer());
  Result<TakenStorage> taken = take_storage(*buffer_, true);
  ASSERT_TRUE(taken.ok());
  EXPECT_FALSE(taken->is_taken);
  EXPECT_FALSE(is_deleted());
  ASSERT_TRUE(unrefer());
  taken = take_storage(*buffer_, true);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken->is_taken);
  EXPECT_EQ(taken->storage.use_count(), 1);
  EXPECT_TRUE(is_deleted());
  EXPECT_FALSE(refer());
}

TEST_F(BufferOwnershipTest, HoldsKeepTheStorageFromLaunches) {
  Hekla_Hold* const first = hold();
  Hekla_Hold* const second = hold();
  ASSERT_TRUE(first != nullptr && second != nullptr && first != second);
  EXPECT_EQ(find(0), nullptr);
  EXPECT_EQ(find(reinterpret_cast<uintptr_t>(this)), nullptr);
  release(first);
  EXPECT_EQ(find(reinterpret_cast<uintptr_t>(first)), nullptr);
  EXPECT_FALSE(take_storage(*buffer_, true)->is_taken);
  EXPECT_TRUE(delete_buffer());
  EXPECT_EQ(hold(), nullptr);
  destroy();
  EXPECT_EQ(alive_, 1);
  release(second);
  EXPECT_EQ(alive_, 0);
  make();
  release(hold());
  EXPECT_TRUE(take_storage(*buffer_, true)->is_taken);
}

TEST_F(BufferOwnershipTest, WhoMayNotTakeSharesTheStorage) {
  const Result<TakenStorage> taken = take_storage(*buffer_, false);
  ASSERT_TRUE(taken.ok());
  EXPECT_FALSE(taken->is_taken);
  EXPECT_FALSE(is_deleted());
}

TEST_F(BufferOwnershipTest, ARefusedLaunchGivesBack) {
  Result<TakenStorage> taken = take_storage(*buffer_, true);
  ASSERT_TRUE(taken.ok());
  give_back(*buffer_, std::move(taken->storage));
  EXPECT_FALSE(is_deleted());
  EXPECT_TRUE(storage_of(*buffer_).ok());
}

TEST_F(BufferOwnershipTest, WhatIsDeletedMeanwhileStaysDeleted) {
  Result<TakenStorage> taken = take_storage(*buffer_, true);
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(delete_buffer());
  give_back(*buffer_, std::move(taken->storage));
  EXPECT_TRUE(is_deleted());
  EXPECT_EQ(alive_, 0);
}

// Each of the threads comes before or after the others, in any order.
TEST_F(BufferOwnershipTest, OneOfManyTakes) {
  for (int round = 0; round < 300; ++round) {
    destroy();
    make();
    std::atomic<int> waiting{3};
    const auto together = [&] {
      --waiting;
      while (waiting.load() > 0) std::this_thread::yield();
    };
    std::atomic<int> taken{0};
    bool is_referred = false;
    const auto take = [&] {
      together();
      const Result<TakenStorage> mine = take_storage(*buffer_, true);
      if (mine.ok() && mine->is_taken) ++taken;
    };
    std::thread first(take);
    std::thread second(take);
    std::thread third([&] {
      together();
      is_referred = refer();
      if (round % 2 == 1) delete_buffer();
    });
    first.join();
    second.join();
    third.join();
    ASSERT_LE(taken, 1);
    if (is_referred) {
      ASSERT_EQ(taken, 0);
      ASSERT_EQ(alive_, 1);
      ASSERT_TRUE(unrefer());
    }
    ASSERT_EQ(alive_, taken == 0 && round % 2 == 0 ? 1 : 0);
  }
}

}  // namespace
}  // namespace hekla::pjrt
