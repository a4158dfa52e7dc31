// SPDX-License-Identifier: Apache-2.0
// Any bytes as a compressed chunk: decoded exactly, or DATA_LOSS; what is coded comes back. The
// first byte says the size of an element, the second how many are wanted.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "runtime/checkpoint/codec/codec.h"

namespace {

[[noreturn]] void fail(const char* why, const hekla::Status& status) {
  std::fprintf(stderr, "%s: %s\n", why, status.to_string().c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hekla::StatusCode;
  if (size < 2) return 0;
  static const auto coder = *hekla::checkpoint::Coder::create();
  const int64_t element = 1 + data[0] % 16;
  const auto bytes = std::as_bytes(std::span(data, size).subspan(2));
  std::vector<std::byte> into(static_cast<size_t>(element) * (1 + data[1]));
  const hekla::Status status = coder->decode(bytes, element, into);
  if (!status.ok() && status.code() != StatusCode::kDataLoss) fail("not clear", status);

  const size_t whole = bytes.size() / static_cast<size_t>(element) * static_cast<size_t>(element);
  if (whole == 0) return 0;
  const auto coded = coder->encode(bytes.first(whole), element);
  if (!coded.ok()) fail("not coded", coded.status());
  if (coded->empty()) return 0;
  const std::vector<std::byte> kept(coded->begin(), coded->end());
  std::vector<std::byte> back(whole);
  const hekla::Status again = coder->decode(kept, element, back);
  if (!again.ok()) fail("does not come back", again);
  if (!std::equal(back.begin(), back.end(), bytes.begin())) fail("other bytes", again);
  return 0;
}
