// SPDX-License-Identifier: Apache-2.0
// Which machine this is, and names that nobody else draws. Thread-safe.
#pragma once

#include <string>

namespace hekla {

// `bytes` random bytes of the kernel as lower-case hex, twice as many letters.
std::string random_hex(int bytes);
// The kernel's host name, for messages.
const std::string& host_name();
// Changes with each start of a machine and differs between machines; containers of one kernel share
// it, as they share its file locks. Empty where the kernel does not tell.
const std::string& boot_id();

}  // namespace hekla
