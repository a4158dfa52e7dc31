// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <span>

#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {
namespace {

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

std::string axis_text(const std::string& name) {
  const bool is_word = !name.empty() && std::all_of(name.begin(), name.end(), is_word_char);
  if (is_word && name != "None") return name;
  std::string quoted = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string axes_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ',';
    text += axis_text(name);
  }
  return text;
}

// Numbers of a list from `first` on that have one text: equal ones, or with equal steps.
struct Run {
  size_t count = 1;
  int64_t step = 0;
};

Run run_at(std::span<const int64_t> values, size_t first) {
  if (first + 1 == values.size()) return {};
  const int64_t step = values[first + 1] - values[first];  // numbers are not negative
  Run run{2, step};
  while (first + run.count < values.size() &&
         values[first + run.count] - values[first + run.count - 1] == step) {
    ++run.count;
  }
  return run;
}

// Reads the grammar of the header; each function leaves position_ behind what it read.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<Sharding> read() {
    Sharding sharding;
    HEKLA_RETURN_IF_ERROR(expect("mesh="));
    HEKLA_RETURN_IF_ERROR(read_list('(', ')', sharding::kMaxAxes, [&]() -> Status {
      sharding::Axis axis;
      HEKLA_RETURN_IF_ERROR(read_name(&axis.name));
      HEKLA_RETURN_IF_ERROR(expect(":"));
      HEKLA_ASSIGN_OR_RETURN(axis.size, read_number());
      sharding.mesh.axes.push_back(std::move(axis));
      return ok_status();
    }));
    HEKLA_RETURN_IF_ERROR(expect(" spec="));
    HEKLA_RETURN_IF_ERROR(read_list('(', ')', kMaxRank, [&]() -> Status {
      return read_dim(&sharding.spec.dims.emplace_back());
    }));
    if (accept(" replicated=")) {
      HEKLA_RETURN_IF_ERROR(read_list('{', '}', sharding::kMaxAxes, [&]() -> Status {
        return read_name(&sharding.spec.replicated.emplace_back());
      }));
    }
    if (accept(" devices=")) HEKLA_RETURN_IF_ERROR(read_numbers(&sharding.mesh.device_ids));
    if (accept(" granules=")) HEKLA_RETURN_IF_ERROR(read_numbers(&sharding.mesh.granules));
    if (position_ != text_.size()) return error("expected the end");
    HEKLA_RETURN_IF_ERROR(check_sharding(sharding, kMaxRank));
    return sharding;
  }

 private:
  Status error(std::string_view what) const {
    constexpr size_t kShown = 20;
    const std::string_view rest = text_.substr(position_);
    return invalid_argument(
        "sharding text, character {}: {}, found {}", position_, what,
        rest.empty() ? "the end" : fmt::format("\"{}\"", rest.substr(0, kShown)));
  }

  bool accept(std::string_view word) {
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  Status expect(std::string_view word) {
    return accept(word) ? ok_status() : error(fmt::format("expected \"{}\"", word));
  }

  // One space behind a comma is let pass, since people write it.
  template <typename ReadItem>
  Status read_list(char open, char close, int64_t limit, ReadItem read_item) {
    HEKLA_RETURN_IF_ERROR(expect(std::string_view(&open, 1)));
    if (accept(std::string_view(&close, 1))) return ok_status();
    for (int64_t count = 0;; ++count) {
      if (count == limit) return error(fmt::format("more than {} items in a list", limit));
      HEKLA_RETURN_IF_ERROR(read_item());
      if (accept(std::string_view(&close, 1))) return ok_status();
      HEKLA_RETURN_IF_ERROR(expect(","));
      accept(" ");
    }
  }

  bool is_at_quote() const { return position_ < text_.size() && text_[position_] == '"'; }

  Status read_dim(std::vector<std::string>* names) {
    if (position_ < text_.size() && text_[position_] == '(') {
      return read_list('(', ')', sharding::kMaxAxes,
                       [&] { return read_name(&names->emplace_back()); });
    }
    const bool is_quoted = is_at_quote();
    HEKLA_RETURN_IF_ERROR(read_any_name(&names->emplace_back()));
    if (!is_quoted && names->back() == "None") names->clear();
    return ok_status();
  }

  Status read_name(std::string* name) {
    const bool is_quoted = is_at_quote();
    HEKLA_RETURN_IF_ERROR(read_any_name(name));
    if (!is_quoted && *name == "None") return error("None is no axis; one of that name is quoted");
    return ok_status();
  }

  Status read_any_name(std::string* name) {
    if (!accept("\"")) {
      while (position_ < text_.size() && is_word_char(text_[position_])) {
        *name += text_[position_++];
      }
      return name->empty() ? error("expected the name of an axis") : ok_status();
    }
    while (position_ < text_.size() && text_[position_] != '"') {
      if (text_[position_] == '\\') ++position_;
      if (position_ == text_.size()) break;
      *name += text_[position_++];
    }
    HEKLA_RETURN_IF_ERROR(expect("\""));
    return name->empty() ? error("the name of an axis is empty") : ok_status();
  }

  Result<int64_t> read_number() {
    int64_t value = 0;
    const char* begin = text_.data() + position_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (code != std::errc() || value < 0) return error("expected a number below 2^63");
    position_ += static_cast<size_t>(end - begin);
    return value;
  }

  // A list of numbers and runs of them, of at most sharding::kMaxDevices numbers together.
  Status read_numbers(std::vector<int64_t>* values) {
    return read_list('[', ']', sharding::kMaxDevices, [&]() -> Status {
      HEKLA_ASSIGN_OR_RETURN(const int64_t first, read_number());
      int64_t count = 1, step = 0;
      if (accept("*")) {
        HEKLA_ASSIGN_OR_RETURN(count, read_number());
      } else if (accept("-")) {
        HEKLA_ASSIGN_OR_RETURN(const int64_t last, read_number());
        step = 1;
        if (accept("/")) {
          HEKLA_ASSIGN_OR_RETURN(step, read_number());
        }
        const int64_t distance = std::abs(last - first);
        if (step < 1 || distance % step != 0) {
          return error(fmt::format("steps of {} do not lead from {} to {}", step, first, last));
        }
        count = distance / step + 1;
        if (last < first) step = -step;
      }
      if (count < 1 || count > sharding::kMaxDevices - static_cast<int64_t>(values->size())) {
        return error(
            fmt::format("a list of more than {} numbers or of none", sharding::kMaxDevices));
      }
      for (int64_t i = 0; i < count; ++i) values->push_back(first + i * step);
      return ok_status();
    });
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

std::string numbers_text(std::span<const int64_t> values) {
  constexpr size_t kShortestSteps = 4;  // 0,2,4 reads better than 0-4/2
  std::string text;
  for (size_t i = 0; i < values.size();) {
    if (i > 0) text += ',';
    Run run = run_at(values, i);
    const int64_t last = values[i + run.count - 1];
    if (run.step == 0 && run.count > 1) {
      text += fmt::format("{}*{}", values[i], run.count);
    } else if (run.count >= kShortestSteps) {
      text += fmt::format("{}-{}", values[i], last);
      if (run.step != 1 && run.step != -1) text += fmt::format("/{}", std::abs(run.step));
    } else {
      text += std::to_string(values[i]);
      run.count = 1;
    }
    i += run.count;
  }
  return text;
}

std::string mesh_text(const Mesh& mesh) {
  std::string text = "(";
  for (const sharding::Axis& axis : mesh.axes) {
    if (text.back() != '(') text += ',';
    text += fmt::format("{}:{}", axis_text(axis.name), axis.size);
  }
  return text + ')';
}

std::string sharding_text(const Sharding& sharding) {
  std::string text = fmt::format("mesh={} spec=(", mesh_text(sharding.mesh));
  for (const std::vector<std::string>& names : sharding.spec.dims) {
    if (text.back() != '(') text += ',';
    if (names.empty()) {
      text += "None";
    } else if (names.size() == 1) {
      text += axis_text(names[0]);
    } else {
      text += fmt::format("({})", axes_text(names));
    }
  }
  text += ')';
  if (!sharding.spec.replicated.empty()) {
    text += fmt::format(" replicated={{{}}}", axes_text(sharding.spec.replicated));
  }
  if (!sharding.mesh.device_ids.empty()) {
    text += fmt::format(" devices=[{}]", numbers_text(sharding.mesh.device_ids));
  }
  if (!sharding.mesh.granules.empty()) {
    text += fmt::format(" granules=[{}]", numbers_text(sharding.mesh.granules));
  }
  return text;
}

Result<Sharding> parse_sharding(std::string_view text) { return Reader(text).read(); }

}  // namespace hekla::checkpoint
