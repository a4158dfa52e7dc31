// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::checkpoint {
namespace {

// Numbers are hashed as 8 bytes little endian, texts and lists behind their length, so that two
// plans have one input only if they are the same.
class LayoutBytes {
 public:
  void number(int64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
    bytes_.append(bytes, sizeof(bytes));
  }
  void text(std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    bytes_ += value;
  }
  void dims(const Dims& dims) {
    number(static_cast<int64_t>(dims.size()));
    for (int64_t dim : dims) number(dim);
  }
  uint64_t hash() const { return block_digest(std::as_bytes(std::span(bytes_))); }

 private:
  std::string bytes_;
};

// Names may hold any character; a line must stay one.
std::string quoted(std::string_view name) {
  std::string text = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + '"';
}

// Lines by their name, the part up to the closing quote; a line about a file is all name.
std::map<std::string_view, std::string_view> lines_of(std::string_view text) {
  std::map<std::string_view, std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    size_t name_end = 1;
    while (name_end < line.size() && line[name_end] != '"') {
      name_end += line[name_end] == '\\' ? 2 : 1;
    }
    name_end = std::min(name_end + 1, line.size());
    lines[line.substr(0, name_end)] = line.substr(name_end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string shortened(std::string_view line) {
  constexpr size_t kShown = 160;
  return line.size() <= kShown ? std::string(line) : fmt::format("{}...", line.substr(0, kShown));
}

}  // namespace

uint64_t layout_hash(const SavePlan& plan) {
  LayoutBytes hasher;
  hasher.number(static_cast<int64_t>(plan.tensors.size()));
  for (const TensorInfo& tensor : plan.tensors) {
    hasher.text(tensor.name);
    hasher.text(dtype_name(tensor.dtype));
    hasher.dims(tensor.shape);
    hasher.text(tensor.spec);
  }
  hasher.number(static_cast<int64_t>(plan.files.size()));
  for (size_t f = 0; f < plan.files.size(); ++f) {
    hasher.text(plan.files[f]);
    hasher.number(plan.file_owners[f]);
  }
  hasher.number(static_cast<int64_t>(plan.pieces.size()));
  for (const Piece& piece : plan.pieces) {
    hasher.number(piece.tensor);
    hasher.dims(piece.box.start);
    hasher.dims(piece.box.size);
    hasher.number(piece.writer);
    hasher.number(piece.file);
    hasher.number(piece.bytes);
  }
  return hasher.hash();
}

std::string plan_text(const SavePlan& plan) {
  std::string text;
  size_t next = 0;
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const TensorInfo& tensor = plan.tensors[t];
    text += fmt::format("{} {}", quoted(tensor.name), shape_string(tensor.dtype, tensor.shape));
    if (!tensor.spec.empty()) text += fmt::format(" {}", quoted(tensor.spec));
    for (; next < plan.pieces.size() && plan.pieces[next].tensor == static_cast<int32_t>(t);
         ++next) {
      const Piece& piece = plan.pieces[next];
      text += fmt::format(" {}@rank{},file{}", box_text(piece.box), piece.writer, piece.file);
    }
    text += '\n';
  }
  for (size_t f = 0; f < plan.files.size(); ++f) {
    text += fmt::format("file {} of rank {}\n", plan.files[f], plan.file_owners[f]);
  }
  return text;
}

std::string diff_plans(std::string_view ours, std::string_view theirs, std::string_view our_name,
                       std::string_view their_name, size_t max_lines) {
  const std::map<std::string_view, std::string_view> our_lines = lines_of(ours);
  const std::map<std::string_view, std::string_view> their_lines = lines_of(theirs);
  std::string diff;
  size_t lines = 0;
  size_t left_out = 0;
  const auto add = [&](std::string line) {
    if (lines < max_lines) {
      diff += line + '\n';
      ++lines;
    } else {
      ++left_out;
    }
  };
  for (const auto& [name, line] : our_lines) {
    const auto found = their_lines.find(name);
    if (found == their_lines.end()) {
      add(fmt::format("{} only on {}:{}", name, our_name, shortened(line)));
    } else if (found->second != line) {
      // Long lists of pieces often differ late: show from shortly before the difference.
      const size_t differ =
          std::mismatch(line.begin(), line.end(), found->second.begin(), found->second.end())
              .first -
          line.begin();
      const size_t space = differ == 0 ? std::string_view::npos : line.rfind(' ', differ - 1);
      const size_t from = differ < 100 || space == std::string_view::npos ? 0 : space;
      add(fmt::format("{} on {}:{}; on {}:{}", name, our_name, shortened(line.substr(from)),
                      their_name, shortened(found->second.substr(from))));
    }
  }
  for (const auto& [name, line] : their_lines) {
    if (our_lines.count(name) == 0) {
      add(fmt::format("{} only on {}:{}", name, their_name, shortened(line)));
    }
  }
  if (left_out > 0) diff += fmt::format("and {} more\n", left_out);
  return diff;
}

}  // namespace hekla::checkpoint
