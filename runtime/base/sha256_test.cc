// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace hekla {
namespace {

std::string digest(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }

// The examples of FIPS 180-4.
TEST(Sha256, GivesTheStandardsDigests) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  const std::string text(300, 'x');
  Sha256 in_parts;
  for (size_t size = 1, done = 0; done < text.size(); done += size, ++size) {
    size = std::min(size, text.size() - done);
    in_parts.update(std::as_bytes(std::span(text).subspan(done, size)));
  }
  EXPECT_EQ(in_parts.hex(), digest(text));
}

}  // namespace
}  // namespace hekla
