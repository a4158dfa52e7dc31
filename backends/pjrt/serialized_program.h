// SPDX-License-Identifier: Apache-2.0
// Programs as bytes: what an executable is serialized to, and read back in this process or another.
//
// A line, then protobuf's fields 1 (options) and 2 (the program as the client sent it); the
// platform and the version of the plugin are parts of the line, so that blobs of others are
// refused. Where functions of the client's made a part of the program, it is one device's instead,
// field 5 says so, and fields 3 and 4 have the OpShardings of its flat parameters and results:
// these functions have names that mean something in one process alone, so they are not asked again.
// Pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backends/pjrt/handles.h"

namespace hekla::pjrt {

std::string serialize_program(const Program& program, std::string_view platform);

// `options` replace those that the bytes have; empty: they do not. INVALID_ARGUMENT: bytes of
// another version, malformed ones, options with other numbers of replicas or partitions than a
// program of one device is for; make_program's errors.
Result<std::shared_ptr<Program>> deserialize_program(std::string_view bytes,
                                                     std::string_view platform,
                                                     std::string_view options = {});

}  // namespace hekla::pjrt
