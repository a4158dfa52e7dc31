// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/checkpoint/restore/cast.h"
#include "runtime/checkpoint/restore/populate.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/tiles.h"

namespace hekla::checkpoint {
namespace {

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", names[i]);
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

class Restorer {
 public:
  Restorer(const StepReader& step, const RestoreRequest& request)
      : step_(step), request_(request), infos_(step.index().tensors()) {}

  Result<RestoreReport> run(std::stop_token stop, const ShareReads& share) {
    const int64_t before = step_.bytes_read();
    HEKLA_RETURN_IF_ERROR(name_stored());
    if (request_.targets.empty()) {
      for (const int32_t tensor : order_) {
        HEKLA_RETURN_IF_ERROR(add(RestoreTarget{.name = names_[tensor]}, tensor));
      }
    } else {
      HEKLA_RETURN_IF_ERROR(match());
    }
    if (request_.strict) HEKLA_RETURN_IF_ERROR(check_all_fits());
    std::vector<std::byte*> arrays;
    for (RestoredTensor& tensor : report_.tensors) {
      for (HostArray& array : tensor.arrays) arrays.push_back(array.mutable_data());
    }
    {
      const Populate populate(in_order_of_files());
      HEKLA_RETURN_IF_ERROR(step_.read(wanted_, arrays, std::move(stop), share));
    }
    for (size_t i = 0; i < report_.tensors.size(); ++i) {
      for (HostArray& array : report_.tensors[i].arrays) {
        if (array.dtype() == dtypes_[i]) continue;
        Result<HostArray> typed = cast(array, dtypes_[i]);
        if (!typed.ok()) {
          return typed.status().with_context(fmt::format("tensor \"{}\"", report_.tensors[i].name));
        }
        array = std::move(*typed);
      }
    }
    report_.bytes_read = step_.bytes_read() - before;
    return std::move(report_);
  }

 private:
  // Tensors lie in files by their numbers.
  std::vector<std::span<std::byte>> in_order_of_files() {
    std::vector<std::pair<int32_t, std::span<std::byte>>> numbered;
    for (RestoredTensor& tensor : report_.tensors) {
      for (HostArray& array : tensor.arrays) {
        numbered.emplace_back(tensor.stored, std::span(array.mutable_data(),
                                                       static_cast<size_t>(array.size_bytes())));
      }
    }
    std::stable_sort(numbered.begin(), numbered.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::span<std::byte>> arrays;
    for (const auto& [number, array] : numbered) arrays.push_back(array);
    return arrays;
  }

  // The stored tensors that are looked at, under their new names.
  Status name_stored() {
    names_.resize(infos_.size());
    for (size_t t = 0; t < infos_.size(); ++t) {
      const std::string& stored = infos_[t].name;
      const bool is_wanted =
          request_.only.empty() ||
          std::any_of(request_.only.begin(), request_.only.end(),
                      [&stored](const std::string& one) { return matches(stored, one); });
      if (!is_wanted) continue;
      names_[t] = renamed(stored, request_.renames);
      const auto [known, is_new] = by_name_.emplace(names_[t], static_cast<int32_t>(t));
      if (!is_new) {
        return invalid_argument("\"{}\" and \"{}\" are both renamed to \"{}\"",
                                infos_[static_cast<size_t>(known->second)].name, stored, names_[t]);
      }
      order_.push_back(static_cast<int32_t>(t));
    }
    return ok_status();
  }

  Status match() {
    std::vector<bool> is_used(infos_.size());
    std::unordered_map<std::string_view, bool> seen;
    for (const RestoreTarget& target : request_.targets) {
      if (!seen.emplace(target.name, true).second) {
        return invalid_argument("\"{}\" is wanted twice; give one target several boxes",
                                target.name);
      }
      const auto found = by_name_.find(target.name);
      if (found == by_name_.end()) {
        report_.missing.push_back(target.name);
        continue;
      }
      is_used[static_cast<size_t>(found->second)] = true;
      HEKLA_RETURN_IF_ERROR(add(target, found->second));
    }
    for (const int32_t tensor : order_) {
      if (!is_used[static_cast<size_t>(tensor)]) report_.unexpected.push_back(names_[tensor]);
    }
    return ok_status();
  }

  Status add(const RestoreTarget& target, int32_t tensor) {
    const TensorInfo& info = infos_[static_cast<size_t>(tensor)];
    const DType dtype = target.dtype.value_or(info.dtype);
    if (target.shape.has_value() && *target.shape != info.shape) {
      report_.mismatched.push_back(fmt::format("\"{}\" is wanted as [{}] and stored as {}",
                                               target.name, fmt::join(*target.shape, ","),
                                               shape_string(info.dtype, info.shape)));
      return ok_status();
    }
    if (!can_cast(info.dtype, dtype)) {
      report_.mismatched.push_back(
          fmt::format("\"{}\" is wanted as {} and stored as {}; only floats are cast to floats, "
                      "integers to anything",
                      target.name, dtype_name(dtype), dtype_name(info.dtype)));
      return ok_status();
    }
    std::vector<TargetBox> boxes = target.boxes;
    if (target.nothing_here && !boxes.empty()) {
      return invalid_argument("\"{}\" has boxes and nothing_here", target.name);
    }
    if (boxes.empty() && !target.nothing_here) boxes.push_back({whole_box(info.shape), {}});
    RestoredTensor restored{target.name, tensor, {}, {}};
    for (TargetBox& box : boxes) {
      if (const Status status = check_box(info.shape, box.box); !status.ok()) {
        return invalid_argument("\"{}\" ({}): {}", target.name,
                                shape_string(info.dtype, info.shape), status.message());
      }
      const bool is_padded = !box.dims.empty() && box.dims != box.box.size;
      Dims dims = box.dims.empty() ? box.box.size : box.dims;
      Result<HostArray> array = allocate_array(info.dtype, dims, is_padded);
      if (!array.ok()) return array.status().with_context(fmt::format("\"{}\"", target.name));
      report_.bytes_wanted += stored_bytes(info.dtype, box_elements(box.box));
      restored.boxes.push_back(box.box);
      restored.arrays.push_back(std::move(*array));
      wanted_.push_back({tensor, std::move(box.box), std::move(dims)});
    }
    report_.tensors.push_back(std::move(restored));
    dtypes_.push_back(dtype);
    return ok_status();
  }

  Status check_all_fits() const {
    if (report_.missing.empty() && report_.unexpected.empty() && report_.mismatched.empty()) {
      return ok_status();
    }
    std::string text;
    const auto tell = [&text](std::string_view what, const std::vector<std::string>& names) {
      if (names.empty()) return;
      text +=
          fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", names.size(), what, listed(names));
    };
    tell("missing in the checkpoint", report_.missing);
    tell("in the checkpoint and not asked for", report_.unexpected);
    tell("that do not fit", report_.mismatched);
    return failed_precondition(
        "{} does not hold what is wanted: {}. Rename, choose with `only`, or restore without "
        "`strict`",
        step_.folder(), text);
  }

  const StepReader& step_;
  const RestoreRequest& request_;
  const std::vector<TensorInfo>& infos_;
  std::vector<std::string> names_;  // of each stored tensor, after renaming
  std::vector<int32_t> order_;      // the stored tensors that are looked at
  std::unordered_map<std::string_view, int32_t> by_name_;
  std::vector<Wanted> wanted_;
  std::vector<DType> dtypes_;  // wanted, of report_.tensors
  RestoreReport report_;
};

}  // namespace

std::string renamed(std::string_view name, const std::vector<Rename>& renames) {
  for (const Rename& rename : renames) {
    if (name.substr(0, rename.from.size()) != rename.from) continue;
    std::string_view rest = name.substr(rename.from.size());
    const bool is_level = rest.empty() || rest[0] == '/' || rename.from.empty();
    if (!is_level) continue;
    if (rename.from.empty()) {
      return rename.to.empty() ? std::string(name) : fmt::format("{}/{}", rename.to, name);
    }
    if (rename.to.empty() && !rest.empty()) rest.remove_prefix(1);
    return fmt::format("{}{}", rename.to, rest);
  }
  return std::string(name);
}

Result<RestoreReport> restore(const StepReader& step, const RestoreRequest& request,
                              std::stop_token stop, const ShareReads& share) {
  return Restorer(step, request).run(std::move(stop), share);
}

}  // namespace hekla::checkpoint
