// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/group_meeting.h"

#include <algorithm>
#include <vector>

namespace hekla::process_group {
namespace {

using collectives::SegmentCard;

// Of what each rank says, which has one length on all: what it is, then what came of it.
constexpr size_t kTextBytes = 512;

std::string padded(std::string text) {
  const auto bytes = static_cast<uint32_t>(std::min(text.size(), kTextBytes - sizeof(uint32_t)));
  text.resize(bytes);
  text.insert(0, reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  text.resize(kTextBytes);
  return text;
}

std::string unpadded(const std::string& text) {
  uint32_t bytes = 0;
  if (text.size() != kTextBytes) return {};
  std::copy_n(text.data(), sizeof(bytes), reinterpret_cast<char*>(&bytes));
  return text.substr(sizeof(bytes), std::min<size_t>(bytes, kTextBytes - sizeof(bytes)));
}

ConstElements elements_of(const std::string& text) {
  return {text.data(), DType::kUI8, static_cast<int64_t>(text.size())};
}

void append(std::string& text, const HostArray& block) {
  text.append(reinterpret_cast<const char*>(block.data()), static_cast<size_t>(block.size_bytes()));
}

// What all ranks say, by rank.
Result<std::vector<std::string>> begin(Exchange& exchange, const std::string& own) {
  const auto ranks = static_cast<size_t>(exchange.size());
  HEKLA_RETURN_IF_ERROR(exchange.begin(std::vector<ConstElements>(ranks, elements_of(own)),
                                       std::vector<int64_t>(ranks, kTextBytes)));
  std::vector<std::string> all(ranks);
  for (int r = 0; r < exchange.size(); ++r) {
    if (r == exchange.rank()) continue;
    for (int64_t k = 0; k < exchange.piece_count(kTextBytes); ++k) {
      HEKLA_ASSIGN_OR_RETURN(const HostArray block, exchange.take(r, k));
      append(all[static_cast<size_t>(r)], block);
    }
  }
  all[static_cast<size_t>(exchange.rank())] = own;
  for (std::string& text : all) text = unpadded(text);
  return all;
}

Result<std::vector<std::string>> conclude(Exchange& exchange, const std::string& own) {
  std::vector<int> others;
  for (int r = 0; r < exchange.size(); ++r) {
    if (r != exchange.rank()) others.push_back(r);
  }
  for (int64_t k = 0; k < exchange.piece_count(kTextBytes); ++k) {
    const auto [first, count] = exchange.piece(kTextBytes, k);
    HEKLA_RETURN_IF_ERROR(exchange.send_result(others, k, elements_of(own).part(first, count)));
  }
  std::vector<std::string> all(static_cast<size_t>(exchange.size()));
  for (const int r : others) {
    for (int64_t k = 0; k < exchange.piece_count(kTextBytes); ++k) {
      HEKLA_ASSIGN_OR_RETURN(const HostArray block, exchange.take_result(r, kTextBytes, k));
      append(all[static_cast<size_t>(r)], block);
    }
  }
  all[static_cast<size_t>(exchange.rank())] = own;
  for (std::string& text : all) text = unpadded(text);
  return all;
}

HostLayout layout_of(const std::vector<std::string>& cards) {
  std::vector<SegmentCard> all;
  std::vector<int> hosts;
  for (const std::string& text : cards) {
    Result<SegmentCard> card = SegmentCard::read(text);
    if (!card.ok()) return {};
    const auto near = std::find_if(all.begin(), all.end(),
                                   [&](const SegmentCard& one) { return one.is_near(*card); });
    hosts.push_back(static_cast<int>(near - all.begin()));
    all.push_back(*std::move(card));
  }
  return HostLayout::of(hosts);
}

std::string open_first(const std::vector<std::string>& cards, int rank,
                       const GroupMemory::Sizes& sizes, std::unique_ptr<GroupMemory>& memory) {
  const Result<SegmentCard> first = SegmentCard::read(cards[0]);
  if (!first.ok()) return fmt::format("rank 0: {}", cards[0]);
  for (size_t r = 1; r < cards.size(); ++r) {
    const Result<SegmentCard> other = SegmentCard::read(cards[r]);
    if (!other.ok()) return fmt::format("rank {}: {}", r, other.status().message());
    if (!first->is_near(*other)) {
      return fmt::format(
          "ranks 0 and {} are on different machines, {} and {}, or in containers "
          "that do not see each other's processes",
          r, first->host, other->host);
    }
  }
  if (rank == 0) return {};
  Result<std::unique_ptr<GroupMemory>> opened = GroupMemory::open(*first, sizes);
  if (!opened.ok()) return fmt::format("rank {}: {}", rank, opened.status().message());
  memory = *std::move(opened);
  return {};
}

// Measured (docs/measurements.md): where ranks share cores, a larger slot needs fewer turns of all
// of them; with a core each 256 KiB are as fast as 64. A group of up to 32 ranks takes 16 MiB.
int64_t usual_slot_bytes(int ranks) {
  return std::clamp<int64_t>((int64_t{2} << 20) / ranks, int64_t{64} << 10, int64_t{256} << 10);
}

}  // namespace

Result<GroupMeeting> meet_in_memory(Exchange& exchange, const Options& options) {
  GroupMemory::Sizes sizes;
  sizes.ranks = exchange.size();
  // Room for the splits of all_to_all, and in a slot for a line to each other rank.
  sizes.flat_bytes = std::max<int64_t>(options.shared_flat_bytes, 8 * int64_t{sizes.ranks});
  const int64_t slot_bytes =
      options.shared_slot_bytes < 0 ? usual_slot_bytes(sizes.ranks) : options.shared_slot_bytes;
  sizes.slot_bytes = (std::max<int64_t>(slot_bytes, 64 * int64_t{sizes.ranks}) + 63) / 64 * 64;
  GroupMeeting meeting;
  std::string card = SegmentCard::of_this_process().text();
  if (exchange.rank() == 0) {
    Result<std::unique_ptr<GroupMemory>> made = GroupMemory::create(sizes);
    if (made.ok()) {
      meeting.memory = *std::move(made);
      card = meeting.memory->card().text();
    } else {
      card = made.status().message();
    }
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<std::string> cards, begin(exchange, padded(card)));
  meeting.layout = layout_of(cards);
  const std::string problem = open_first(cards, exchange.rank(), sizes, meeting.memory);
  HEKLA_ASSIGN_OR_RETURN(const std::vector<std::string> problems,
                         conclude(exchange, padded(problem)));
  for (const std::string& one : problems) {
    if (meeting.reason.empty()) meeting.reason = one;
  }
  if (!meeting.reason.empty()) meeting.memory = nullptr;
  if (meeting.memory != nullptr) meeting.memory->close_file();
  return meeting;
}

}  // namespace hekla::process_group
