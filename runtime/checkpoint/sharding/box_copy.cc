// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/box_copy.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/copy_bytes.h"

namespace hekla::checkpoint {
namespace {

// In units of 8 elements, whose bytes are whole for every width: no product above 2^63 where the
// bytes are below.
int64_t first_byte(int64_t element, int bits) {
  return element / 8 * bits + element % 8 * bits / 8;
}
int64_t end_byte(int64_t element, int bits) {
  return element / 8 * bits + (element % 8 * bits + 7) / 8;
}
// Elements that start before `byte`, or end at or before it.
int64_t elements_begun(int64_t byte, int bits) {
  return byte / bits * 8 + (byte % bits * 8 + bits - 1) / bits;
}
int64_t elements_ended(int64_t byte, int bits) { return byte / bits * 8 + byte % bits * 8 / bits; }

// Runs of one element are common (columns): a call of memcpy would be most of their cost.
void copy_run(std::byte* to, const std::byte* from, int64_t bytes) {
  switch (bytes) {
    case 1:
      *to = *from;
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 16:
      std::memcpy(to, from, 16);
      return;
    default:
      copy_bytes(to, from, bytes);
  }
}

// `count` packed elements from the one at bit `bit` (0 to 7) of `from`.
void unpack(const std::byte* from, int bit, int bits, bool is_signed, int64_t count,
            std::byte* to) {
  const unsigned mask = (1u << bits) - 1;
  const unsigned sign = is_signed ? 1u << (bits - 1) : 0;
  for (int64_t i = 0; i < count; ++i) {
    unsigned value = static_cast<unsigned>(*from) >> bit;
    if (bit + bits > 8) value |= static_cast<unsigned>(from[1]) << (8 - bit);
    value &= mask;
    to[i] = static_cast<std::byte>((value ^ sign) - sign);
    bit += bits;
    from += bit >> 3;
    bit &= 7;
  }
}

}  // namespace

BoxCopy::BoxCopy(DType dtype, const Box& stored, const Box& memory, const Dims& memory_dims,
                 const Box& region)
    : dtype_(dtype), bits_(stored_bits(dtype)), elements_(element_count(region.size)) {
  int64_t stored_step = 1;
  int64_t memory_step = 1;
  for (size_t d = region.size.size(); d-- > 0;) {
    stored_first_ += (region.start[d] - stored.start[d]) * stored_step;
    memory_first_ += (region.start[d] - memory.start[d]) * memory_step;
    const int64_t count = region.size[d];
    if (count > 1) {
      if (loops_.empty() && (stored_step != 1 || memory_step != 1)) loops_.push_back({1, 1, 1, 1});
      Loop* inner = loops_.empty() ? nullptr : &loops_.back();
      if (inner != nullptr && inner->count * inner->stored_step == stored_step &&
          inner->count * inner->memory_step == memory_step) {
        inner->count *= count;
      } else {
        loops_.push_back({count, stored_step, memory_step, 0});
      }
    }
    stored_step *= stored.size[d];
    memory_step *= memory_dims[d];
  }
  if (loops_.empty()) loops_.push_back({1, 1, 1, 1});
  int64_t extent = 1;
  for (Loop& loop : loops_) {
    extent += (loop.count - 1) * loop.stored_step;
    loop.stored_extent = extent;
  }
  std::reverse(loops_.begin(), loops_.end());
}

int64_t BoxCopy::run_bytes() const { return first_byte(loops_.back().count, bits_); }

StoredRange BoxCopy::stored_range() const {
  return {first_byte(stored_first_, bits_),
          end_byte(stored_first_ + loops_.front().stored_extent, bits_)};
}

int64_t BoxCopy::memory_offset(StoredRange range) const {
  if (bits_ < 8 || loops_.size() != 1) return -1;
  const int64_t size = bits_ / 8;
  const int64_t first = stored_first_ * size;
  if (range.begin < first || range.end > first + loops_[0].count * size) return -1;
  return memory_first_ * size + range.begin - first;
}

void BoxCopy::add_ranges(int64_t min_gap, std::vector<StoredRange>* ranges) const {
  // From `solid` on, no gap is worth keeping.
  size_t solid = loops_.size() - 1;
  while (solid > 0) {
    const int64_t gap = loops_[solid - 1].stored_step - loops_[solid].stored_extent;
    if (first_byte(gap, bits_) >= std::max<int64_t>(min_gap, 1)) break;
    --solid;
  }
  add_ranges_from(0, solid, stored_first_, ranges);
}

void BoxCopy::add_ranges_from(size_t level, size_t solid, int64_t stored,
                              std::vector<StoredRange>* ranges) const {
  if (level == solid) {
    ranges->push_back(
        {first_byte(stored, bits_), end_byte(stored + loops_[level].stored_extent, bits_)});
    return;
  }
  for (int64_t i = 0; i < loops_[level].count; ++i) {
    add_ranges_from(level + 1, solid, stored + i * loops_[level].stored_step, ranges);
  }
}

// Calls visit(stored, memory, count) for the runs with stored elements in [low, high), cut to it.
template <typename Visit>
void BoxCopy::visit_runs(size_t level, int64_t stored, int64_t memory, int64_t low, int64_t high,
                         const Visit& visit) const {
  const Loop& loop = loops_[level];
  if (level + 1 == loops_.size()) {
    const int64_t begin = std::max(stored, low);
    const int64_t end = std::min(stored + loop.count, high);
    if (begin < end) visit(begin, memory + (begin - stored), end - begin);
    return;
  }
  const int64_t extent = loops_[level + 1].stored_extent;
  int64_t i = 0;
  if (low > stored + extent) i = (low - stored - extent) / loop.stored_step;
  for (; i < loop.count && stored + i * loop.stored_step < high; ++i) {
    visit_runs(level + 1, stored + i * loop.stored_step, memory + i * loop.memory_step, low, high,
               visit);
  }
}

void BoxCopy::load(std::span<const std::byte> bytes, int64_t begin, std::byte* memory) const {
  const int64_t end = begin + static_cast<int64_t>(bytes.size());
  if (bits_ < 8) {
    const bool is_signed = is_signed_integer(dtype_);
    visit_runs(0, stored_first_, memory_first_, elements_begun(begin, bits_),
               elements_ended(end, bits_), [&](int64_t stored, int64_t at, int64_t count) {
                 unpack(bytes.data() + (first_byte(stored, bits_) - begin),
                        static_cast<int>(stored % 8 * bits_ % 8), bits_, is_signed, count,
                        memory + at);
               });
    return;
  }
  const int64_t size = bits_ / 8;
  visit_runs(0, stored_first_, memory_first_, begin / size, (end + size - 1) / size,
             [&](int64_t stored, int64_t at, int64_t count) {
               const int64_t from = std::max(stored * size, begin);
               const int64_t to = std::min((stored + count) * size, end);
               copy_run(memory + at * size + (from - stored * size), bytes.data() + (from - begin),
                        to - from);
             });
}

void BoxCopy::store(const std::byte* memory, std::span<std::byte> bytes, int64_t begin) const {
  const int64_t end = begin + static_cast<int64_t>(bytes.size());
  if (bits_ < 8) {
    const unsigned mask = (1u << bits_) - 1;
    const int64_t last = elements_begun(end, bits_);
    visit_runs(0, stored_first_, memory_first_, elements_ended(begin, bits_), last,
               [&](int64_t stored, int64_t at, int64_t count) {
                 for (int64_t i = 0; i < count; ++i) {
                   const int64_t byte = first_byte(stored + i, bits_) - begin;
                   const int bit = static_cast<int>((stored + i) % 8 * bits_ % 8);
                   const unsigned value = (static_cast<unsigned>(memory[at + i]) & mask) << bit;
                   if (byte >= 0) bytes[byte] |= static_cast<std::byte>(value & 0xff);
                   if (bit + bits_ > 8 && byte + 1 < end - begin) {
                     bytes[byte + 1] |= static_cast<std::byte>(value >> 8);
                   }
                 }
               });
    return;
  }
  const int64_t size = bits_ / 8;
  visit_runs(0, stored_first_, memory_first_, begin / size, (end + size - 1) / size,
             [&](int64_t stored, int64_t at, int64_t count) {
               const int64_t from = std::max(stored * size, begin);
               const int64_t to = std::min((stored + count) * size, end);
               copy_run(bytes.data() + (from - begin), memory + at * size + (from - stored * size),
                        to - from);
             });
}

}  // namespace hekla::checkpoint
