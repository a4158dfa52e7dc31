// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/text.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/program/sharding/cursor.h"

namespace hekla::sharding {
namespace {

// Factors are called i, j, ... z, then z_1, z_2 and so on.
constexpr int64_t kFactorLetters = 'z' - 'i' + 1;

std::string factor_name(int64_t factor) {
  if (factor < kFactorLetters) return std::string(1, static_cast<char>('i' + factor));
  return fmt::format("z_{}", factor - kFactorLetters + 1);
}

template <typename List, typename Write>
std::string join(const List& list, Write&& write) {
  std::string text;
  bool is_first = true;
  for (const auto& element : list) {
    if (!is_first) text += ", ";
    is_first = false;
    text += write(element);
  }
  return text;
}

std::string refs_text(const std::vector<AxisRef>& axes) {
  return "{" + join(axes, [](const AxisRef& ref) { return to_text(ref); }) + "}";
}

std::string dimension_text(const ShardingRule::Dimension& dimension) {
  std::string text;
  for (int64_t factor : dimension) text += factor_name(factor);
  return text;
}

std::string tensor_text(const ShardingRule::Tensor& tensor) {
  return "[" + join(tensor, dimension_text) + "]";
}

std::string axis_text(const Axis& axis) {
  return fmt::format("{}={}", quoted(axis.name), axis.size);
}

std::string sub_axis_text(const SubAxis& sub) {
  return fmt::format("({}){}", sub.pre_size, sub.size);
}

// What stands in the angle brackets of #sdy.op_sharding_rule.
std::string rule_text(const ShardingRule& rule) {
  std::string sizes;
  for (size_t i = 0; i < rule.factor_sizes.size(); ++i) {
    sizes += fmt::format("{}{}={}", i > 0 ? ", " : "", factor_name(static_cast<int64_t>(i)),
                         rule.factor_sizes[i]);
  }
  std::string text = fmt::format("({})->({}) {{{}}}", join(rule.operands, tensor_text),
                                 join(rule.results, tensor_text), sizes);
  const std::pair<std::string_view, const std::vector<int64_t>*> kinds[] = {
      {"reduction", &rule.reduction},
      {"need_replication", &rule.need_replication},
      {"permutation", &rule.permutation},
      {"blocked_propagation", &rule.blocked_propagation}};
  for (const auto& [name, factors] : kinds) {
    if (factors->empty()) continue;
    text += fmt::format(" {}={{{}}}", name, join(*factors, factor_name));
  }
  return text + (rule.is_custom ? ", custom" : "");
}

std::string all_to_all_text(const AllToAll& value) {
  return fmt::format("{}: {}->{}", refs_text(value.axes), value.source_dimension,
                     value.target_dimension);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : at_(text) {}

  // `read` and nothing behind it.
  template <typename T>
  Result<T> whole(Result<T> (Reader::*read)(), TextError* error) {
    Result<T> value = (this->*read)();
    if (value.ok() && !at_.at_end()) value = at_.error("the end");
    if (!value.ok() && error != nullptr) *error = {at_.error_position(), at_.error_reason()};
    return value;
  }

  Result<Mesh> mesh() {
    Mesh mesh;
    HEKLA_RETURN_IF_ERROR(at_.expect("<"));
    HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(Axis next, axis());
      mesh.axes.push_back(std::move(next));
      return ok_status();
    }));
    if (at_.accept(",")) {
      HEKLA_RETURN_IF_ERROR(at_.expect("device_ids"));
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
        HEKLA_ASSIGN_OR_RETURN(int64_t id, at_.integer());
        mesh.device_ids.push_back(id);
        return ok_status();
      }));
    }
    HEKLA_RETURN_IF_ERROR(at_.expect(">"));
    return mesh;
  }

  Result<TensorSharding> sharding() {
    TensorSharding sharding;
    HEKLA_RETURN_IF_ERROR(at_.expect("<"));
    if (at_.peek() == '@') {
      HEKLA_ASSIGN_OR_RETURN(sharding.mesh, at_.symbol());
    } else {
      if (!at_.accept("mesh")) return at_.error("@name of a mesh or mesh<...>");
      HEKLA_ASSIGN_OR_RETURN(sharding.mesh, mesh());
    }
    HEKLA_RETURN_IF_ERROR(at_.expect(","));
    HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(DimensionSharding next, dimension());
      sharding.dimensions.push_back(std::move(next));
      return ok_status();
    }));
    bool has_replicated = false;
    bool has_unreduced = false;
    while (at_.accept(",")) {
      const size_t start = at_.position();
      const std::string_view key = at_.word();
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      if (key == "replicated" && !has_replicated) {
        has_replicated = true;
        HEKLA_ASSIGN_OR_RETURN(sharding.replicated, refs());
      } else if (key == "unreduced" && !has_unreduced) {
        has_unreduced = true;
        HEKLA_ASSIGN_OR_RETURN(sharding.unreduced, refs());
      } else if (key == "reduction_kind" && !sharding.reduction_kind) {
        HEKLA_ASSIGN_OR_RETURN(int64_t kind, at_.integer());
        sharding.reduction_kind = kind;
      } else {
        return at_.error_at(start, "expected replicated or unreduced axes, each once");
      }
    }
    HEKLA_RETURN_IF_ERROR(at_.expect(">"));
    return sharding;
  }

  Result<ShardingList> sharding_list() {
    ShardingList result;
    HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(TensorSharding next, sharding());
      result.values.push_back(std::move(next));
      return ok_status();
    }));
    return result;
  }

  Result<ManualAxes> manual_axes() {
    ManualAxes axes;
    HEKLA_RETURN_IF_ERROR(list("{", "}", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(std::string name, at_.string());
      axes.names.push_back(std::move(name));
      return ok_status();
    }));
    return axes;
  }

  Result<Attribute> attribute() {
    HEKLA_RETURN_IF_ERROR(at_.expect("#sdy"));
    if (at_.accept(".")) {
      const size_t start = at_.position();
      const std::string_view kind = at_.word();
      if (kind == "mesh") return as_attribute(mesh());
      if (kind == "sharding") return as_attribute(sharding());
      if (kind == "sharding_per_value") return in_angles(&Reader::sharding_list);
      if (kind == "op_sharding_rule") return in_angles(&Reader::rule);
      return at_.error_at(start, fmt::format("there is no attribute #sdy.{}", kind));
    }
    HEKLA_RETURN_IF_ERROR(at_.expect("<"));
    const size_t start = at_.position();
    const std::string_view kind = at_.word();
    Result<Attribute> value = Attribute();
    if (kind == "manual_axes") {
      value = as_attribute(manual_axes());
    } else if (kind == "axis_ref_list") {
      value = as_attribute(ref_list());
    } else if (kind == "list_of_axis_ref_lists") {
      value = as_attribute(ref_lists());
    } else if (kind == "all_to_all_param") {
      value = as_attribute(all_to_all());
    } else if (kind == "all_to_all_param_list") {
      value = as_attribute(all_to_all_list());
    } else if (kind == "mesh_axis") {
      value = as_attribute(axis());
    } else if (kind == "sub_axis_info") {
      value = as_attribute(sub_axis());
    } else if (kind == "axis_ref") {
      value = as_attribute(ref());
    } else if (kind == "dimension_sharding") {
      value = as_attribute(dimension());
    } else if (kind == "dim_mapping") {
      value = as_attribute(mapping());
    } else if (kind == "tensor_mapping") {
      value = as_attribute(tensor());
    } else {
      return at_.error_at(start, fmt::format("there is no attribute #sdy<{}>", kind));
    }
    HEKLA_RETURN_IF_ERROR(value.status());
    HEKLA_RETURN_IF_ERROR(at_.expect(">"));
    return value;
  }

 private:
  template <typename Read>
  Status list(std::string_view open, std::string_view close, Read&& read) {
    HEKLA_RETURN_IF_ERROR(at_.expect(open));
    if (at_.accept(close)) return ok_status();
    do {
      HEKLA_RETURN_IF_ERROR(read());
    } while (at_.accept(","));
    return at_.expect(close);
  }

  template <typename T>
  static Result<Attribute> as_attribute(Result<T> value) {
    if (!value.ok()) return value.status();
    return Attribute(std::move(value).value());
  }

  template <typename T>
  Result<Attribute> in_angles(Result<T> (Reader::*read)()) {
    HEKLA_RETURN_IF_ERROR(at_.expect("<"));
    HEKLA_ASSIGN_OR_RETURN(T value, (this->*read)());
    HEKLA_RETURN_IF_ERROR(at_.expect(">"));
    return Attribute(std::move(value));
  }

  Result<Axis> axis() {
    Axis axis;
    HEKLA_ASSIGN_OR_RETURN(axis.name, at_.string());
    HEKLA_RETURN_IF_ERROR(at_.expect("="));
    HEKLA_ASSIGN_OR_RETURN(axis.size, at_.integer());
    return axis;
  }

  Result<SubAxis> sub_axis() {
    SubAxis sub;
    HEKLA_RETURN_IF_ERROR(at_.expect("("));
    HEKLA_ASSIGN_OR_RETURN(sub.pre_size, at_.integer());
    HEKLA_RETURN_IF_ERROR(at_.expect(")"));
    HEKLA_ASSIGN_OR_RETURN(sub.size, at_.integer());
    return sub;
  }

  Result<AxisRef> ref() {
    AxisRef ref;
    HEKLA_ASSIGN_OR_RETURN(ref.name, at_.string());
    if (!at_.accept(":")) return ref;
    HEKLA_ASSIGN_OR_RETURN(ref.sub, sub_axis());
    return ref;
  }

  Result<std::vector<AxisRef>> refs() {
    std::vector<AxisRef> result;
    HEKLA_RETURN_IF_ERROR(list("{", "}", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(AxisRef next, ref());
      result.push_back(std::move(next));
      return ok_status();
    }));
    return result;
  }

  // {"x", "y", ?}p1: the question mark is the last.
  Result<DimensionSharding> dimension() {
    DimensionSharding dimension;
    HEKLA_RETURN_IF_ERROR(at_.expect("{"));
    while (at_.peek() != '}') {
      const bool is_first = dimension.axes.empty() && !dimension.is_open;
      if (dimension.is_open) return at_.error("'}' behind '?'");
      if (!is_first) HEKLA_RETURN_IF_ERROR(at_.expect(","));
      if (at_.accept("?")) {
        dimension.is_open = true;
      } else {
        HEKLA_ASSIGN_OR_RETURN(AxisRef next, ref());
        dimension.axes.push_back(std::move(next));
      }
    }
    HEKLA_RETURN_IF_ERROR(at_.expect("}"));
    if (at_.accept("p")) {
      HEKLA_ASSIGN_OR_RETURN(int64_t priority, at_.integer());
      dimension.priority = priority;
    }
    return dimension;
  }

  Result<int64_t> factor() {
    const size_t start = at_.position();
    const char c = at_.peek();
    if (c < 'i' || c > 'z') return at_.error("a factor, i to z");
    at_.accept(std::string_view(&c, 1));
    if (c != 'z' || !at_.accept("_")) return c - 'i';
    HEKLA_ASSIGN_OR_RETURN(int64_t number, at_.integer());
    if (number < 1 || number > kMaxFactors) {
      return at_.error_at(start, fmt::format("there is no factor z_{}", number));
    }
    return kFactorLetters - 1 + number;
  }

  Result<ShardingRule::Dimension> mapping() {
    ShardingRule::Dimension dimension;
    do {
      HEKLA_ASSIGN_OR_RETURN(int64_t next, factor());
      dimension.push_back(next);
    } while (at_.peek() >= 'i' && at_.peek() <= 'z');
    return dimension;
  }

  Result<ShardingRule::Tensor> tensor() {
    ShardingRule::Tensor tensor;
    HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(ShardingRule::Dimension next, mapping());
      tensor.push_back(std::move(next));
      return ok_status();
    }));
    return tensor;
  }

  Result<std::vector<ShardingRule::Tensor>> tensors() {
    std::vector<ShardingRule::Tensor> result;
    HEKLA_RETURN_IF_ERROR(list("(", ")", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(ShardingRule::Tensor next, tensor());
      result.push_back(std::move(next));
      return ok_status();
    }));
    return result;
  }

  Result<ShardingRule> rule() {
    ShardingRule rule;
    HEKLA_ASSIGN_OR_RETURN(rule.operands, tensors());
    HEKLA_RETURN_IF_ERROR(at_.expect("->"));
    HEKLA_ASSIGN_OR_RETURN(rule.results, tensors());
    HEKLA_RETURN_IF_ERROR(list("{", "}", [&]() -> Status {
      const size_t start = at_.position();
      HEKLA_ASSIGN_OR_RETURN(int64_t number, factor());
      if (number != static_cast<int64_t>(rule.factor_sizes.size())) {
        return at_.error_at(start, "sizes of factors are listed in order: i, j, ...");
      }
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      HEKLA_ASSIGN_OR_RETURN(int64_t size, at_.integer());
      rule.factor_sizes.push_back(size);
      return ok_status();
    }));
    const std::pair<std::string_view, std::vector<int64_t>*> kinds[] = {
        {"reduction", &rule.reduction},
        {"need_replication", &rule.need_replication},
        {"permutation", &rule.permutation},
        {"blocked_propagation", &rule.blocked_propagation}};
    for (const auto& [name, factors] : kinds) {
      if (!at_.accept(name)) continue;
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      HEKLA_RETURN_IF_ERROR(list("{", "}", [&, into = factors]() -> Status {
        HEKLA_ASSIGN_OR_RETURN(int64_t next, factor());
        into->push_back(next);
        return ok_status();
      }));
    }
    if (at_.accept(",")) {
      HEKLA_RETURN_IF_ERROR(at_.expect("custom"));
      rule.is_custom = true;
    }
    return rule;
  }

  Result<AxisRefList> ref_list() {
    AxisRefList result;
    HEKLA_ASSIGN_OR_RETURN(result.axes, refs());
    return result;
  }

  Result<AxisRefLists> ref_lists() {
    AxisRefLists result;
    HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(AxisRefList next, ref_list());
      result.lists.push_back(std::move(next));
      return ok_status();
    }));
    return result;
  }

  Result<AllToAll> all_to_all() {
    AllToAll result;
    HEKLA_ASSIGN_OR_RETURN(result.axes, refs());
    HEKLA_RETURN_IF_ERROR(at_.expect(":"));
    HEKLA_ASSIGN_OR_RETURN(result.source_dimension, at_.integer());
    HEKLA_RETURN_IF_ERROR(at_.expect("->"));
    HEKLA_ASSIGN_OR_RETURN(result.target_dimension, at_.integer());
    return result;
  }

  Result<AllToAllList> all_to_all_list() {
    AllToAllList result;
    HEKLA_RETURN_IF_ERROR(list("[", "]", [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(AllToAll next, all_to_all());
      result.values.push_back(std::move(next));
      return ok_status();
    }));
    return result;
  }

  // Numbers of factors stay in reach of a rule's list of sizes.
  static constexpr int64_t kMaxFactors = int64_t{1} << 31;

  Cursor at_;
};

struct AttributePrinter {
  std::string operator()(const Mesh& v) const { return "#sdy.mesh" + to_text(v); }
  std::string operator()(const TensorSharding& v) const { return "#sdy.sharding" + to_text(v); }
  std::string operator()(const ShardingList& v) const {
    return fmt::format("#sdy.sharding_per_value<{}>", to_text(v));
  }
  std::string operator()(const ManualAxes& v) const {
    return fmt::format("#sdy<manual_axes{}>", to_text(v));
  }
  std::string operator()(const ShardingRule& v) const {
    return fmt::format("#sdy.op_sharding_rule<{}>", rule_text(v));
  }
  std::string operator()(const AxisRefList& v) const {
    return fmt::format("#sdy<axis_ref_list{}>", refs_text(v.axes));
  }
  std::string operator()(const AxisRefLists& v) const {
    return fmt::format("#sdy<list_of_axis_ref_lists[{}]>",
                       join(v.lists, [](const AxisRefList& list) { return refs_text(list.axes); }));
  }
  std::string operator()(const AllToAll& v) const {
    return fmt::format("#sdy<all_to_all_param{}>", all_to_all_text(v));
  }
  std::string operator()(const AllToAllList& v) const {
    return fmt::format("#sdy<all_to_all_param_list[{}]>", join(v.values, all_to_all_text));
  }
  std::string operator()(const Axis& v) const {
    return fmt::format("#sdy<mesh_axis{}>", axis_text(v));
  }
  std::string operator()(const SubAxis& v) const {
    return fmt::format("#sdy<sub_axis_info{}>", sub_axis_text(v));
  }
  std::string operator()(const AxisRef& v) const {
    return fmt::format("#sdy<axis_ref{}>", to_text(v));
  }
  std::string operator()(const DimensionSharding& v) const {
    return fmt::format("#sdy<dimension_sharding{}>", to_text(v));
  }
  // MLIR prints no blank, and reads nothing.
  std::string operator()(const ShardingRule::Dimension& v) const {
    return fmt::format("#sdy<dim_mapping {}>", dimension_text(v));
  }
  std::string operator()(const ShardingRule::Tensor& v) const {
    return fmt::format("#sdy<tensor_mapping{}>", tensor_text(v));
  }
};

}  // namespace

bool is_bare_symbol(std::string_view name) {
  if (name.empty()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool is_other = (c >= '0' && c <= '9') || c == '.' || c == '$';
    if (!is_letter && (i == 0 || !is_other)) return false;
  }
  return true;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string to_text(const Mesh& mesh) {
  std::string text = "<[" + join(mesh.axes, axis_text) + "]";
  if (!mesh.device_ids.empty()) {
    text += fmt::format(", device_ids=[{}]", fmt::join(mesh.device_ids, ", "));
  }
  return text + ">";
}

std::string to_text(const AxisRef& ref) {
  if (!ref.sub) return quoted(ref.name);
  return quoted(ref.name) + ":" + sub_axis_text(*ref.sub);
}

std::string to_text(const DimensionSharding& dimension) {
  std::string text = "{" + join(dimension.axes, [](const AxisRef& ref) { return to_text(ref); });
  if (dimension.is_open) text += dimension.axes.empty() ? "?" : ", ?";
  text += "}";
  if (dimension.priority) text += fmt::format("p{}", *dimension.priority);
  return text;
}

std::string to_text(const TensorSharding& sharding) {
  std::string mesh;
  if (const std::string* name = sharding.mesh_name()) {
    mesh = "@" + (is_bare_symbol(*name) ? *name : quoted(*name));
  } else {
    mesh = "mesh" + to_text(*sharding.inline_mesh());
  }
  std::string text = fmt::format("<{}, [{}]", mesh,
                                 join(sharding.dimensions, [](const DimensionSharding& dimension) {
                                   return to_text(dimension);
                                 }));
  if (!sharding.replicated.empty()) text += ", replicated=" + refs_text(sharding.replicated);
  if (!sharding.unreduced.empty()) text += ", unreduced=" + refs_text(sharding.unreduced);
  if (sharding.reduction_kind) text += fmt::format(", reduction_kind={}", *sharding.reduction_kind);
  return text + ">";
}

std::string to_text(const ShardingList& shardings) {
  return "[" + join(shardings.values, [](const TensorSharding& value) { return to_text(value); }) +
         "]";
}

std::string to_text(const ManualAxes& axes) { return "{" + join(axes.names, quoted) + "}"; }

std::string attribute_text(const Attribute& attribute) {
  return std::visit(AttributePrinter{}, attribute);
}

Result<Mesh> parse_mesh(std::string_view text, TextError* error) {
  return Reader(text).whole(&Reader::mesh, error);
}

Result<TensorSharding> parse_sharding(std::string_view text, TextError* error) {
  return Reader(text).whole(&Reader::sharding, error);
}

Result<ShardingList> parse_sharding_list(std::string_view text, TextError* error) {
  return Reader(text).whole(&Reader::sharding_list, error);
}

Result<ManualAxes> parse_manual_axes(std::string_view text, TextError* error) {
  return Reader(text).whole(&Reader::manual_axes, error);
}

Result<Attribute> parse_attribute(std::string_view text, TextError* error) {
  return Reader(text).whole(&Reader::attribute, error);
}

}  // namespace hekla::sharding
