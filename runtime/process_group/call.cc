// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/call.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/rendezvous/group.h"

namespace hekla::process_group {
namespace {

constexpr std::array<std::string_view, kOperationCount> kOperationNames = {
    "broadcast",         "all_reduce",     "reduce",     "all_gather", "gather",
    "scatter",           "reduce_scatter", "all_to_all", "barrier",    "new_group",
    "all_gather_uneven", "coalesced"};

// Changes with every change of HeadBytes, so that processes of two versions do not misread each
// other.
constexpr uint32_t kMark = 0x48504702;

struct HeadBytes {
  uint32_t mark;
  uint8_t kind, operation, dtype, reduce;
  uint64_t group, sequence, step;
  int64_t part, count;
  uint64_t factor, detail;
  int32_t root;
  uint32_t text_bytes, refused, unused;
};
static_assert(std::is_trivially_copyable_v<HeadBytes> && sizeof(HeadBytes) == 80);

bool has_reduction(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

}  // namespace

std::string_view operation_name(Operation operation) {
  return kOperationNames[static_cast<size_t>(operation)];
}

std::string Call::to_string() const {
  if (operation == Operation::kCoalesced) return fmt::format("{} calls at once", count);
  std::string text(operation_name(operation));
  std::string arguments;
  if (has_reduction(operation)) {
    Reduction reduction(reduce);
    reduction.factor = std::bit_cast<double>(factor);
    arguments = reduction.to_string();
  }
  if (root >= 0) arguments += fmt::format("{}root {}", arguments.empty() ? "" : ", ", root);
  if (!arguments.empty()) text += "(" + arguments + ")";
  if (dtype == DType::kInvalid) return text;
  if (operation == Operation::kAllToAll) return text + fmt::format(" of {}", dtype_name(dtype));
  return text + fmt::format(" of {}[{}]", dtype_name(dtype), count);
}

std::string Head::bytes() const {
  HeadBytes raw = {};
  raw.mark = kMark;
  raw.kind = static_cast<uint8_t>(kind);
  raw.operation = static_cast<uint8_t>(call.operation);
  raw.dtype = static_cast<uint8_t>(call.dtype);
  raw.reduce = static_cast<uint8_t>(call.reduce);
  raw.group = group;
  raw.sequence = sequence;
  raw.step = step;
  raw.part = part;
  raw.count = call.count;
  raw.factor = call.factor;
  raw.detail = call.detail;
  raw.root = call.root;
  raw.refused = call.refused;
  raw.text_bytes = static_cast<uint32_t>(text.size());
  std::string all(sizeof(raw), '\0');
  std::memcpy(all.data(), &raw, sizeof(raw));
  return all + text;
}

Result<Head> Head::read(std::string_view bytes) {
  HeadBytes raw;
  if (bytes.size() < sizeof(raw)) {
    return data_loss("a message of {} bytes to a process group", bytes.size());
  }
  std::memcpy(&raw, bytes.data(), sizeof(raw));
  const bool is_known = raw.mark == kMark && raw.kind <= static_cast<uint8_t>(Kind::kRefused) &&
                        raw.operation < kOperationCount && raw.dtype < kDTypeCount &&
                        raw.reduce < kReduceOpCount && raw.part >= 0 && raw.count >= 0 &&
                        raw.unused == 0 && bytes.size() - sizeof(raw) == raw.text_bytes;
  if (!is_known) return data_loss("a message to a process group that is none of this version");
  Head head;
  head.kind = static_cast<Kind>(raw.kind);
  head.group = raw.group;
  head.sequence = raw.sequence;
  head.step = raw.step;
  head.part = raw.part;
  head.call = {static_cast<Operation>(raw.operation),
               static_cast<DType>(raw.dtype),
               static_cast<ReduceOp>(raw.reduce),
               raw.root,
               raw.count,
               raw.factor,
               raw.detail,
               raw.refused};
  head.text = bytes.substr(sizeof(raw));
  return head;
}

std::string who_calls_what(const std::map<int, Call>& calls) {
  std::vector<std::pair<Call, std::vector<int>>> kinds;
  for (const auto& [rank, call] : calls) {
    auto found = std::find_if(kinds.begin(), kinds.end(),
                              [&, &call = call](const auto& kind) { return kind.first == call; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {call, {}});
    found->second.push_back(rank);
  }
  // Who is alone with a call is named first.
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, kinds.size()); ++i) {
    const auto& [call, ranks] = kinds[i];
    // Of calls that read alike: what chooses how they are done.
    const bool looks_alike =
        std::any_of(kinds.begin(), kinds.end(), [&, &call = call](const auto& kind) {
          return kind.first.detail != call.detail && kind.first.to_string() == call.to_string();
        });
    const bool is_in_step = std::all_of(
        kinds.begin(), kinds.end(),
        [&, &call = call](const auto& kind) { return kind.first.refused == call.refused; });
    text +=
        fmt::format("{}rank{} {} call{} {}{}{}", i == 0 ? "" : "; ", ranks.size() == 1 ? "" : "s",
                    rendezvous::rank_list(ranks), ranks.size() == 1 ? "s" : "", call.to_string(),
                    looks_alike ? fmt::format(" with options {:x}", call.detail) : "",
                    is_in_step ? "" : fmt::format(", having refused {} before", call.refused));
  }
  if (kinds.size() > kNamed) text += fmt::format("; {} more", kinds.size() - kNamed);
  return text;
}

}  // namespace hekla::process_group
