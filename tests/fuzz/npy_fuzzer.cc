// SPDX-License-Identifier: Apache-2.0
// Any bytes through the reader of .npy files, as they say and as each dtype. Nothing may crash or
// take memory beyond the input's size, and what was read must survive writing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "runtime/npy/npy.h"

namespace {

using namespace hekla;

void check(std::string_view bytes, std::optional<DType> as) {
  const Result<HostArray> array = runtime::parse_npy(bytes, as);
  if (!array.ok()) {
    const Status& status = array.status();
    if (status.code() == StatusCode::kInvalidArgument && !status.message().empty()) return;
    std::fprintf(stderr, "not a clear error: %s\n", status.to_string().c_str());
    std::abort();
  }
  const Result<HostArray> again = runtime::parse_npy(runtime::format_npy(*array), array->dtype());
  if (!again.ok() || !again->identical(*array)) {
    std::fprintf(stderr, "does not survive writing: %s\n",
                 again.ok() ? "other contents" : again.status().to_string().c_str());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes, std::nullopt);
  for (int i = 1; i < kDTypeCount; ++i) check(bytes, static_cast<DType>(i));
  return 0;
}
