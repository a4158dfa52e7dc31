// SPDX-License-Identifier: Apache-2.0
// ForkMark: whether this process is still the one in which something with threads was made.
//
// The child of a fork() has a copy of the memory and none of the threads, and locks that these held
// stay locked. Whoever owns threads keeps a mark; where it is inherited nothing may wait for them,
// and what has them is left as it is, since to destroy it would be to wait. Immutable, so any
// thread may ask; the constructor may throw std::bad_alloc.
#pragma once

#include <cstdint>

namespace hekla {

class ForkMark {
 public:
  ForkMark();
  // Whether it was made before a fork() that this process, or one that it comes from, is the child
  // of.
  bool is_inherited() const;

 private:
  uint64_t forks_;
};

}  // namespace hekla
