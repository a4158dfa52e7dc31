// SPDX-License-Identifier: Apache-2.0
// Decoding of Shardy's attributes into their MLIR text.
#include "runtime/program/stablehlo/bytecode/attribute_table.h"

namespace hekla::stablehlo {
namespace {

using Kind = RawAttribute::Kind;

// Factors are named i, j, ... z, then z_1, z_2 and so on.
std::string factor_name(int64_t factor, ByteReader& reader) {
  if (factor < 0) reader.fail(fmt::format("there is no factor {}", factor));
  constexpr int64_t kLetters = 'z' - 'i' + 1;
  if (factor >= 0 && factor < kLetters) return std::string(1, static_cast<char>('i' + factor));
  return fmt::format("z_{}", factor - kLetters + 1);
}

std::string factor_list(std::string_view name, ByteReader& reader) {
  const size_t count = reader.count();
  if (count == 0) return "";
  std::string text = fmt::format(" {}={{", name);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    text += (i > 0 ? ", " : "") + factor_name(reader.svarint(), reader);
  }
  return text + "}";
}

}  // namespace

// What stands between the angle brackets of the attribute's text, or the whole text of parts that
// have no brackets (axes, dimensions).
Result<std::string> AttributeTable::sdy_body(uint64_t index) const {
  HEKLA_ASSIGN_OR_RETURN(const RawAttribute* value, attribute(index));
  const auto body = sdy_bodies_.find(index);
  if (body != sdy_bodies_.end()) return body->second;
  std::string text = value->kind == Kind::kSymbol ? "@" + value->text : value->text;
  const size_t open = text.find('<');
  if (text.starts_with("#sdy.") && open != std::string::npos && text.ends_with('>')) {
    text = text.substr(open + 1, text.size() - open - 2);
  }
  // Some have their brackets inside: #sdy<axis_ref_list{"x"}>.
  if (text.starts_with("#sdy<") && text.ends_with('>')) {
    const size_t body_start = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", 5);
    text = text.substr(body_start, text.size() - body_start - 1);
  }
  sdy_bodies_.emplace(index, text);
  return text;
}

Status AttributeTable::decode_sdy(ByteReader& reader, RawAttribute& out) const {
  out.kind = Kind::kText;
  const uint64_t code = reader.varint();
  const auto join = [&](std::string_view before, std::string_view after) -> Result<std::string> {
    std::string text;
    const size_t count = reader.count();
    for (size_t i = 0; i < count && reader.ok(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(std::string part, sdy_body(reader.varint()));
      text += fmt::format("{}{}{}{}", i > 0 ? ", " : "", before, part, after);
      if (!spend(part.size() + 16)) reader.fail("the sharding attributes take too much room");
    }
    HEKLA_RETURN_IF_ERROR(reader.status());
    return text;
  };
  switch (code) {
    case 0: {
      HEKLA_ASSIGN_OR_RETURN(std::string axes, join("\"", "\""));
      out.text = fmt::format("#sdy<manual_axes{{{}}}>", axes);
      break;
    }
    case 1: {
      const std::string_view name = string(reader.varint(), reader);
      out.text = fmt::format("\"{}\"={}", name, reader.svarint());
      break;
    }
    case 2: {
      HEKLA_ASSIGN_OR_RETURN(std::string axes, join("", ""));
      out.text = fmt::format("#sdy.mesh<[{}]", axes);
      const size_t count = reader.count();
      if (count > 0) out.text += ", device_ids=[";
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        out.text += fmt::format("{}{}", i > 0 ? ", " : "", reader.svarint());
      }
      out.text += count > 0 ? "]>" : ">";
      break;
    }
    case 3: {
      const int64_t pre_size = reader.svarint();
      out.text = fmt::format(":({}){}", pre_size, reader.svarint());
      break;
    }
    case 4: {
      const std::string_view name = string(reader.varint(), reader);
      out.text = fmt::format("\"{}\"", name);
      const uint64_t sub = reader.varint();
      if ((sub & 1) != 0) {
        HEKLA_ASSIGN_OR_RETURN(std::string part, sdy_body(sub >> 1));
        out.text += part;
      }
      break;
    }
    case 5: {
      HEKLA_ASSIGN_OR_RETURN(std::string axes, join("", ""));
      const uint8_t is_closed = reader.byte();
      if (is_closed > 1) reader.fail(fmt::format("{} is no bool", is_closed));
      const uint64_t priority = reader.varint();
      out.text = "{" + axes;
      if (!is_closed) out.text += axes.empty() ? "?" : ", ?";
      out.text += "}";
      if ((priority & 1) != 0) out.text += fmt::format("p{}", priority >> 1);
      break;
    }
    case 6:
    case 15:
    case 17: {
      HEKLA_ASSIGN_OR_RETURN(std::string mesh, sdy_body(reader.varint()));
      HEKLA_ASSIGN_OR_RETURN(std::string dimensions, join("", ""));
      HEKLA_ASSIGN_OR_RETURN(std::string replicated, join("", ""));
      // An inline mesh keeps its own brackets.
      if (!mesh.starts_with('@')) mesh = fmt::format("mesh<{}>", mesh);
      out.text = fmt::format("#sdy.sharding<{}, [{}]", mesh, dimensions);
      if (!replicated.empty()) out.text += fmt::format(", replicated={{{}}}", replicated);
      if (code != 6) {
        HEKLA_ASSIGN_OR_RETURN(std::string unreduced, join("", ""));
        if (!unreduced.empty()) out.text += fmt::format(", unreduced={{{}}}", unreduced);
        if (code == 17) out.text += fmt::format(", reduction_kind={}", reader.svarint());
      }
      out.text += ">";
      break;
    }
    case 7:
    case 16: {
      HEKLA_ASSIGN_OR_RETURN(std::string shardings, join("<", ">"));
      out.text = fmt::format("#sdy.sharding_per_value<[{}]>", shardings);
      break;
    }
    case 8: {
      const size_t count = reader.count();
      for (size_t i = 0; i < count && reader.ok(); ++i)
        out.text += factor_name(reader.svarint(), reader);
      break;
    }
    case 9: {
      HEKLA_ASSIGN_OR_RETURN(std::string dimensions, join("", ""));
      out.text = fmt::format("[{}]", dimensions);
      break;
    }
    case 10: {
      std::string sizes;
      const size_t count = reader.count();
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        sizes += fmt::format("{}{}={}", i > 0 ? ", " : "",
                             factor_name(static_cast<int64_t>(i), reader), reader.svarint());
      }
      HEKLA_ASSIGN_OR_RETURN(std::string operands, join("", ""));
      HEKLA_ASSIGN_OR_RETURN(std::string results, join("", ""));
      out.text = fmt::format("#sdy.op_sharding_rule<({})->({}) {{{}}}", operands, results, sizes);
      for (std::string_view name :
           {"reduction", "need_replication", "permutation", "blocked_propagation"}) {
        out.text += factor_list(name, reader);
      }
      const uint8_t is_custom = reader.byte();
      if (is_custom > 1) reader.fail(fmt::format("{} is no bool", is_custom));
      out.text += is_custom != 0 ? ", custom>" : ">";
      break;
    }
    case 11:
    case 12: {
      HEKLA_ASSIGN_OR_RETURN(std::string axes, join("", ""));
      out.text = code == 11 ? fmt::format("#sdy<axis_ref_list{{{}}}>", axes)
                            : fmt::format("#sdy<list_of_axis_ref_lists[{}]>", axes);
      break;
    }
    case 13: {
      HEKLA_ASSIGN_OR_RETURN(std::string axes, join("", ""));
      const int64_t source = reader.svarint();
      out.text =
          fmt::format("#sdy<all_to_all_param{{{}}}: {}->{}>", axes, source, reader.svarint());
      break;
    }
    case 14: {
      HEKLA_ASSIGN_OR_RETURN(std::string parameters, join("", ""));
      out.text = fmt::format("#sdy<all_to_all_param_list[{}]>", parameters);
      break;
    }
    default:
      reader.fail(fmt::format("there is no sdy attribute {}", code));
  }
  return reader.status();
}

}  // namespace hekla::stablehlo
