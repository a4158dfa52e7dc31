// SPDX-License-Identifier: Apache-2.0
// Pairs whose peer has sent what Gloo asserts against: closed, without Gloo's own word that they
// are. Thread-safe.
#pragma once

#include <string>

namespace hekla::collectives::carrier {

// Empty: it is not.
std::string why_broken(const void* pair);
// It is destroyed.
void forget_broken(const void* pair);

}  // namespace hekla::collectives::carrier
