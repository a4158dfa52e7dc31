// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/tile_table.h"

#include <algorithm>

namespace hekla::sharding {
namespace {

// Sorts runs of `length` elements, `count` of them together, by their first elements.
void sort_runs(std::span<int64_t> values, size_t length) {
  const size_t count = values.size() / length;
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return values[a * length] < values[b * length]; });
  std::vector<int64_t> sorted;
  sorted.reserve(values.size());
  for (size_t i : order) {
    sorted.insert(sorted.end(), values.begin() + static_cast<int64_t>(i * length),
                  values.begin() + static_cast<int64_t>((i + 1) * length));
  }
  std::copy(sorted.begin(), sorted.end(), values.begin());
}

bool split(std::vector<Digit>& digits, int64_t Digit::*side, int64_t boundary) {
  for (size_t i = 0; i < digits.size(); ++i) {
    const Digit digit = digits[i];
    const int64_t begin = digit.*side;
    if (boundary <= begin || boundary >= begin * digit.size) continue;
    const int64_t minor = boundary / begin;
    if (boundary % begin != 0 || digit.size % minor != 0) return false;
    digits[i].size = minor;
    digits.insert(digits.begin() + static_cast<int64_t>(i) + 1,
                  Digit{digit.size / minor, digit.tile_stride * minor, digit.stride * minor});
    return true;
  }
  return true;
}

}  // namespace

std::optional<std::vector<Digit>> digits_of(std::span<const int64_t> table) {
  std::vector<Digit> digits;
  const auto n = static_cast<int64_t>(table.size());
  const auto at = [&](int64_t i) { return table[static_cast<size_t>(i)]; };
  if (n == 0 || at(0) != 0) return std::nullopt;
  for (int64_t count = 1; count < n;) {
    const int64_t stride = at(count);
    int64_t size = 2;
    while (size * count < n && at(size * count) == size * stride) ++size;
    if (stride < 1 || n % (size * count) != 0) return std::nullopt;
    digits.push_back({size, count, stride});
    count *= size;
  }
  // Each digit of a tile is zero, or one above another tile whose position is known by then.
  for (const Digit& digit : digits) {
    for (int64_t i = digit.tile_stride; i < digit.tile_stride * digit.size; ++i) {
      if (at(i) != at(i - digit.tile_stride) + digit.stride) return std::nullopt;
    }
  }
  std::vector<Digit> sorted = digits;
  std::sort(sorted.begin(), sorted.end(),
            [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
  int64_t next = 1;
  for (const Digit& digit : sorted) {
    if (digit.stride != next) return std::nullopt;
    next *= digit.size;
  }
  return digits;
}

bool split_tiles(std::vector<Digit>& digits, int64_t boundary) {
  return split(digits, &Digit::tile_stride, boundary);
}

bool split_positions(std::vector<Digit>& digits, int64_t boundary) {
  return split(digits, &Digit::stride, boundary);
}

TileTable tile_table(const HloSharding& sharding, std::span<const int64_t> position_of) {
  using Kind = HloSharding::Kind;
  TileTable result;
  const size_t rank = sharding.tile_dims.size() - sharding.subgroups.size();
  result.tile_dims.assign(sharding.tile_dims.begin(),
                          sharding.tile_dims.begin() + static_cast<int64_t>(rank));
  // Where an element goes: the stride of each trailing dimension in the new order.
  std::vector<int64_t> strides(sharding.subgroups.size());
  int64_t stride = 1;
  const std::pair<Kind, int64_t*> kinds[] = {{Kind::kReplicated, &result.replicated},
                                             {Kind::kUnreduced, &result.unreduced},
                                             {Kind::kManual, &result.manual}};
  for (const auto& [kind, total] : kinds) {
    for (size_t i = sharding.subgroups.size(); i-- > 0;) {
      if (sharding.subgroups[i] != kind) continue;
      const int64_t size = sharding.tile_dims[rank + i];
      strides[i] = stride;
      stride *= size;
      *total *= size;
    }
  }
  const std::vector<int64_t> given = tile_devices(sharding);
  result.table.resize(given.size());
  std::vector<int64_t> digits(strides.size(), 0);
  for (size_t i = 0, group = 0; i < given.size(); ++i) {
    int64_t to = static_cast<int64_t>(group) * stride;
    for (size_t k = 0; k < digits.size(); ++k) to += digits[k] * strides[k];
    result.table[static_cast<size_t>(to)] =
        position_of.empty() ? given[i] : position_of[static_cast<size_t>(given[i])];
    size_t k = digits.size();
    while (k > 0 && ++digits[k - 1] == sharding.tile_dims[rank + k - 1]) digits[--k] = 0;
    if (k == 0) ++group;
  }
  const auto copies = static_cast<size_t>(result.replicated);
  const size_t sums = copies * static_cast<size_t>(result.unreduced);
  const size_t regions = sums * static_cast<size_t>(result.manual);
  const std::span<int64_t> all(result.table);
  for (size_t i = 0; i < all.size(); i += copies) sort_runs(all.subspan(i, copies), 1);
  for (size_t i = 0; i < all.size(); i += sums) sort_runs(all.subspan(i, sums), copies);
  for (size_t i = 0; i < all.size(); i += regions) sort_runs(all.subspan(i, regions), sums);
  return result;
}

}  // namespace hekla::sharding
