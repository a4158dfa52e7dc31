// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/exceptions.h"

#include <exception>
#include <new>
#include <system_error>

namespace hekla {
namespace {

// Never destroyed: threads may need it while the process ends.
const Status& kept_status() {
  static const Status& status = *new Status(resource_exhausted("out of host memory"));
  return status;
}

// Before anybody is short of memory.
[[maybe_unused]] const Status& made_at_load = kept_status();

Status described(StatusCode code, const char* what, const std::exception& error) noexcept {
  try {
    return Status(code, fmt::format("{}: {}", what, error.what()));
  } catch (...) {
    return out_of_host_memory();
  }
}

}  // namespace

const Status& out_of_host_memory() noexcept { return kept_status(); }

Status status_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_host_memory();
  } catch (const std::system_error& error) {
    // Of threads, which are all here that throws it.
    const bool is_scarce = error.code() == std::errc::resource_unavailable_try_again;
    return described(is_scarce ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                     is_scarce ? "the system has no more threads" : "unexpected exception", error);
  } catch (const std::exception& error) {
    return described(StatusCode::kInternal, "unexpected exception", error);
  } catch (...) {
    return described(StatusCode::kInternal, "unexpected exception", std::bad_exception());
  }
}

}  // namespace hekla
