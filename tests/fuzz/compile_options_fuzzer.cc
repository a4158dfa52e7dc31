// SPDX-License-Identifier: Apache-2.0
// Any bytes as a serialized CompileOptionsProto, as a client hands it to a plugin.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "backends/pjrt/compile_options.h"
#include "runtime/base/protobuf_wire.h"
#include "tests/fuzz/clear_error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hekla;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<std::vector<wire::Field>> fields = wire::parse_fields(bytes);
  check_clear(fields.status());
  if (fields.ok()) {
    for (const wire::Field& field : *fields) check_clear(wire::parse_varints(field).status());
  }
  const Result<pjrt::CompileOptions> options = pjrt::parse_compile_options(bytes);
  check_clear(options.status());
  if (!options.ok()) return 0;
  if (options->replica_count < 1 || options->partition_count < 1) {
    std::fprintf(stderr, "counts below one\n");
    std::abort();
  }
  return 0;
}
