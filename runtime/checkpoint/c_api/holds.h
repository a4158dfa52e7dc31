// SPDX-License-Identifier: Apache-2.0
// Buffers of Hekla's plugins that another client of this process has, JAX above all: their values
// are held as they are now and read when a save wants them (plugin_api/hekla_holds.h).
//
// The plugins are those that the process has loaded from files named pjrt_*.so; they stay loaded,
// as PJRT's clients never unload one. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/checkpoint/save/state.h"

namespace hekla::checkpoint::c_api {

// For the calling thread; whether there is a plugin of Hekla's.
bool switch_holds(bool is_on);

// What a client said the address of a buffer was while holds were on; null: it was an address. The
// source releases the hold at its end.
std::shared_ptr<ArraySource> held_source(uint64_t pointer);

}  // namespace hekla::checkpoint::c_api
