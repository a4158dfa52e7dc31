// SPDX-License-Identifier: Apache-2.0
// What was thrown, as a Status: for threads and borders to other languages, where nobody catches.
//
// Hekla's own code says what fails by a Status; the standard library throws where memory or threads
// are missing. Any thread.
#pragma once

#include <cxxabi.h>

#include "runtime/base/status.h"

namespace hekla {

// RESOURCE_EXHAUSTED. Was made when the library was loaded: it needs no memory.
const Status& out_of_host_memory() noexcept;

// Of the exception that is being handled: RESOURCE_EXHAUSTED where memory or threads are missing,
// else INTERNAL. Needs no memory for the former.
Status status_of_exception() noexcept;

// What `work` gives, a Status, or what it threw. The end of a thread, which Python asks for inside
// of callbacks when the process ends, is no exception and passes.
template <typename Work>
Status status_of_work(const Work& work) {
  try {
    return work();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace hekla
