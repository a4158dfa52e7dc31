// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/shared_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <tuple>

namespace hekla::checkpoint {
namespace {

// Some 100 KB of text, which any store takes.
constexpr size_t kMaxRanges = 4096;

struct Reads {
  std::string_view machine;
  std::vector<ShardRange> ranges;
};

// MACHINE, then a line for each range: FILE BEGIN END.
Result<Reads> parse(std::string_view text) {
  Reads reads;
  const auto take_line = [&text] {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  };
  reads.machine = take_line();
  while (!text.empty()) {
    const std::string_view line = take_line();
    const char* const end = line.data() + line.size();
    ShardRange range;
    const auto file = std::from_chars(line.data(), end, range.file);
    const auto begin = std::from_chars(std::min(file.ptr + 1, end), end, range.begin);
    const auto last = std::from_chars(std::min(begin.ptr + 1, end), end, range.end);
    const bool is_one = file.ec == std::errc() && begin.ec == std::errc() &&
                        last.ec == std::errc() && last.ptr == end && range.file >= 0 &&
                        range.begin >= 0 && range.begin < range.end;
    if (!is_one) return internal_error("\"{}\" is no range of a shard", line);
    reads.ranges.push_back(range);
  }
  return reads;
}

// Sorts, and joins what overlaps or touches.
void join(std::vector<ShardRange>* ranges) {
  std::sort(ranges->begin(), ranges->end(), [](const ShardRange& a, const ShardRange& b) {
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  });
  size_t count = 0;
  for (const ShardRange& range : *ranges) {
    ShardRange* const before = count == 0 ? nullptr : &(*ranges)[count - 1];
    if (before != nullptr && before->file == range.file && range.begin <= before->end) {
      before->end = std::max(before->end, range.end);
    } else {
      (*ranges)[count++] = range;
    }
  }
  ranges->resize(count);
}

}  // namespace

std::string reads_text(std::string_view machine, std::span<const ShardRange> ranges) {
  std::string text(machine);
  text += '\n';
  const bool is_long = ranges.size() > kMaxRanges;
  for (size_t i = 0; i < ranges.size(); ++i) {
    ShardRange range = ranges[i];
    while (is_long && i + 1 < ranges.size() && ranges[i + 1].file == range.file) {
      range.end = ranges[++i].end;
    }
    fmt::format_to(std::back_inserter(text), "{} {} {}\n", range.file, range.begin, range.end);
  }
  return text;
}

Result<std::vector<ShardRange>> shared_reads(std::span<const std::string> texts, int rank) {
  std::vector<Reads> all;
  for (const std::string& text : texts) {
    HEKLA_ASSIGN_OR_RETURN(Reads reads, parse(text));
    all.push_back(std::move(reads));
  }
  if (rank < 0 || static_cast<size_t>(rank) >= all.size()) {
    return internal_error("rank {} among the reads of {}", rank, all.size());
  }
  Reads& mine = all[static_cast<size_t>(rank)];
  std::vector<ShardRange> others;
  for (const Reads& reads : all) {
    if (&reads == &mine || reads.machine != mine.machine) continue;
    others.insert(others.end(), reads.ranges.begin(), reads.ranges.end());
  }
  join(&mine.ranges);
  join(&others);
  std::vector<ShardRange> shared;
  for (auto a = mine.ranges.begin(), b = others.begin();
       a != mine.ranges.end() && b != others.end();) {
    if (a->file == b->file) {
      const ShardRange common = {a->file, std::max(a->begin, b->begin), std::min(a->end, b->end)};
      if (common.begin < common.end) shared.push_back(common);
    }
    ++(std::tie(a->file, a->end) < std::tie(b->file, b->end) ? a : b);
  }
  return shared;
}

}  // namespace hekla::checkpoint
