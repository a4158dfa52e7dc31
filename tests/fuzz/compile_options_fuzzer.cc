// SPDX-License-Identifier: Apache-2.0
// Any bytes as a serialized CompileOptionsProto, as a client hands it to a plugin.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "backends/pjrt/compile_options.h"
#include "runtime/base/protobuf_wire.h"

namespace {

void check(const hekla::Status& status) {
  if (status.ok()) return;
  if (status.code() == hekla::StatusCode::kInvalidArgument && !status.message().empty()) return;
  std::fprintf(stderr, "not a clear error: %s\n", status.to_string().c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hekla;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<std::vector<wire::Field>> fields = wire::parse_fields(bytes);
  check(fields.status());
  if (fields.ok()) {
    for (const wire::Field& field : *fields) check(wire::parse_varints(field).status());
  }
  const Result<pjrt::CompileOptions> options = pjrt::parse_compile_options(bytes);
  check(options.status());
  if (!options.ok()) return 0;
  if (options->replica_count < 1 || options->partition_count < 1) {
    std::fprintf(stderr, "counts below one\n");
    std::abort();
  }
  return 0;
}
