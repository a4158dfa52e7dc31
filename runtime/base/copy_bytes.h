// SPDX-License-Identifier: Apache-2.0
// copy_bytes, move_bytes: memcpy and memmove for what may be large, at one speed wherever the two
// places lie. stream_bytes: a copy that nobody reads soon.
//
// Any thread; nothing fails.
#pragma once

#include <cstdint>

namespace hekla {

// The places do not overlap; both may be null when `bytes` is 0.
//
// AMD's Zen 3 copies 1.4 to 2.3 GB/s instead of 25 to 40 by "rep movsb" where the target lies up to
// 31 bytes behind the source modulo a page: each load then waits for a store before it, whose
// address it mistakes for its own. glibc takes that instruction from some 2 KiB to a part of the
// last cache (1 to 24 MiB), and such places are common: what malloc maps begins 16 bytes into a
// page, memory that is shared between processes or handed to a device at its start. Those copies
// are a loop here.
void copy_bytes(void* to, const void* from, int64_t bytes);

// As copy_bytes, past the caches: lines that are written over are not fetched first, which is a
// third of the traffic, and what is in a cache stays there. Other threads see what was written when
// it returns as they see ordinary stores. Where the processor has no such stores it is copy_bytes.
void stream_bytes(void* to, const void* from, int64_t bytes);

// As copy_bytes, and the places may overlap or be the same, at which nothing is done.
void move_bytes(void* to, const void* from, int64_t bytes);

}  // namespace hekla
