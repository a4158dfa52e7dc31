// SPDX-License-Identifier: Apache-2.0
// Any bytes as a COMMIT record: as they are, and with the digest that makes the rest of the reader
// see them. What is read must survive writing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/digest.h"

namespace {

using namespace hekla;
using namespace hekla::checkpoint;

void check(std::string_view text) {
  const Result<CommitRecord> record = parse_commit(text);
  if (!record.ok()) {
    const StatusCode code = record.status().code();
    if (code == StatusCode::kDataLoss || code == StatusCode::kUnimplemented) return;
    std::fprintf(stderr, "not a clear error: %s\n", record.status().to_string().c_str());
    std::abort();
  }
  const Result<std::string> written = write_commit(*record);
  const Result<CommitRecord> again =
      written.ok() ? parse_commit(*written) : Result<CommitRecord>(written.status());
  // Not a number differs from itself: compare the texts.
  if (!again.ok() || *write_commit(*again) != *written) {
    std::fprintf(stderr, "does not survive writing: %s\n", again.status().to_string().c_str());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  check(std::string(text) + "digest=" + digest_text(text) + "\n");
  return 0;
}
