// SPDX-License-Identifier: Apache-2.0
// The key-value callbacks of PJRT_Client_Create over a store. Internal to this folder.
#pragma once

#include "plugin_api/pjrt_c_api.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::runtime {

// `store` stays as long as the client.
void set_store(PJRT_Client_Create_Args& args, rendezvous::KeyValueStore& store);

}  // namespace hekla::runtime
