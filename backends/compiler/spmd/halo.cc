// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/halo.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace hekla::spmd {
namespace {

// Blocks that a part reads of at most: halos are planned for every cut that an operation may have,
// and each block costs a permute.
constexpr int64_t kMaxBlocks = 8;

int64_t floor_divided(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

int64_t block_size(const HaloRead& read) {
  return sharding::block_of(read.size, static_cast<int64_t>(read.starts.size()), 0).size;
}

using Round = HaloPlan::Round;

HaloPlan uniform_plan(const HaloRead& read, int64_t block) {
  HaloPlan plan;
  const auto parts = static_cast<int64_t>(read.starts.size());
  const int64_t begin = read.starts[0];  // relative to the block
  const int64_t end = begin + read.length;
  for (int64_t offset = floor_divided(begin, block); offset * block < end; ++offset) {
    const int64_t low = std::max(begin, offset * block);
    const int64_t high = std::min(end, (offset + 1) * block);
    Round round;
    round.length = high - low;
    for (int64_t to = 0; to < parts; ++to) {
      const int64_t from = to + offset;
      if (from < 0 || from >= parts || to * block + low >= read.size ||
          to * block + low >= read.end_of(static_cast<size_t>(to))) {
        continue;
      }
      round.transfers.push_back({from, to, low - offset * block});
    }
    plan.places.push_back(low - begin);
    plan.rounds.push_back(std::move(round));
  }
  return plan;
}

struct Need {
  int64_t from, to, begin, length;
};

// What each part needs of each block; own ones apart unless every part needs one block alone.
std::vector<Need> needs_of(const HaloRead& read, int64_t block, std::vector<Need>& own) {
  std::vector<Need> needs;
  const auto parts = static_cast<int64_t>(read.starts.size());
  for (int64_t to = 0; to < parts; ++to) {
    const int64_t low = std::max<int64_t>(read.starts[static_cast<size_t>(to)], 0);
    const int64_t high = std::min(read.end_of(static_cast<size_t>(to)), read.size);
    for (int64_t from = low / block; from * block < high && low < high; ++from) {
      const int64_t begin = std::max(low, from * block);
      const int64_t length = std::min(high, (from + 1) * block) - begin;
      (from == to ? own : needs).push_back({from, to, begin - from * block, length});
    }
  }
  std::vector<int64_t> blocks(read.starts.size(), 0);
  for (const auto* list : {&needs, &own}) {
    for (const Need& need : *list) ++blocks[static_cast<size_t>(need.to)];
  }
  if (std::all_of(blocks.begin(), blocks.end(), [](int64_t count) { return count <= 1; })) {
    needs.insert(needs.end(), own.begin(), own.end());
    own.clear();
  }
  return needs;
}

Round round_of(const std::vector<Need>& needs, int64_t block) {
  Round round;
  for (const Need& need : needs) round.length = std::max(round.length, need.length);
  for (const Need& need : needs) {
    round.transfers.push_back({need.from, need.to, std::min(need.begin, block - round.length)});
  }
  return round;
}

HaloPlan other_plan(const HaloRead& read, int64_t block) {
  HaloPlan plan;
  std::vector<Need> own;
  std::vector<Need> needs = needs_of(read, block, own);
  if (!own.empty()) plan.rounds.push_back(round_of(own, block));
  // Long ones first, each in the first round that both are free in.
  std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return std::tuple(-a.length, a.from - a.to, a.to) < std::tuple(-b.length, b.from - b.to, b.to);
  });
  std::vector<std::vector<Need>> open;
  // Short ones beside long ones save operations and cost bytes: not more than a quarter.
  const auto fits = [](const std::vector<Need>& round, const Need& need) {
    return need.length * 4 >= round.front().length * 3 &&
           std::none_of(round.begin(), round.end(), [&](const Need& other) {
             return other.from == need.from || other.to == need.to;
           });
  };
  for (const Need& need : needs) {
    auto place = std::find_if(open.begin(), open.end(),
                              [&](const std::vector<Need>& round) { return fits(round, need); });
    if (place == open.end()) place = open.insert(place, std::vector<Need>());
    place->push_back(need);
  }
  for (const std::vector<Need>& round : open) plan.rounds.push_back(round_of(round, block));
  return plan;
}

}  // namespace

bool HaloRead::leaves_below() const {
  return std::any_of(starts.begin(), starts.end(), [](int64_t start) { return start < 0; });
}

bool HaloRead::leaves_above() const {
  return std::any_of(starts.begin(), starts.end(),
                     [this](int64_t start) { return start + length > size; });
}

double HaloPlan::elements() const {
  double sent = 0;
  for (const Round& round : rounds) {
    for (const Round::Transfer& one : round.transfers) {
      if (one.from != one.to) sent += static_cast<double>(round.length);
    }
  }
  return sent / static_cast<double>(parts);
}

bool may_exchange(const HaloRead& read) {
  const int64_t block = block_size(read);
  return block > 0 && read.length > 0 && (read.length - 1) / block < kMaxBlocks;
}

HaloPlan plan_halo(const HaloRead& read) {
  const int64_t block = block_size(read);
  bool is_uniform = true;
  for (size_t part = 0; part < read.starts.size(); ++part) {
    is_uniform =
        is_uniform && read.starts[part] - static_cast<int64_t>(part) * block == read.starts[0];
  }
  HaloPlan plan = is_uniform ? uniform_plan(read, block) : other_plan(read, block);
  plan.parts = static_cast<int64_t>(read.starts.size());
  plan.block = block;
  plan.is_uniform = is_uniform;
  return plan;
}

}  // namespace hekla::spmd
