// SPDX-License-Identifier: Apache-2.0
// cross_copy: bytes from one physical device to another, through host memory.
//
// Where the host has full access to either side one transfer does it. Else pieces go down from the
// source and up to the target through a few buffers on the host, each piece on its own way, so that
// both devices move at once. Host memory is bounded by kCrossPieces pieces for each copy; it never
// waits on the caller's thread. Thread-safe.
#pragma once

#include "backends/vulkan/transfer/transfers.h"

namespace hekla::vulkan {

inline constexpr int64_t kCrossPieceBytes = int64_t{4} << 20;
inline constexpr int64_t kCrossPieces = 3;

// `from` and `to` are the transfers of the devices of `source` and `target`, and outlive `done`,
// which is called once, from any thread, when nothing reads or writes either side any more: with
// ok, or with the first error.
void cross_copy(Transfers& from, AllocationRef source, Transfers& to, AllocationRef target,
                int64_t bytes, Transfers::Done done, int64_t piece_bytes = kCrossPieceBytes);

}  // namespace hekla::vulkan
