// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/objects.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hekla::process_group {
namespace {

constexpr int64_t kNoObjects = -1;

// sent[r] to each rank r; what has come, by rank.
Result<std::vector<std::string>> exchange_objects(ProcessGroup& group,
                                                  const std::vector<std::string_view>& sent,
                                                  Timeout timeout) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<int64_t> out_sizes(ranks), in_sizes(ranks);
  for (size_t r = 0; r < ranks; ++r) in_sizes[r] = static_cast<int64_t>(sent[r].size());
  HEKLA_RETURN_IF_ERROR(group
                            .all_to_all(elements(std::span(out_sizes)),
                                        elements(std::span<const int64_t>(in_sizes)), timeout)
                            .wait());
  std::string in;
  for (const std::string_view one : sent) in += one;
  std::string out;
  for (const int64_t size : out_sizes) {
    if (size < 0) return data_loss("an object of {} bytes", size);
    out.resize(out.size() + static_cast<size_t>(size));
  }
  const Elements to{out.data(), DType::kUI8, static_cast<int64_t>(out.size())};
  const ConstElements from(in.data(), DType::kUI8, static_cast<int64_t>(in.size()));
  HEKLA_RETURN_IF_ERROR(group.all_to_all(to, from, out_sizes, in_sizes, timeout).wait());
  std::vector<std::string> came;
  size_t at = 0;
  for (const int64_t size : out_sizes) {
    came.push_back(out.substr(at, static_cast<size_t>(size)));
    at += static_cast<size_t>(size);
  }
  return came;
}

Status check_object_root(const ProcessGroup& group, int root) {
  if (root >= 0 && root < group.size()) return ok_status();
  return invalid_argument("rank {} in group {} of {}", root, group.name(), group.size());
}

std::vector<std::string_view> to_all(const ProcessGroup& group, std::string_view own) {
  return std::vector<std::string_view>(static_cast<size_t>(group.size()), own);
}

}  // namespace

Result<std::vector<std::string>> all_gather_objects(ProcessGroup& group, std::string_view own,
                                                    Timeout timeout) {
  return exchange_objects(group, to_all(group, own), timeout);
}

Result<std::vector<std::string>> gather_objects(ProcessGroup& group, std::string_view own, int root,
                                                Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_object_root(group, root));
  std::vector<std::string_view> sent = to_all(group, {});
  sent[static_cast<size_t>(root)] = own;
  HEKLA_ASSIGN_OR_RETURN(std::vector<std::string> came, exchange_objects(group, sent, timeout));
  if (group.rank() != root) came.clear();
  return came;
}

Result<std::string> broadcast_object(ProcessGroup& group, std::string_view own, int root,
                                     Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_object_root(group, root));
  int64_t size = static_cast<int64_t>(own.size());
  HEKLA_RETURN_IF_ERROR(group.broadcast({&size, DType::kI64, 1}, root, timeout).wait());
  if (size < 0) return data_loss("an object of {} bytes", size);
  std::string text = group.rank() == root ? std::string(own) : std::string();
  text.resize(static_cast<size_t>(size));
  HEKLA_RETURN_IF_ERROR(group.broadcast({text.data(), DType::kUI8, size}, root, timeout).wait());
  return text;
}

Result<std::string> scatter_object(ProcessGroup& group, const std::vector<std::string>& all,
                                   int root, Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_object_root(group, root));
  const auto ranks = static_cast<size_t>(group.size());
  const bool is_root = group.rank() == root;
  // The others hear of it, since they wait.
  const bool is_wrong = is_root && all.size() != ranks;
  std::vector<int64_t> sizes(ranks, kNoObjects);
  std::string joined;
  for (size_t r = 0; is_root && !is_wrong && r < ranks; ++r) {
    sizes[r] = static_cast<int64_t>(all[r].size());
    joined += all[r];
  }
  HEKLA_RETURN_IF_ERROR(group.broadcast(elements(std::span(sizes)), root, timeout).wait());
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) {
    return invalid_argument("rank {} has {} objects for the {} ranks of group {}", root,
                            is_root ? std::to_string(all.size()) : std::string("other than"), ranks,
                            group.name());
  }
  const int64_t own = sizes[static_cast<size_t>(group.rank())];
  std::string text(static_cast<size_t>(own), '\0');
  std::vector<int64_t> out_splits(ranks, 0);
  out_splits[static_cast<size_t>(root)] = own;
  const std::vector<int64_t> in_splits = is_root ? sizes : std::vector<int64_t>(ranks, 0);
  HEKLA_RETURN_IF_ERROR(group
                            .all_to_all({text.data(), DType::kUI8, own},
                                        ConstElements(joined.data(), DType::kUI8,
                                                      static_cast<int64_t>(joined.size())),
                                        out_splits, in_splits, timeout)
                            .wait());
  return text;
}

}  // namespace hekla::process_group
