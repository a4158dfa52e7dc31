// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/objects.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include "runtime/base/cpu_info.h"

namespace hekla::process_group {
namespace {

constexpr int64_t kNoObjects = -1;

// Of sizes that another rank says; empty where it is not to be taken. RESOURCE_EXHAUSTED: there is
// not that much memory.
Result<std::string> room_for(std::span<const int64_t> sizes, bool is_taken = true) {
  int64_t all = 0;
  for (const int64_t size : sizes) {
    if (size < 0) return data_loss("an object of {} bytes", size);
    if (__builtin_add_overflow(all, size, &all)) {
      return resource_exhausted("objects of more than {} bytes", INT64_MAX);
    }
  }
  // Asked before it is tried: hosts that promise more memory than they have end a program later.
  static const int64_t kMost = read_cpu_info().memory_bytes;
  if (all > kMost) {
    return resource_exhausted("{} bytes of objects, more than the {} bytes of the host", all,
                              kMost);
  }
  if (!is_taken) return std::string();
  try {
    return std::string(static_cast<size_t>(all), '\0');
  } catch (const std::exception&) {  // std::length_error, std::bad_alloc
    return resource_exhausted("{} bytes of objects", all);
  }
}

std::vector<std::string> objects_in(std::string_view all, std::span<const int64_t> sizes) {
  std::vector<std::string> objects;
  for (const int64_t size : sizes) {
    objects.emplace_back(all.substr(0, static_cast<size_t>(size)));
    all.remove_prefix(static_cast<size_t>(size));
  }
  return objects;
}

Status check_object_root(ProcessGroup& group, std::string_view call, int root) {
  if (root >= 0 && root < group.size()) return ok_status();
  const Status refused =
      invalid_argument("rank {} in group {} of {}", root, group.name(), group.size());
  group.refuse(call, refused);
  return refused;
}

}  // namespace

Result<std::vector<std::string>> all_gather_objects(ProcessGroup& group, std::string_view own,
                                                    Timeout timeout) {
  const auto size = static_cast<int64_t>(own.size());
  std::vector<int64_t> sizes(static_cast<size_t>(group.size()));
  HEKLA_RETURN_IF_ERROR(
      group.all_gather(elements(std::span(sizes)), ConstElements(&size, DType::kI64, 1), timeout)
          .wait());
  std::vector<std::string> all;
  std::vector<Elements> out;
  HEKLA_RETURN_IF_ERROR(room_for(sizes, false).status());
  for (const int64_t one : sizes) {
    HEKLA_ASSIGN_OR_RETURN(std::string text, room_for({&one, 1}));
    all.push_back(std::move(text));
  }
  for (std::string& text : all) {
    out.push_back({text.data(), DType::kUI8, static_cast<int64_t>(text.size())});
  }
  HEKLA_RETURN_IF_ERROR(
      group.all_gather(out, ConstElements(own.data(), DType::kUI8, size), timeout).wait());
  return all;
}

Result<std::vector<std::string>> gather_objects(ProcessGroup& group, std::string_view own, int root,
                                                Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_object_root(group, "gather_objects", root));
  const auto ranks = static_cast<size_t>(group.size());
  const bool is_root = group.rank() == root;
  // A call with a root, which is the same on all ranks then.
  const auto size = static_cast<int64_t>(own.size());
  std::vector<int64_t> sizes(ranks, 0);
  HEKLA_RETURN_IF_ERROR(
      group.gather(elements(std::span(sizes)), ConstElements(&size, DType::kI64, 1), root, timeout)
          .wait());
  HEKLA_ASSIGN_OR_RETURN(std::string all, room_for(sizes));
  std::vector<int64_t> in_splits(ranks, 0);
  in_splits[static_cast<size_t>(root)] = size;
  HEKLA_RETURN_IF_ERROR(group
                            .all_to_all({all.data(), DType::kUI8, static_cast<int64_t>(all.size())},
                                        ConstElements(own.data(), DType::kUI8, size), sizes,
                                        in_splits, timeout)
                            .wait());
  return is_root ? objects_in(all, sizes) : std::vector<std::string>();
}

Result<std::string> broadcast_object(ProcessGroup& group, std::string_view own, int root,
                                     Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_object_root(group, "broadcast_object", root));
  int64_t size = static_cast<int64_t>(own.size());
  HEKLA_RETURN_IF_ERROR(group.broadcast({&size, DType::kI64, 1}, root, timeout).wait());
  HEKLA_ASSIGN_OR_RETURN(std::string text, room_for({&size, 1}));
  if (group.rank() == root) text = own;
  HEKLA_RETURN_IF_ERROR(group.broadcast({text.data(), DType::kUI8, size}, root, timeout).wait());
  return text;
}

Result<std::string> scatter_object(ProcessGroup& group, const std::vector<std::string>& all,
                                   int root, Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_object_root(group, "scatter_object", root));
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
  HEKLA_ASSIGN_OR_RETURN(std::string text, room_for({&own, 1}));
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
