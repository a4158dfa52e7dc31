// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/commit_record.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/names.h"

namespace hekla::checkpoint {
namespace {

constexpr std::string_view kFormatName = "hekla-checkpoint";
constexpr std::string_view kMetricPrefix = "metric.";
// The shortest line of the table: one character of path, size and writer, a digest, four tabs.
constexpr size_t kMinFileLine = 1 + 1 + 1 + 32 + 4;

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '%') {
      out += fmt::format("%{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

// Undoes `escaped`; only what it writes is accepted, so that each text has one form.
Result<std::string> unescaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (byte < 0x20 || byte == 0x7f) return data_loss("COMMIT: a control character in a value");
      out += text[i];
      continue;
    }
    const auto high = i + 2 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) return data_loss("COMMIT: '%' without two digits behind it");
    const char c = static_cast<char>(*high * 16 + *low);
    if (escaped({&c, 1}).size() != 3) return data_loss("COMMIT: '%' before a plain character");
    out += c;
    i += 2;
  }
  if (!is_utf8(out)) return data_loss("COMMIT: a value is not UTF-8");
  return out;
}

template <typename Number>
Result<Number> number(std::string_view key, std::string_view text, int base = 10) {
  Number value{};
  const char* end = text.data() + text.size();
  std::from_chars_result parsed;
  if constexpr (std::is_floating_point_v<Number>) {
    parsed = std::from_chars(text.data(), end, value);
  } else {
    parsed = std::from_chars(text.data(), end, value, base);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return data_loss("COMMIT: {} is not a number of its range", key);
  }
  return value;
}

Result<int64_t> non_negative(std::string_view key, std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const auto value, number<int64_t>(key, text));
  if (value < 0) return data_loss("COMMIT: {} is negative", key);
  return value;
}

// Reads lines that end with '\n'.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  size_t left() const { return rest_.size(); }
  std::optional<std::string_view> next() {
    const size_t end = rest_.find('\n');
    if (end == rest_.npos) return std::nullopt;
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

 private:
  std::string_view rest_;
};

Status check_files(const std::vector<FileRecord>& files) {
  std::unordered_set<std::string_view> paths;
  for (const FileRecord& file : files) {
    HEKLA_RETURN_IF_ERROR(check_path(file.path));
    if (!paths.insert(file.path).second) {
      return invalid_argument("the file '{}' is listed twice", file.path);
    }
    if (file.size < 0) return invalid_argument("the file '{}' has size {}", file.path, file.size);
    if (file.writer < 0) {
      return invalid_argument("the file '{}' has writer {}", file.path, file.writer);
    }
    if (!is_digest_text(file.metadata_digest) ||
        !(file.table_digest.empty() || is_digest_text(file.table_digest))) {
      return invalid_argument("the file '{}' has a digest that is not 32 hexadecimal digits",
                              file.path);
    }
    if (file.origin && (file.origin->step < 0 || file.origin->nonce.empty() ||
                        !is_utf8(file.origin->nonce) || file.table_digest.empty())) {
      return invalid_argument("the file '{}' is said to come from save '{}' of step {}", file.path,
                              file.origin->nonce, file.origin->step);
    }
  }
  return ok_status();
}

Result<FileRecord> parse_file(std::string_view line) {
  constexpr size_t kFields = 5, kFieldsOfLink = 7;
  std::vector<std::string_view> fields;
  while (true) {
    const size_t tab = line.find('\t');
    fields.push_back(line.substr(0, tab));
    if (tab == line.npos || fields.size() > kFieldsOfLink) break;
    line.remove_prefix(tab + 1);
  }
  if (fields.size() != kFields && fields.size() != kFieldsOfLink) {
    return data_loss("COMMIT: a file's line has neither {} nor {} fields", kFields, kFieldsOfLink);
  }
  FileRecord file;
  HEKLA_ASSIGN_OR_RETURN(file.path, unescaped(fields[0]));
  HEKLA_ASSIGN_OR_RETURN(file.size, non_negative("a file's size", fields[1]));
  file.metadata_digest = fields[2];
  if (fields[3] != "-") {
    file.table_digest = fields[3];
    if (file.table_digest.empty()) return data_loss("COMMIT: a table digest is empty");
  }
  HEKLA_ASSIGN_OR_RETURN(file.writer, number<int32_t>("a file's writer", fields[4]));
  if (fields.size() == kFieldsOfLink) {
    file.origin.emplace();
    HEKLA_ASSIGN_OR_RETURN(file.origin->step, non_negative("a file's origin", fields[5]));
    HEKLA_ASSIGN_OR_RETURN(file.origin->nonce, unescaped(fields[6]));
  }
  return file;
}

// The minor version.
Result<int32_t> check_version(std::string_view value) {
  const size_t dot = value.find('.');
  if (dot == value.npos) return data_loss("COMMIT: the version is not MAJOR.MINOR");
  HEKLA_ASSIGN_OR_RETURN(const auto major, number<int32_t>("the version", value.substr(0, dot)));
  HEKLA_ASSIGN_OR_RETURN(const auto minor, number<int32_t>("the version", value.substr(dot + 1)));
  if (major != kFormatMajor) {
    return unimplemented(
        "the checkpoint has format version {}, this program reads {}; use a newer "
        "Hekla",
        value, kFormatMajor);
  }
  return minor;
}

Status set_field(std::string_view key, std::string_view raw, CommitRecord& record) {
  HEKLA_ASSIGN_OR_RETURN(std::string value, unescaped(raw));
  if (key == "step") {
    HEKLA_ASSIGN_OR_RETURN(record.step, non_negative(key, value));
  } else if (key == "run") {
    record.run_uuid = std::move(value);
  } else if (key == "nonce") {
    record.nonce = std::move(value);
  } else if (key == "time") {
    record.wall_time = std::move(value);
  } else if (key == "writer") {
    record.writer_version = std::move(value);
  } else if (key == "world_size") {
    HEKLA_ASSIGN_OR_RETURN(record.world_size, number<int32_t>(key, value));
    if (record.world_size < 1) return data_loss("COMMIT: world_size is below 1");
  } else if (key == "mesh") {
    record.mesh = std::move(value);
  } else if (key == "layout") {
    HEKLA_ASSIGN_OR_RETURN(record.layout_hash, number<uint64_t>(key, value, 16));
  } else if (key == "tensors") {
    HEKLA_ASSIGN_OR_RETURN(record.tensors, non_negative(key, value));
  } else if (key == "logical_bytes") {
    HEKLA_ASSIGN_OR_RETURN(record.logical_bytes, non_negative(key, value));
  } else if (key == "reason") {
    record.reason = std::move(value);
  } else if (key == "parent") {
    HEKLA_ASSIGN_OR_RETURN(record.parent_step, non_negative(key, value));
  } else if (key.starts_with(kMetricPrefix)) {
    HEKLA_ASSIGN_OR_RETURN(std::string name, unescaped(key.substr(kMetricPrefix.size())));
    if (name.empty()) return data_loss("COMMIT: a metric without a name");
    HEKLA_ASSIGN_OR_RETURN(const auto metric, number<double>(key, value));
    record.metrics.emplace(std::move(name), metric);
  }
  return ok_status();  // other keys belong to a later minor version
}

std::string double_text(double value) {
  char buffer[64];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace

Result<std::string> write_commit(const CommitRecord& record) {
  HEKLA_RETURN_IF_ERROR(check_files(record.files));
  if (record.step < 0 || record.world_size < 1 || record.tensors < 0 || record.logical_bytes < 0 ||
      record.parent_step.value_or(0) < 0) {
    return invalid_argument(
        "a COMMIT record with a number below its range (step {}, world size {})", record.step,
        record.world_size);
  }
  for (const std::string* text : {&record.run_uuid, &record.nonce, &record.wall_time,
                                  &record.writer_version, &record.mesh, &record.reason}) {
    if (!is_utf8(*text)) return invalid_argument("a text of the COMMIT record is not UTF-8");
  }
  std::string out;
  const auto line = [&out](std::string_view key, std::string_view value) {
    out += fmt::format("{}={}\n", key, escaped(value));
  };
  line("format", fmt::format("{} {}.{}", kFormatName, kFormatMajor, record.format_minor));
  line("step", std::to_string(record.step));
  line("run", record.run_uuid);
  line("nonce", record.nonce);
  line("time", record.wall_time);
  line("writer", record.writer_version);
  line("world_size", std::to_string(record.world_size));
  line("mesh", record.mesh);
  line("layout", fmt::format("{:016x}", record.layout_hash));
  line("tensors", std::to_string(record.tensors));
  line("logical_bytes", std::to_string(record.logical_bytes));
  line("reason", record.reason);
  if (record.parent_step) line("parent", std::to_string(*record.parent_step));
  for (const auto& [name, value] : record.metrics) {
    if (name.empty() || !is_utf8(name) || name.find('=') != name.npos) {
      return invalid_argument("the metric name '{}' is empty, not UTF-8 or contains '='", name);
    }
    line(fmt::format("{}{}", kMetricPrefix, escaped(name)), double_text(value));
  }
  line("files", std::to_string(record.files.size()));
  for (const FileRecord& file : record.files) {
    out += fmt::format("{}\t{}\t{}\t{}\t{}", escaped(file.path), file.size, file.metadata_digest,
                       file.table_digest.empty() ? "-" : file.table_digest, file.writer);
    if (file.origin) {
      out += fmt::format("\t{}\t{}", file.origin->step, escaped(file.origin->nonce));
    }
    out += '\n';
  }
  out += fmt::format("digest={}\n", digest_text(out));
  if (out.size() > kMaxCommitBytes) {
    return invalid_argument("the COMMIT record would have {} bytes, the limit is {}", out.size(),
                            kMaxCommitBytes);
  }
  return out;
}

Result<CommitRecord> parse_commit(std::string_view text) {
  constexpr std::string_view kDigestKey = "digest=";
  constexpr size_t kLastLine = kDigestKey.size() + 32 + 1;
  if (text.size() > kMaxCommitBytes) {
    return data_loss("COMMIT has {} bytes, the limit is {}", text.size(), kMaxCommitBytes);
  }
  if (text.size() < kLastLine || text.back() != '\n' ||
      text.substr(text.size() - kLastLine, kDigestKey.size()) != kDigestKey) {
    return data_loss("COMMIT does not end with its digest: it is cut off or not a COMMIT record");
  }
  const std::string_view body = text.substr(0, text.size() - kLastLine);
  const std::string_view digest = text.substr(body.size() + kDigestKey.size(), 32);
  if (digest_text(body) != digest) {
    return data_loss("COMMIT does not match its digest {}: it is corrupt", digest);
  }

  Lines lines(body);
  const auto first = lines.next();
  const std::string format = fmt::format("format={} ", kFormatName);
  if (!first || !first->starts_with(format))
    return data_loss("COMMIT: the first line is no format");
  CommitRecord record;
  HEKLA_ASSIGN_OR_RETURN(record.format_minor, check_version(first->substr(format.size())));
  std::unordered_set<std::string_view> seen;
  std::optional<int64_t> files;
  while (!files) {
    const auto line = lines.next();
    if (!line) return data_loss("COMMIT: there is no line files=");
    const size_t equals = line->find('=');
    if (equals == line->npos || equals == 0) return data_loss("COMMIT: a line is not key=value");
    const std::string_view key = line->substr(0, equals);
    if (!seen.insert(key).second) return data_loss("COMMIT: the key {} comes twice", key);
    if (key == "files") {
      HEKLA_ASSIGN_OR_RETURN(files, non_negative(key, line->substr(equals + 1)));
    } else {
      HEKLA_RETURN_IF_ERROR(set_field(key, line->substr(equals + 1), record));
    }
  }
  for (const std::string_view key :
       {"step", "run", "nonce", "world_size", "layout", "tensors", "logical_bytes"}) {
    if (!seen.contains(key)) return data_loss("COMMIT: the key {} is missing", key);
  }
  if (static_cast<uint64_t>(*files) > lines.left() / kMinFileLine) {
    return data_loss("COMMIT: {} files do not fit into its table", *files);
  }
  record.files.reserve(static_cast<size_t>(*files));
  for (int64_t i = 0; i < *files; ++i) {
    const auto line = lines.next();
    if (!line) return data_loss("COMMIT: the table ends after {} of {} files", i, *files);
    HEKLA_ASSIGN_OR_RETURN(FileRecord file, parse_file(*line));
    record.files.push_back(std::move(file));
  }
  if (lines.left() != 0) return data_loss("COMMIT: something stands behind the table");
  if (const Status status = check_files(record.files); !status.ok()) {
    return data_loss("COMMIT: {}", status.message());
  }
  return record;
}

Result<int64_t> parse_wall_time(const std::string& text) {
  tm time = {};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (end == nullptr || *end != '\0') return data_loss("\"{}\" is not a time", text);
  return static_cast<int64_t>(::timegm(&time));
}

}  // namespace hekla::checkpoint
