// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/sharding_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace hekla::spmd {
namespace {

// Pixels.
constexpr int kCellHeight = 22;
constexpr int kCharacter = 7;
constexpr int kLineHeight = 16;
constexpr int kMargin = 12;
constexpr int kLeastCell = 48;

// Names of programs may hold what is markup.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

std::string text_at(int x, int y, const std::string& text, bool is_bold = false) {
  return fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", x, y,
                     is_bold ? " font-weight=\"bold\"" : "", escaped(text));
}

// 0, 1, 2, 3 as 0-3.
std::string devices_text(const std::vector<int64_t>& devices) {
  std::string text;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end - i > 2 ? fmt::format("{}-{}", devices[i], devices[end - 1])
                        : fmt::format("{}", devices[i]);
    if (end - i == 2) text += fmt::format(", {}", devices[i + 1]);
    i = end;
  }
  return text;
}

// Blocks in rows and columns.
struct Grid {
  int64_t rows = 1, columns = 1;
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> devices;  // by row and column
};

Grid grid_of(const Cut& cut) {
  Grid grid;
  std::vector<size_t> dimensions;
  size_t partitions = 0;
  for (size_t d = 0; d < cut.dimensions.size(); ++d) {
    if (cut.dimensions[d].parts == 1) continue;
    dimensions.push_back(d);
    partitions = cut.dimensions[d].part.size();
  }
  for (size_t i = 0; i + 1 < dimensions.size(); ++i) {
    grid.rows *= cut.dimensions[dimensions[i]].parts;
  }
  if (!dimensions.empty()) grid.columns = cut.dimensions[dimensions.back()].parts;
  for (size_t p = 0; p < partitions; ++p) {
    int64_t row = 0;
    for (size_t i = 0; i + 1 < dimensions.size(); ++i) {
      const Cut::Dimension& dimension = cut.dimensions[dimensions[i]];
      row = row * dimension.parts + dimension.part[p];
    }
    grid.devices[{row, cut.dimensions[dimensions.back()].part[p]}].push_back(
        static_cast<int64_t>(p));
  }
  return grid;
}

// Appends the panel below `y` and moves that; the width that it needs.
int draw_panel(const ShardingTrace::Line& line, const ShardingTrace::Array& array, std::string& svg,
               int& y) {
  const std::string title = line.location.empty() ? line.what : line.what + " at " + line.location;
  const std::string sizes =
      fmt::format("{} as {}, {} a device", array.type, array.sharding, array.local);
  svg += text_at(kMargin, y += kLineHeight, title, /*is_bold=*/true);
  svg += text_at(kMargin, y += kLineHeight, sizes);
  y += kLineHeight / 2;
  const Grid grid = grid_of(array.cut);
  size_t longest = 0;
  for (const auto& [cell, devices] : grid.devices) {
    longest = std::max(longest, devices_text(devices).size());
  }
  const int width = std::max(kLeastCell, static_cast<int>(longest + 2) * kCharacter);
  const auto count = static_cast<int64_t>(grid.rows * grid.columns);
  for (const auto& [cell, devices] : grid.devices) {
    const auto [row, column] = cell;
    const int left = kMargin + static_cast<int>(column) * width;
    const int top = y + static_cast<int>(row) * kCellHeight;
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"hsl({}, 60%, 85%)\" "
        "stroke=\"#555\"/>\n",
        left, top, width, kCellHeight, (row * grid.columns + column) * 360 / count);
    svg += text_at(left + kCharacter, top + kCellHeight - 7, devices_text(devices));
  }
  y += static_cast<int>(grid.rows) * kCellHeight + kLineHeight;
  const auto text_width = static_cast<int>(std::max(title.size(), sizes.size())) * kCharacter;
  return std::max(text_width, static_cast<int>(grid.columns) * width);
}

}  // namespace

std::string to_svg(const ShardingTrace& trace) {
  std::string body;
  int y = kMargin;
  int width = 0;
  size_t drawn = 0, left_out = 0;
  for (const ShardingTrace::Line& line : trace.lines) {
    const ShardingTrace::Array* before = nullptr;
    for (const ShardingTrace::Array& array : line.arrays) {
      const bool is_cut = std::any_of(array.cut.dimensions.begin(), array.cut.dimensions.end(),
                                      [](const auto& dimension) { return dimension.parts > 1; });
      const bool is_known =
          before != nullptr && before->cut == array.cut && before->type == array.type;
      before = &array;
      if (!is_cut || is_known) continue;
      if (drawn == kMostPanels) {
        ++left_out;
        continue;
      }
      width = std::max(width, draw_panel(line, array, body, y));
      ++drawn;
    }
  }
  std::string rest = drawn == 0 ? "Every array is whole on every device." : "";
  if (left_out > 0) rest = fmt::format("and {} arrays more", left_out);
  if (!rest.empty()) {
    body += text_at(kMargin, y += kLineHeight, rest);
    width = std::max(width, static_cast<int>(rest.size()) * kCharacter);
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "viewBox=\"0 0 {0} {1}\" font-family=\"monospace\" font-size=\"12\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
             width + 2 * kMargin, y + kMargin) +
         body + "</svg>\n";
}

}  // namespace hekla::spmd
