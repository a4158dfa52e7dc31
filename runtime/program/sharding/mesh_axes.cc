// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/mesh_axes.h"

#include <fmt/format.h>

#include <optional>

#include "runtime/program/sharding/cursor.h"

namespace hekla::sharding {
namespace {

class MeshAxesParser {
 public:
  explicit MeshAxesParser(std::string_view text) : cursor_(text) {}

  Result<MeshAxes> run() {
    MeshAxes result;
    HEKLA_RETURN_IF_ERROR(cursor_.expect("#stablehlo.replica_group_mesh_axes<"));
    HEKLA_RETURN_IF_ERROR(field("mesh"));
    if (cursor_.peek() == '@') {
      HEKLA_ASSIGN_OR_RETURN(result.mesh, cursor_.symbol());
    } else {
      HEKLA_ASSIGN_OR_RETURN(result.mesh, mesh());
    }
    HEKLA_RETURN_IF_ERROR(cursor_.expect(","));
    HEKLA_RETURN_IF_ERROR(field("axes"));
    HEKLA_RETURN_IF_ERROR(list([&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(AxisRef ref, axis_ref());
      result.axes.push_back(std::move(ref));
      return ok_status();
    }));
    HEKLA_RETURN_IF_ERROR(cursor_.expect(">"));
    if (!cursor_.at_end()) return cursor_.error("the end of the attribute");
    return result;
  }

  TextError error() const { return {cursor_.error_position(), cursor_.error_reason()}; }

 private:
  Status field(std::string_view name) {
    HEKLA_RETURN_IF_ERROR(cursor_.expect(name));
    return cursor_.expect("=");
  }

  template <typename Element>
  Status list(Element&& element) {
    HEKLA_RETURN_IF_ERROR(cursor_.expect("["));
    if (cursor_.accept("]")) return ok_status();
    do {
      HEKLA_RETURN_IF_ERROR(element());
    } while (cursor_.accept(","));
    return cursor_.expect("]");
  }

  Result<Mesh> mesh() {
    Mesh mesh;
    HEKLA_RETURN_IF_ERROR(cursor_.expect("#stablehlo.mesh<"));
    HEKLA_RETURN_IF_ERROR(field("axes"));
    HEKLA_RETURN_IF_ERROR(list([&]() -> Status {
      Axis axis;
      HEKLA_RETURN_IF_ERROR(cursor_.expect("#stablehlo.mesh_axis<"));
      HEKLA_RETURN_IF_ERROR(field("name"));
      HEKLA_ASSIGN_OR_RETURN(axis.name, cursor_.string());
      HEKLA_RETURN_IF_ERROR(cursor_.expect(","));
      HEKLA_RETURN_IF_ERROR(field("size"));
      HEKLA_ASSIGN_OR_RETURN(axis.size, cursor_.integer());
      mesh.axes.push_back(std::move(axis));
      return cursor_.expect(">");
    }));
    if (cursor_.accept(",")) {
      HEKLA_RETURN_IF_ERROR(field("device_ids"));
      HEKLA_ASSIGN_OR_RETURN(mesh.device_ids, device_ids());
    }
    HEKLA_RETURN_IF_ERROR(cursor_.expect(">"));
    return mesh;
  }

  // dense<[1, 0]> or dense<"0x..."> or one number, of type tensor<2xi64>.
  Result<std::vector<int64_t>> device_ids() {
    std::vector<int64_t> ids;
    std::optional<int64_t> splat;
    HEKLA_RETURN_IF_ERROR(cursor_.expect("dense<"));
    if (cursor_.peek() == '"') {
      const size_t start = cursor_.position();
      HEKLA_ASSIGN_OR_RETURN(std::string hex, cursor_.string());
      if (!read_hex(hex, ids)) return cursor_.error_at(start, "not the bytes of 64-bit integers");
    } else if (cursor_.peek() == '[') {
      HEKLA_RETURN_IF_ERROR(list([&]() -> Status {
        HEKLA_ASSIGN_OR_RETURN(int64_t id, cursor_.integer());
        ids.push_back(id);
        return ok_status();
      }));
    } else if (cursor_.peek() != '>') {
      HEKLA_ASSIGN_OR_RETURN(splat, cursor_.integer());
    }
    HEKLA_RETURN_IF_ERROR(cursor_.expect(">"));
    HEKLA_RETURN_IF_ERROR(cursor_.expect(":"));
    HEKLA_RETURN_IF_ERROR(cursor_.expect("tensor<"));
    const size_t start = cursor_.position();
    HEKLA_ASSIGN_OR_RETURN(int64_t count, cursor_.integer());
    HEKLA_RETURN_IF_ERROR(cursor_.expect("xi64>"));
    if (splat && count == 1) ids.push_back(*splat);
    if (static_cast<int64_t>(ids.size()) != count) {
      return cursor_.error_at(start, fmt::format("{} device ids for {}", ids.size(), count));
    }
    return ids;
  }

  static bool read_hex(std::string_view hex, std::vector<int64_t>& ids) {
    if (!hex.starts_with("0x") || hex.size() % 16 != 2) return false;
    for (size_t i = 2; i < hex.size(); i += 16) {
      uint64_t value = 0;
      for (size_t k = 0; k < 16; ++k) {
        const char c = hex[i + k];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        // The bytes come least significant first, their digits most significant first.
        value |= static_cast<uint64_t>(digit) << (8 * (k / 2) + (k % 2 == 0 ? 4 : 0));
      }
      ids.push_back(static_cast<int64_t>(value));
    }
    return true;
  }

  Result<AxisRef> axis_ref() {
    AxisRef ref;
    HEKLA_RETURN_IF_ERROR(cursor_.expect("#stablehlo.axis_ref<"));
    HEKLA_RETURN_IF_ERROR(field("name"));
    HEKLA_ASSIGN_OR_RETURN(ref.name, cursor_.string());
    if (cursor_.accept(",")) {
      HEKLA_RETURN_IF_ERROR(field("sub_axis_info"));
      SubAxis sub;
      HEKLA_RETURN_IF_ERROR(cursor_.expect("("));
      HEKLA_ASSIGN_OR_RETURN(sub.pre_size, cursor_.integer());
      HEKLA_RETURN_IF_ERROR(cursor_.expect(")"));
      HEKLA_ASSIGN_OR_RETURN(sub.size, cursor_.integer());
      ref.sub = sub;
    }
    HEKLA_RETURN_IF_ERROR(cursor_.expect(">"));
    return ref;
  }

  Cursor cursor_;
};

}  // namespace

std::string to_text(const MeshAxes& axes) {
  std::string text = "#stablehlo.replica_group_mesh_axes<mesh = ";
  if (const auto* name = std::get_if<std::string>(&axes.mesh)) {
    text += "@" + (is_bare_symbol(*name) ? *name : quoted(*name));
  } else {
    const Mesh& mesh = std::get<Mesh>(axes.mesh);
    text += "#stablehlo.mesh<axes = [";
    for (size_t i = 0; i < mesh.axes.size(); ++i) {
      text += fmt::format("{}#stablehlo.mesh_axis<name = {}, size = {}>", i > 0 ? ", " : "",
                          quoted(mesh.axes[i].name), mesh.axes[i].size);
    }
    text += "]";
    if (!mesh.device_ids.empty()) {
      text += fmt::format(", device_ids = dense<[{}]> : tensor<{}xi64>",
                          fmt::join(mesh.device_ids, ", "), mesh.device_ids.size());
    }
    text += ">";
  }
  text += ", axes = [";
  for (size_t i = 0; i < axes.axes.size(); ++i) {
    const AxisRef& ref = axes.axes[i];
    text += fmt::format("{}#stablehlo.axis_ref<name = {}", i > 0 ? ", " : "", quoted(ref.name));
    if (ref.sub) text += fmt::format(", sub_axis_info = ({}){}", ref.sub->pre_size, ref.sub->size);
    text += ">";
  }
  return text + "]>";
}

Result<MeshAxes> parse_mesh_axes(std::string_view text, TextError* error) {
  MeshAxesParser parser(text);
  Result<MeshAxes> result = parser.run();
  if (!result.ok() && error != nullptr) *error = parser.error();
  return result;
}

Result<std::vector<std::vector<int64_t>>> device_groups(const std::vector<AxisRef>& axes,
                                                        const Mesh& mesh) {
  // A dimension that is cut by the axes has the same conditions.
  TensorSharding cut;
  cut.mesh = mesh;
  cut.dimensions.push_back({axes, false, std::nullopt});
  HEKLA_RETURN_IF_ERROR(check(cut, mesh, 1));
  // Positions that agree in everything else come in one order for each index along the axes.
  std::vector<std::vector<int64_t>> by_index(static_cast<size_t>(part_count(axes, mesh)));
  for (int64_t position = 0; position < device_count(mesh); ++position) {
    by_index[static_cast<size_t>(part_index(axes, mesh, position))].push_back(
        mesh.device_ids.empty() ? position : mesh.device_ids[static_cast<size_t>(position)]);
  }
  std::vector<std::vector<int64_t>> groups(by_index.front().size());
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const auto& ids : by_index) groups[group].push_back(ids[group]);
  }
  return groups;
}

}  // namespace hekla::sharding
