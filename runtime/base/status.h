// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>: how everything in Hekla that can fail at run time says so.
//
// A Status is ok or carries a code and a message. The codes have the numbers of absl and of
// PJRT_Error_Code, so they cross the C API unchanged. A message names the op or object, the shape,
// dtype or limit, the place and, where there is one, the remedy. Result<T> is a T or a Status that
// is not ok. Both are values; copies of a failed Status share one immutable record, so they may be
// handed between threads freely. Nothing here throws except std::bad_alloc.
//
//   Result<Program> read(std::string_view bytes);
//   HEKLA_ASSIGN_OR_RETURN(Program program, read(bytes));
//   if (rank > kMaxRank) return invalid_argument("rank {} is above the limit {}", rank, kMaxRank);
#pragma once

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hekla {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on.
std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  // `code` must not be kOk.
  Status(StatusCode code, std::string message);

  bool ok() const { return record_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : record_->code; }
  const std::string& message() const;
  // "INVALID_ARGUMENT: rank 9 is above the limit 8", or "OK".
  std::string to_string() const;
  // The same code with "context: " in front of the message; ok stays ok.
  Status with_context(std::string_view context) const;

 private:
  struct Record {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Record> record_;  // shared by copies, immutable
};

inline Status ok_status() { return Status(); }

#define HEKLA_DEFINE_STATUS_MAKER(name, code)                              \
  template <typename... Args>                                              \
  Status name(fmt::format_string<Args...> format, Args&&... args) {        \
    return Status(code, fmt::format(format, std::forward<Args>(args)...)); \
  }
HEKLA_DEFINE_STATUS_MAKER(cancelled, StatusCode::kCancelled)
HEKLA_DEFINE_STATUS_MAKER(invalid_argument, StatusCode::kInvalidArgument)
HEKLA_DEFINE_STATUS_MAKER(deadline_exceeded, StatusCode::kDeadlineExceeded)
HEKLA_DEFINE_STATUS_MAKER(not_found, StatusCode::kNotFound)
HEKLA_DEFINE_STATUS_MAKER(already_exists, StatusCode::kAlreadyExists)
HEKLA_DEFINE_STATUS_MAKER(permission_denied, StatusCode::kPermissionDenied)
HEKLA_DEFINE_STATUS_MAKER(resource_exhausted, StatusCode::kResourceExhausted)
HEKLA_DEFINE_STATUS_MAKER(failed_precondition, StatusCode::kFailedPrecondition)
HEKLA_DEFINE_STATUS_MAKER(out_of_range, StatusCode::kOutOfRange)
HEKLA_DEFINE_STATUS_MAKER(unimplemented, StatusCode::kUnimplemented)
HEKLA_DEFINE_STATUS_MAKER(internal_error, StatusCode::kInternal)
HEKLA_DEFINE_STATUS_MAKER(unavailable, StatusCode::kUnavailable)
HEKLA_DEFINE_STATUS_MAKER(data_loss, StatusCode::kDataLoss)
#undef HEKLA_DEFINE_STATUS_MAKER

// Prints the message and aborts; for broken invariants only.
[[noreturn]] void die_of_bad_result(const Status& status);

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that both `return value;` and `return invalid_argument(...);` read well.
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    if (status_.ok()) die_of_bad_result(internal_error("a Result was made from an ok Status"));
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Aborts when not ok: check first, or use HEKLA_ASSIGN_OR_RETURN.
  T& value() & {
    if (!ok()) die_of_bad_result(status_);
    return *value_;
  }
  const T& value() const& {
    if (!ok()) die_of_bad_result(status_);
    return *value_;
  }
  T&& value() && {
    if (!ok()) die_of_bad_result(status_);
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define HEKLA_CONCAT_INNER(a, b) a##b
#define HEKLA_CONCAT(a, b) HEKLA_CONCAT_INNER(a, b)

#define HEKLA_RETURN_IF_ERROR(expression)                                  \
  do {                                                                     \
    if (::hekla::Status hekla_status = (expression); !hekla_status.ok()) { \
      return hekla_status;                                                 \
    }                                                                      \
  } while (false)

#define HEKLA_ASSIGN_OR_RETURN(declaration, expression) \
  HEKLA_ASSIGN_OR_RETURN_INNER(HEKLA_CONCAT(hekla_result_, __LINE__), declaration, expression)
#define HEKLA_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) return result.status();                           \
  declaration = *std::move(result)

}  // namespace hekla
