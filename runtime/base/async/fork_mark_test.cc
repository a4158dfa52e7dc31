// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hekla {
namespace {

// What `in_child` gives in the child of a fork.
template <typename InChild>
bool forked(const InChild& in_child) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(in_child() ? 1 : 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(ForkMarkTest, IsInheritedByChildrenAndTheirs) {
  const ForkMark mark;
  EXPECT_FALSE(mark.is_inherited());
  EXPECT_TRUE(forked([&] { return mark.is_inherited(); }));
  EXPECT_TRUE(forked([&] { return forked([&] { return mark.is_inherited(); }); }));
  EXPECT_FALSE(mark.is_inherited());
}

TEST(ForkMarkTest, WhatAChildMakesIsItsOwn) {
  const ForkMark of_parent;
  EXPECT_FALSE(forked([] { return ForkMark().is_inherited(); }));
  EXPECT_TRUE(forked([] {
    const ForkMark of_child;
    return forked([&] { return of_child.is_inherited(); });
  }));
}

}  // namespace
}  // namespace hekla
