// SPDX-License-Identifier: Apache-2.0
// Implementations: in which ways a device may do one step, and why not in others.
//
// They are asked in the order of preference; each says yes or, in words with the limit and the
// value, why not, and the first that says yes is taken. Whoever decides makes the list, and runs
// what it says was taken: the list is the decision. What `hekla compile --emit implementations`
// prints. One thread; nothing fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hekla::kernel {

// Why an implementation does not do a step; empty: it does.
using Refusal = std::string;

struct Implementation {
  std::string name;
  Refusal refusal;
  bool operator==(const Implementation&) const = default;
};

class Implementations {
 public:
  // Asks the next one: whether it is taken. After a yes the others are told that they are not
  // needed, whatever they say.
  bool ask(std::string_view name, Refusal refusal);
  // The name of the one that was taken; empty: none yet.
  std::string_view taken() const;
  const std::vector<Implementation>& asked() const { return asked_; }
  std::vector<Implementation> take() { return std::move(asked_); }

 private:
  std::vector<Implementation> asked_;
  size_t taken_ = 0;
  bool has_taken_ = false;
};

// A line for each, behind two blanks: "  rows packed: taken", "  tile: 3 columns, fewer than 8".
std::string to_string(const std::vector<Implementation>& implementations);

}  // namespace hekla::kernel
