// SPDX-License-Identifier: Apache-2.0
// Halos: what the parts of a dimension read of their neighbours.
//
// A read gives every part as many elements in a row, from a place of its own on: a block and its
// borders, a block of another array, a mirrored one. Places may lie outside of the array. Plans say
// which parts send what to whom in how few elements; Resharder::read makes the operations. Plain
// values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/spmd/tiling.h"

namespace hekla::spmd {

// Along one dimension: part j has the elements [starts[j], starts[j] + length) afterwards.
struct HaloRead {
  size_t dimension = 0;
  Axes axes;         // that number the parts and, where the array is cut, cut the dimension
  int64_t size = 0;  // of the dimension of the whole array
  std::vector<int64_t> starts;
  int64_t length = 0;
  // How many of these part j looks at, the first ones: the others are anything. Empty: all.
  std::vector<int64_t> wanted;

  bool leaves_below() const;  // some part reads in front of the array
  bool leaves_above() const;  // or behind it
  // What part j looks at ends there.
  int64_t end_of(size_t part) const {
    return starts[part] + (wanted.empty() ? length : wanted[part]);
  }
};

struct HaloPlan {
  // Elements that move at once: a part sends to one other and gets from one at most.
  struct Round {
    struct Transfer {
      int64_t from = 0, to = 0;
      int64_t begin = 0;  // within the block of `from`
    };
    int64_t length = 0;
    std::vector<Transfer> transfers;
  };
  int64_t parts = 1;
  int64_t block = 0;
  // Every part reads at the same place relative to its block: round i brings what begins at
  // places[i] of the window, for all parts whose transfer is there; nothing else is there for the
  // others. Else rounds in any order, of which own blocks are one.
  bool is_uniform = false;
  std::vector<int64_t> places;
  std::vector<Round> rounds;

  // What a part sends to others on average.
  double elements() const;
};

// Whether parts read so little of each other that exchanging is worth a try: beyond a few blocks
// each, gathering takes fewer operations.
bool may_exchange(const HaloRead& read);

// What may_exchange allows.
HaloPlan plan_halo(const HaloRead& read);

}  // namespace hekla::spmd
