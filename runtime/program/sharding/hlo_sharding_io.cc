// SPDX-License-Identifier: Apache-2.0
// HloSharding as text and as protobuf.
#include <fmt/format.h>

#include "runtime/base/protobuf_wire.h"
#include "runtime/program/sharding/cursor.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::sharding {
namespace {

using Kind = HloSharding::Kind;

// Fields of xla.OpSharding.
enum Field : uint32_t {
  kType = 1,
  kTileShape = 2,
  kTileDims = 3,
  kDevices = 4,
  kElements = 5,
  kReplicateOnLast = 6,
  kMetadata = 7,
  kSubgroups = 8,
  kIotaDims = 9,
  kIotaPerm = 10,
  kIsGroup = 11,
  kGroupId = 12,
  kGroupType = 13,
  kNamed = 14,
};

std::string_view kind_word(Kind kind) {
  switch (kind) {
    case Kind::kReplicated:
      return "replicated";
    case Kind::kManual:
      return "manual";
    case Kind::kUnknown:
      return "unknown";
    case Kind::kUnreduced:
      return "unreduced";
    case Kind::kMaximal:
      return "maximal";
    case Kind::kTuple:
      return "tuple";
    case Kind::kTiled:
      return "tiled";
  }
  return "";
}

class HloReader {
 public:
  explicit HloReader(std::string_view text) : at_(text) {}

  Result<HloSharding> whole() {
    HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, any(true));
    if (!at_.at_end()) return at_.error("the end");
    HEKLA_RETURN_IF_ERROR(check(sharding));
    return sharding;
  }

 private:
  Result<HloSharding> any(bool may_be_tuple) {
    HloSharding sharding;
    HEKLA_RETURN_IF_ERROR(at_.expect("{"));
    if (at_.peek() == '{' || at_.peek() == '}') {
      if (!may_be_tuple) return at_.error("a sharding that is no tuple");
      sharding.kind = Kind::kTuple;
      if (at_.accept("}")) return sharding;
      do {
        HEKLA_ASSIGN_OR_RETURN(HloSharding element, any(false));
        sharding.elements.push_back(std::move(element));
      } while (at_.accept(","));
      HEKLA_RETURN_IF_ERROR(at_.expect("}"));
      return sharding;
    }
    const size_t start = at_.position();
    const std::string_view word = at_.word();
    if (word == "mesh" || word == "maximal_mesh") {
      return unimplemented(
          "sharding text at {}: shardings with named axes, {{{}[...]}}, are not read; the sender "
          "can write {{devices=[...]}}",
          start, word);
    }
    if (word == "devices") {
      HEKLA_RETURN_IF_ERROR(tiles(sharding));
    } else if (word == "maximal") {
      sharding.kind = Kind::kMaximal;
      HEKLA_RETURN_IF_ERROR(at_.expect("device"));
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      HEKLA_ASSIGN_OR_RETURN(int64_t device, at_.integer());
      sharding.devices.push_back(device);
    } else if (!kind_of(word, sharding.kind)) {
      return at_.error_at(start,
                          "expected devices=, replicated, maximal, manual, unreduced, "
                          "unknown or a tuple");
    }
    while (!at_.accept("}")) HEKLA_RETURN_IF_ERROR(suffix(sharding));
    return sharding;
  }

  static bool kind_of(std::string_view word, Kind& kind) {
    for (Kind known : {Kind::kReplicated, Kind::kManual, Kind::kUnreduced, Kind::kUnknown}) {
      if (word != kind_word(known)) continue;
      kind = known;
      return true;
    }
    return false;
  }

  Result<std::vector<int64_t>> numbers(std::string_view close) {
    std::vector<int64_t> values;
    do {
      HEKLA_ASSIGN_OR_RETURN(int64_t value, at_.integer());
      values.push_back(value);
    } while (at_.accept(","));
    if (!close.empty()) HEKLA_RETURN_IF_ERROR(at_.expect(close));
    return values;
  }

  Status tiles(HloSharding& sharding) {
    sharding.kind = Kind::kTiled;
    HEKLA_RETURN_IF_ERROR(at_.expect("="));
    HEKLA_RETURN_IF_ERROR(at_.expect("["));
    HEKLA_ASSIGN_OR_RETURN(sharding.tile_dims, numbers("]"));
    if (!at_.accept("<=")) {
      HEKLA_ASSIGN_OR_RETURN(sharding.devices, numbers(""));
      return ok_status();
    }
    HEKLA_RETURN_IF_ERROR(at_.expect("["));
    HEKLA_ASSIGN_OR_RETURN(sharding.iota_dims, numbers("]"));
    if (at_.accept("T")) {
      HEKLA_RETURN_IF_ERROR(at_.expect("("));
      HEKLA_ASSIGN_OR_RETURN(sharding.iota_perm, numbers(")"));
    } else {
      for (size_t d = 0; d < sharding.iota_dims.size(); ++d) {
        sharding.iota_perm.push_back(static_cast<int64_t>(d));
      }
    }
    return ok_status();
  }

  Status suffix(HloSharding& sharding) {
    const size_t start = at_.position();
    const std::string_view word = at_.word();
    if (word == "metadata") {
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      return at_.skip_braces();
    }
    if ((word == "shard_as" || word == "shard_like") && !sharding.group) {
      HEKLA_ASSIGN_OR_RETURN(int64_t id, at_.integer());
      sharding.group = HloSharding::Group{id, word == "shard_like"};
      return ok_status();
    }
    const bool is_first = sharding.kind == Kind::kTiled && sharding.subgroups.empty();
    if (word == "last_tile_dim_replicate" && is_first) {
      sharding.subgroups.push_back(Kind::kReplicated);
      return ok_status();
    }
    if (word == "last_tile_dims" && is_first) {
      HEKLA_RETURN_IF_ERROR(at_.expect("="));
      HEKLA_RETURN_IF_ERROR(at_.expect("{"));
      do {
        Kind kind = Kind::kReplicated;
        const std::string_view name = at_.word();
        if (!kind_of(name, kind)) return at_.error("manual, replicated or unreduced");
        sharding.subgroups.push_back(kind);
      } while (at_.accept(","));
      return at_.expect("}");
    }
    return at_.error_at(start,
                        "expected last_tile_dim_replicate, last_tile_dims={...}, shard_as, "
                        "shard_like, metadata={...} or the closing brace");
  }

  Cursor at_;
};

Result<Kind> kind_from(int64_t number) {
  if (number >= 0 && number <= static_cast<int64_t>(Kind::kUnreduced)) {
    return static_cast<Kind>(number);
  }
  return unimplemented("an OpSharding of type {}", number);
}

Result<HloSharding> decode(std::string_view bytes, bool may_be_tuple) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(bytes));
  HloSharding sharding;
  HloSharding::Group group;
  bool has_group = false;
  bool replicates_last = false;
  for (const wire::Field& field : fields) {
    std::vector<int64_t>* list = nullptr;
    if (field.number == kTileDims) list = &sharding.tile_dims;
    if (field.number == kDevices) list = &sharding.devices;
    if (field.number == kIotaDims) list = &sharding.iota_dims;
    if (field.number == kIotaPerm) list = &sharding.iota_perm;
    if (list != nullptr || field.number == kSubgroups) {
      HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> values, wire::parse_varints(field));
      if (list != nullptr) {
        list->insert(list->end(), values.begin(), values.end());
        continue;
      }
      for (int64_t value : values) {
        HEKLA_ASSIGN_OR_RETURN(Kind kind, kind_from(value));
        sharding.subgroups.push_back(kind);
      }
      continue;
    }
    const bool is_message =
        field.number == kTileShape || field.number == kElements || field.number == kMetadata;
    if (field.is_bytes != is_message && field.number < kNamed) {
      return invalid_argument("field {} of an OpSharding has another wire type", field.number);
    }
    switch (field.number) {
      case kTileShape:
      case kMetadata:
        break;
      case kType: {
        HEKLA_ASSIGN_OR_RETURN(sharding.kind, kind_from(static_cast<int64_t>(field.value)));
        break;
      }
      case kElements: {
        if (!may_be_tuple) return invalid_argument("an OpSharding of a tuple within another");
        HEKLA_ASSIGN_OR_RETURN(HloSharding element, decode(field.bytes, false));
        sharding.elements.push_back(std::move(element));
        break;
      }
      case kReplicateOnLast:
        replicates_last = field.value != 0;
        break;
      case kIsGroup:
        has_group = field.value != 0;
        break;
      case kGroupId:
        group.id = static_cast<int64_t>(field.value);
        break;
      case kGroupType:
        group.is_like = field.value == 1;
        if (field.value > 1) return unimplemented("a shard group of type {}", field.value);
        break;
      default:
        return unimplemented("field {} of an OpSharding, of a newer XLA, is not understood",
                             field.number);
    }
  }
  if (has_group) sharding.group = group;
  if (replicates_last) {
    if (!sharding.subgroups.empty()) {
      return invalid_argument(
          "an OpSharding with both last_tile_dims and "
          "replicate_on_last_tile_dim");
    }
    sharding.subgroups.push_back(Kind::kReplicated);
  }
  return sharding;
}

bool replicates_on_last(const HloSharding& sharding) {
  return sharding.subgroups.size() == 1 && sharding.subgroups[0] == Kind::kReplicated;
}

}  // namespace

Result<HloSharding> parse_hlo_sharding(std::string_view text) { return HloReader(text).whole(); }

std::string to_text(const HloSharding& sharding) {
  if (sharding.kind == Kind::kTuple) {
    std::string text = "{";
    for (size_t i = 0; i < sharding.elements.size(); ++i) {
      if (i > 0) text += ", ";
      if (i > 0 && i % 5 == 0) text += fmt::format("/*index={}*/", i);
      text += to_text(sharding.elements[i]);
    }
    return text + "}";
  }
  std::string text = "{" + std::string(kind_word(sharding.kind));
  if (sharding.kind == Kind::kMaximal) {
    text = fmt::format("{{maximal device={}", fmt::join(sharding.devices, ","));
  }
  if (sharding.kind == Kind::kTiled) {
    text = fmt::format("{{devices=[{}]", fmt::join(sharding.tile_dims, ","));
    if (sharding.iota_dims.empty()) {
      text += fmt::format("{}", fmt::join(sharding.devices, ","));
    } else {
      text += fmt::format("<=[{}]", fmt::join(sharding.iota_dims, ","));
      if (sharding.iota_dims.size() > 1) {
        text += fmt::format("T({})", fmt::join(sharding.iota_perm, ","));
      }
    }
    if (replicates_on_last(sharding)) {
      text += " last_tile_dim_replicate";
    } else if (!sharding.subgroups.empty()) {
      text += " last_tile_dims={";
      for (size_t i = 0; i < sharding.subgroups.size(); ++i) {
        text += i > 0 ? ", " : "";
        text += kind_word(sharding.subgroups[i]);
      }
      text += "}";
    }
  }
  if (sharding.group) {
    text += fmt::format(" {} {}", sharding.group->is_like ? "shard_like" : "shard_as",
                        sharding.group->id);
  }
  return text + "}";
}

std::string encode_op_sharding(const HloSharding& sharding) {
  wire::Writer out;
  const auto packed = [&](uint32_t field, const std::vector<int64_t>& values) {
    if (!values.empty()) out.packed(field, values);
  };
  if (sharding.kind != Kind::kReplicated) out.varint(kType, static_cast<uint64_t>(sharding.kind));
  packed(kTileDims, sharding.tile_dims);
  packed(kDevices, sharding.devices);
  for (const HloSharding& element : sharding.elements) {
    out.bytes(kElements, encode_op_sharding(element));
  }
  if (replicates_on_last(sharding)) {
    out.boolean(kReplicateOnLast, true);
  } else {
    std::vector<int64_t> kinds;
    for (Kind kind : sharding.subgroups) kinds.push_back(static_cast<int64_t>(kind));
    packed(kSubgroups, kinds);
  }
  packed(kIotaDims, sharding.iota_dims);
  packed(kIotaPerm, sharding.iota_perm);
  if (sharding.group) {
    out.boolean(kIsGroup, true);
    if (sharding.group->id != 0) out.varint(kGroupId, static_cast<uint64_t>(sharding.group->id));
    if (sharding.group->is_like) out.varint(kGroupType, 1);
  }
  return out.text();
}

Result<HloSharding> decode_op_sharding(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, decode(bytes, true));
  HEKLA_RETURN_IF_ERROR(check(sharding));
  return sharding;
}

Result<HloSharding> read_hlo_sharding(std::string_view value) {
  return value.starts_with("{") ? parse_hlo_sharding(value) : decode_op_sharding(value);
}

}  // namespace hekla::sharding
