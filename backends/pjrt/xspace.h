// SPDX-License-Identifier: Apache-2.0
// What was recorded for a profiler as the message that clients merge into their own: an XSpace.
//
// A plane for each device, named "/device:CUSTOM:" and the device, with lines for launches, steps,
// collectives and transfers; and one for the host, "/device:CUSTOM:hekla host", with a line for
// each thread: viewers show planes of devices they do not know under that prefix alone, and merge
// none into the client's own plane of the host. What was dropped is a warning. Pure.
//
// Planes are numbered from `first_number` on. Viewers keep planes of one number together, whosever
// they are, and have room for 200 numbers: plugins of one process must differ in theirs.
//
// Fields of the message: tsl/profiler/protobuf/xplane.proto.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/trace.h"

namespace hekla::pjrt {

std::string xspace(const TraceRecording& recording, int64_t first_number,
                   const std::function<std::string(int64_t device)>& device_name);

// Of a platform's planes. The platforms of this repository have 28 numbers each to themselves.
int64_t first_plane_number(std::string_view platform);

}  // namespace hekla::pjrt
