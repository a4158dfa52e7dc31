// SPDX-License-Identifier: Apache-2.0
// FakeClientTest: a client of the fake backend behind the table of the C API, with the calls that
// tests of several slots make. For tests of one thread; handles are the test's to destroy before it
// ends, which is checked by the memory that is left.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/testing/fake_backend.h"

namespace hekla::pjrt::testing {

template <typename Args>
Args make() {
  Args args = {};
  args.struct_size = sizeof(Args);
  return args;
}

// A code, and the words of an error that there is.
struct Answer {
  int code = PJRT_Error_Code_OK;
  std::string message;
};

inline Answer take(PJRT_Error* error) {
  if (error == nullptr) return {};
  const Status& status = static_cast<const ErrorObject*>(error)->status;
  Answer answer{static_cast<int>(status.code()), status.message()};
  EXPECT_FALSE(answer.message.empty());
  auto args = make<PJRT_Error_Destroy_Args>();
  args.error = error;
  FakeBackend::api().PJRT_Error_Destroy(&args);
  return answer;
}
inline bool ok(PJRT_Error* error) { return take(error).code == PJRT_Error_Code_OK; }

class FakeClientTest : public ::testing::Test {
 protected:
  FakeClientTest() {
    auto args = make<PJRT_Client_Create_Args>();
    EXPECT_TRUE(ok(api_.PJRT_Client_Create(&args)));
    client_ = args.client;
  }
  ~FakeClientTest() override {
    auto args = make<PJRT_Client_Destroy_Args>();
    args.client = client_;
    EXPECT_TRUE(ok(api_.PJRT_Client_Destroy(&args)));
    EXPECT_EQ(FakeStorage::alive, 0);
  }

  PJRT_Client_BufferFromHostBuffer_Args upload_args() {
    auto args = make<PJRT_Client_BufferFromHostBuffer_Args>();
    args.client = client_;
    args.data = values_;
    args.type = PJRT_Buffer_Type_F32;
    args.dims = &kCount;
    args.num_dims = 1;
    args.host_buffer_semantics = semantics_;
    return args;
  }
  PJRT_Buffer* upload() {
    auto args = upload_args();
    EXPECT_TRUE(ok(api_.PJRT_Client_BufferFromHostBuffer(&args)));
    destroy(args.done_with_host_buffer);
    return args.buffer;
  }
  void destroy(PJRT_Buffer* buffer) {
    auto args = make<PJRT_Buffer_Destroy_Args>();
    args.buffer = buffer;
    EXPECT_TRUE(ok(api_.PJRT_Buffer_Destroy(&args)));
  }
  void destroy(PJRT_Event* event) {
    auto args = make<PJRT_Event_Destroy_Args>();
    args.event = event;
    EXPECT_TRUE(ok(api_.PJRT_Event_Destroy(&args)));
  }
  // Of one buffer.
  PJRT_AsyncHostToDeviceTransferManager* manager(PJRT_Buffer_Type type = PJRT_Buffer_Type_F32) {
    auto spec = make<PJRT_ShapeSpec>();
    spec.dims = &kCount;
    spec.num_dims = 1;
    spec.element_type = type;
    auto args = make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    args.client = client_;
    args.shape_specs = &spec;
    args.num_shape_specs = 1;
    EXPECT_TRUE(ok(api_.PJRT_Client_CreateBuffersForAsyncHostToDevice(&args)));
    return args.transfer_manager;
  }
  void destroy(PJRT_AsyncHostToDeviceTransferManager* manager) {
    auto args = make<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
    args.transfer_manager = manager;
    EXPECT_TRUE(ok(api_.PJRT_AsyncHostToDeviceTransferManager_Destroy(&args)));
  }
  PJRT_Buffer* retrieve(PJRT_AsyncHostToDeviceTransferManager* manager) {
    auto args = make<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    args.transfer_manager = manager;
    EXPECT_TRUE(ok(api_.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(&args)));
    return args.buffer_out;
  }

  const PJRT_Api& api_ = FakeBackend::api();
  PJRT_Client* client_ = nullptr;
  PJRT_HostBufferSemantics semantics_ = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  static constexpr int64_t kCount = 4;
  float values_[kCount] = {1, 2, 3, 4};
};

}  // namespace hekla::pjrt::testing
