// SPDX-License-Identifier: Apache-2.0
// What was recorded for a profiler as the message that clients merge into their own: an XSpace.
//
// A plane for each device, named "/device:CUSTOM:" and the device, with lines for launches, steps,
// collectives and transfers; and one for the host, "/device:CUSTOM:hekla host", with a line for
// each thread: viewers show planes of devices they do not know under that prefix alone, and merge
// none into the client's own plane of the host. What was dropped is a warning. Pure.
//
// Fields of the message: tsl/profiler/protobuf/xplane.proto.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/trace.h"

namespace hekla::pjrt {

std::string xspace(const TraceRecording& recording,
                   const std::function<std::string(int64_t device)>& device_name);

}  // namespace hekla::pjrt
