// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/client_store.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

namespace hekla::runtime {
namespace {

using rendezvous::KeyValueStore;

template <typename Args>
PJRT_Error* fail(const Args& args, const Status& status) {
  return (*args.callback_error)(static_cast<PJRT_Error_Code>(status.code()),
                                status.message().data(), status.message().size());
}

template <typename Args>
PJRT_Error* give(Args& args, const Result<std::string>& value) {
  if (!value.ok()) return fail(args, value.status());
  args.value = static_cast<char*>(std::malloc(value->size() + 1));
  if (args.value == nullptr) return fail(args, resource_exhausted("no memory for a value"));
  std::memcpy(args.value, value->data(), value->size());
  args.value_size = value->size();
  args.value_deleter_callback = [](char* bytes) { std::free(bytes); };
  return nullptr;
}

PJRT_Error* get(PJRT_KeyValueGetCallback_Args* args) {
  auto& store = *static_cast<KeyValueStore*>(args->user_arg);
  return give(*args, store.get({args->key, args->key_size},
                               std::chrono::milliseconds(args->timeout_in_ms)));
}

PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* args) {
  auto& store = *static_cast<KeyValueStore*>(args->user_arg);
  return give(*args, store.try_get({args->key, args->key_size}));
}

PJRT_Error* put(PJRT_KeyValuePutCallback_Args* args) {
  auto& store = *static_cast<KeyValueStore*>(args->user_arg);
  const Status status = store.put({args->key, args->key_size}, {args->value, args->value_size});
  return status.ok() ? nullptr : fail(*args, status);
}

}  // namespace

void set_store(PJRT_Client_Create_Args& args, KeyValueStore& store) {
  args.kv_get_callback = get;
  args.kv_put_callback = put;
  args.kv_try_get_callback = try_get;
  args.kv_get_user_arg = args.kv_put_user_arg = args.kv_try_get_user_arg = &store;
}

}  // namespace hekla::runtime
