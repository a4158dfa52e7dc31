// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <functional>
#include <map>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/format/meshes.h"
#include "runtime/checkpoint/sharding/box.h"
#include "tools/ckpt/progress.h"

namespace hekla::tools {

using checkpoint::Piece;
using checkpoint::TensorInfo;
using nlohmann::json;

namespace {

// Pieces by size: the number of those of 2^k bytes and more, below 2^(k+1).
std::map<int, int64_t> histogram(const checkpoint::StepIndex& index) {
  std::map<int, int64_t> counts;
  for (const Piece& piece : index.pieces) {
    ++counts[std::bit_width(static_cast<uint64_t>(piece.bytes)) - 1];
  }
  return counts;
}

std::string power_text(int power) {
  if (power < 0) return "0";
  constexpr const char* kUnits[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  return fmt::format("{} {}B", int64_t{1} << (power % 10), kUnits[power / 10]);
}

// How one dimension of a tensor is cut.
struct Cut {
  std::vector<sharding::Axis> axes;  // the first is the major one
  int64_t parts = 1;
  int64_t part_size = 1;

  // "model=1,expert=0": where the devices stand that hold part number `part`.
  std::string label(int64_t part) const {
    std::string text;
    for (size_t a = axes.size(); a-- > 0; part /= axes[a].size) {
      text = fmt::format("{}={}{}{}", axes[a].name, part % axes[a].size, text.empty() ? "" : ",",
                         text);
    }
    return text;
  }
};

// By dimension; empty where the spec is unknown or not for this tensor.
std::vector<Cut> cuts_of(const TensorInfo& tensor) {
  const auto sharding = checkpoint::parse_sharding(tensor.spec);
  if (!sharding.ok() || sharding->spec.dims.size() > tensor.shape.size()) return {};
  std::vector<Cut> cuts(tensor.shape.size());
  for (size_t d = 0; d < cuts.size(); ++d) {
    if (d < sharding->spec.dims.size()) {
      for (const std::string& name : sharding->spec.dims[d]) {
        for (const auto& axis : sharding->mesh.axes) {
          if (axis.name != name) continue;
          cuts[d].axes.push_back(axis);
          cuts[d].parts *= axis.size;
        }
      }
    }
    cuts[d].part_size = (tensor.shape[d] + cuts[d].parts - 1) / cuts[d].parts;
  }
  return cuts;
}

// "dimension 0 by data (2 parts); copies along model" or nothing.
std::string cuts_text(const TensorInfo& tensor, const std::vector<Cut>& cuts) {
  const auto sharding = checkpoint::parse_sharding(tensor.spec);
  if (!sharding.ok() || cuts.size() != tensor.shape.size()) return "";
  std::vector<std::string> words, copies;
  for (size_t d = 0; d < cuts.size(); ++d) {
    if (cuts[d].axes.empty()) continue;
    std::vector<std::string> names;
    for (const auto& axis : cuts[d].axes) names.push_back(axis.name);
    words.push_back(
        fmt::format("dimension {} by {} ({} parts)", d, fmt::join(names, ", "), cuts[d].parts));
  }
  for (const auto& axis : sharding->mesh.axes) {
    bool is_used = false;
    for (const Cut& cut : cuts) {
      for (const auto& used : cut.axes) is_used = is_used || used.name == axis.name;
    }
    if (!is_used) copies.push_back(axis.name);
  }
  if (!copies.empty()) words.push_back(fmt::format("copies along {}", fmt::join(copies, ", ")));
  return fmt::format("      {}\n", fmt::join(words, "; "));
}

// Calls label(cell, part) for the first of `cells` cells that shows a part.
void for_each_part(const Cut& cut, int64_t size, int64_t cells,
                   const std::function<void(int64_t, int64_t)>& label) {
  for (int64_t cell = 0, last = -1; !cut.axes.empty() && cell < cells; ++cell) {
    const int64_t part = cell * size / cells / cut.part_size;
    if (part != last) label(cell, part);
    last = part;
  }
}

// One letter a file, A to Z and so on, for each cell of a picture of at most 48 by 12, with the
// places along the mesh's axes above and beside it as far as there is room.
std::string picture(const TensorInfo& tensor, std::span<const Piece> pieces,
                    const std::vector<Cut>& cuts) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bool is_matrix = tensor.shape.size() == 2;
  const int64_t rows = is_matrix ? std::min<int64_t>(tensor.shape[0], 12) : 1;
  const int64_t columns = std::min<int64_t>(tensor.shape.back(), 48);
  std::vector<std::string> sides(static_cast<size_t>(rows));
  std::string above;
  size_t width = 0;
  if (!cuts.empty()) {
    for_each_part(cuts.back(), tensor.shape.back(), columns, [&](int64_t cell, int64_t part) {
      const auto at = static_cast<size_t>(cell);
      if (!above.empty() && above.size() >= at) return;  // the last one takes its place
      above.resize(at, ' ');
      above += cuts.back().label(part);
    });
    if (is_matrix) {
      for_each_part(cuts[0], tensor.shape[0], rows, [&](int64_t cell, int64_t part) {
        sides[static_cast<size_t>(cell)] = cuts[0].label(part);
        width = std::max(width, sides[static_cast<size_t>(cell)].size());
      });
    }
  }
  if (width > 0) ++width;
  std::string out = above.empty() ? "" : fmt::format("      {:{}} {}\n", "", width, above);
  for (int64_t r = 0; r < rows; ++r) {
    out += fmt::format("      {:{}}|", sides[static_cast<size_t>(r)], width);
    for (int64_t c = 0; c < columns; ++c) {
      Dims at = {c * tensor.shape.back() / columns};
      if (is_matrix) at.insert(at.begin(), r * tensor.shape[0] / rows);
      char cell = '?';
      for (const Piece& piece : pieces) {
        bool inside = true;
        for (size_t d = 0; d < at.size(); ++d) {
          inside = inside && at[d] >= piece.box.start[d] &&
                   at[d] < piece.box.start[d] + piece.box.size[d];
        }
        if (inside) cell = kLetters[static_cast<size_t>(piece.file) % kLetters.size()];
      }
      out += cell;
    }
    out += "|\n";
  }
  return out;
}

}  // namespace

json inspect_json(const checkpoint::StepReader& step, const checkpoint::StepIndex& index,
                  const std::regex& tensors) {
  json list = json::array();
  for (size_t i = 0; i < index.tensors.size(); ++i) {
    const TensorInfo& tensor = index.tensors[i];
    if (!std::regex_search(tensor.name, tensors)) continue;
    json pieces = json::array();
    for (const Piece& piece : index.pieces_of(static_cast<int32_t>(i))) {
      pieces.push_back({{"start", piece.box.start},
                        {"size", piece.box.size},
                        {"file", index.files[static_cast<size_t>(piece.file)].path},
                        {"writer", piece.writer},
                        {"offset", piece.offset},
                        {"bytes", piece.bytes},
                        {"bytes_in_file", checkpoint::bytes_in_file(piece)}});
    }
    list.push_back(
        {{"name", tensor.name},
         {"dtype", dtype_name(tensor.dtype)},
         {"shape", tensor.shape},
         {"spec", tensor.spec},
         {"mesh", index.mesh_of[i] == checkpoint::kNoMesh ? json() : json(index.mesh_of[i])},
         {"digest", index.tensor_digest(static_cast<int32_t>(i))},
         {"pieces", pieces}});
  }
  json sizes = json::array();
  for (const auto& [power, count] : histogram(index)) {
    sizes.push_back({{"from_bytes", power < 0 ? 0 : int64_t{1} << power}, {"pieces", count}});
  }
  json meshes = json::array();
  for (const checkpoint::Mesh& mesh : index.meshes) {
    json axes = json::array();
    for (const auto& axis : mesh.axes) axes.push_back({{"name", axis.name}, {"size", axis.size}});
    meshes.push_back({{"axes", axes},
                      {"devices", mesh.device_ids.empty() ? json() : json(mesh.device_ids)},
                      {"granules", mesh.granules.empty() ? json() : json(mesh.granules)}});
  }
  const auto& commit = step.commit();
  json links = json::object();
  for (const auto& file : commit.files) {
    if (file.origin) links[file.path] = file.origin->step;
  }
  return {{"folder", step.folder()},
          {"step", commit.step},
          {"run", commit.run_uuid},
          {"time", commit.wall_time},
          {"reason", commit.reason},
          {"world_size", commit.world_size},
          {"mesh", commit.mesh},
          {"bytes", commit.logical_bytes},
          {"files", commit.files.size()},
          {"links", links},
          {"metrics", commit.metrics},
          {"tensors", list},
          {"meshes", meshes},
          {"piece_sizes", sizes}};
}

std::string inspect_text(const checkpoint::StepReader& step, const checkpoint::StepIndex& index,
                         const std::regex& tensors, bool sharding) {
  const auto& commit = step.commit();
  std::string out = fmt::format(
      "{}: step {}, {} tensors, {} in {} files, written by {} ranks ({}, {})\n", step.folder(),
      commit.step, commit.tensors, size_text(commit.logical_bytes), commit.files.size(),
      commit.world_size, commit.reason.empty() ? "no reason" : commit.reason, commit.wall_time);
  for (const auto& [name, value] : commit.metrics) out += fmt::format("  {} = {}\n", name, value);
  for (const auto& file : commit.files) {
    if (!file.origin) continue;
    out += fmt::format("  {} is a link to what step {} wrote\n", file.path, file.origin->step);
  }
  for (size_t i = 0; i < index.meshes.size(); ++i) {
    const checkpoint::Mesh& mesh = index.meshes[i];
    out += fmt::format("  mesh {}: {}, {}", i, checkpoint::mesh_text(mesh),
                       mesh.device_ids.empty()
                           ? "devices in order"
                           : "devices " + checkpoint::numbers_text(mesh.device_ids));
    if (!mesh.granules.empty()) {
      out += ", granules " + checkpoint::numbers_text(mesh.granules);
    }
    out += '\n';
  }
  for (size_t i = 0; i < index.tensors.size(); ++i) {
    const TensorInfo& tensor = index.tensors[i];
    if (!std::regex_search(tensor.name, tensors)) continue;
    const auto pieces = index.pieces_of(static_cast<int32_t>(i));
    out += fmt::format("  {}  {}  {} piece{}{}{}\n", tensor.name,
                       shape_string(tensor.dtype, tensor.shape), pieces.size(),
                       pieces.size() == 1 ? "" : "s", tensor.spec.empty() ? "" : "  ", tensor.spec);
    if (!sharding) continue;
    for (const Piece& piece : pieces) {
      out += fmt::format("      {} rank {} {}\n", checkpoint::box_text(piece.box), piece.writer,
                         index.files[static_cast<size_t>(piece.file)].path);
    }
    const std::vector<Cut> cuts = cuts_of(tensor);
    out += cuts_text(tensor, cuts);
    const size_t rank = tensor.shape.size();
    if ((rank == 1 || rank == 2) && element_count(tensor.shape) > 0) {
      out += picture(tensor, pieces, cuts);
    }
  }
  out += "pieces by size:\n";
  for (const auto& [power, count] : histogram(index)) {
    out += fmt::format("  {:>8} and more: {}\n", power_text(power), count);
  }
  return out;
}

namespace {

// "2026-11-21T18:05:00Z (3 h ago)".
std::string age_text(const json& step) {
  const auto time = step["time"].get<std::string>();
  if (!step["age_seconds"].is_number()) return time;
  const int64_t seconds = std::max<int64_t>(0, step["age_seconds"].get<int64_t>());
  if (seconds < 120) return fmt::format("{} ({} s ago)", time, seconds);
  if (seconds < 2 * 3600) return fmt::format("{} ({} min ago)", time, seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{} ({} h ago)", time, seconds / 3600);
  return fmt::format("{} ({} days ago)", time, seconds / 86400);
}

}  // namespace

Result<json> list_json(Io& io, const std::string& root) {
  HEKLA_ASSIGN_OR_RETURN(const auto entries, checkpoint::list_steps(io, root));
  json steps = json::array();
  for (const checkpoint::StepEntry& entry : entries) {
    json step = {{"step", entry.step},
                 {"path", entry.path},
                 {"valid", entry.status.ok()},
                 {"pinned", entry.is_pinned}};
    if (entry.status.ok()) {
      int64_t bytes = 0;
      for (const auto& file : entry.record.files) bytes += file.size;
      const Result<bool> leased = checkpoint::is_being_read(io, entry.path);
      const Result<int64_t> time = checkpoint::parse_wall_time(entry.record.wall_time);
      step.update({{"tensors", entry.record.tensors},
                   {"bytes", bytes},
                   {"time", entry.record.wall_time},
                   {"age_seconds", time.ok() ? json(std::time(nullptr) - *time) : json()},
                   {"leased", leased.ok() ? json(*leased) : json()},
                   {"reason", entry.record.reason},
                   {"metrics", entry.record.metrics}});
    } else {
      step["error"] = entry.status.to_string();
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string list_text(const json& steps) {
  std::string out;
  for (const json& step : steps) {
    if (!step["valid"].get<bool>()) {
      out += fmt::format("{}  not valid: {}\n", step["path"].get<std::string>(),
                         step["error"].get<std::string>());
      continue;
    }
    out += fmt::format("step {}  {}  {} tensors  {}  {}{}{}", step["step"].get<int64_t>(),
                       size_text(step["bytes"].get<int64_t>()), step["tensors"].get<int64_t>(),
                       age_text(step), step["reason"].get<std::string>(),
                       step["pinned"].get<bool>() ? "  pinned" : "",
                       step["leased"] == json(true) ? "  leased" : "");
    for (const auto& [name, value] : step["metrics"].items()) {
      out += fmt::format("  {}={}", name, value.dump());
    }
    out += "\n";
  }
  return out.empty() ? "no steps\n" : out;
}

}  // namespace hekla::tools
