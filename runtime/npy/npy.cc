// SPDX-License-Identifier: Apache-2.0
#include "runtime/npy/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace hekla::runtime {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = 1 << 20;  // numpy writes a few hundred bytes
constexpr size_t kMaxRank = 64;         // numpy's own limit

// numpy's descriptor: byte order, kind, bytes of one element.
struct Descriptor {
  char order = '|';
  char kind = 0;
  int64_t size = 0;
};

struct Header {
  Descriptor descriptor;
  bool fortran_order = false;
  Dims dims;
};

// Reads the Python dictionary of the header: quoted strings, True, False and tuples of integers.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Result<Header> parse() {
    Header header;
    bool seen_descr = false, seen_order = false, seen_shape = false;
    HEKLA_RETURN_IF_ERROR(expect('{'));
    while (!accept('}')) {
      HEKLA_ASSIGN_OR_RETURN(std::string_view key, string());
      HEKLA_RETURN_IF_ERROR(expect(':'));
      if (key == "descr") {
        if (peek() == '[') return invalid_argument("npy: structured arrays are not supported");
        HEKLA_ASSIGN_OR_RETURN(std::string_view text, string());
        HEKLA_ASSIGN_OR_RETURN(header.descriptor, descriptor(text));
        seen_descr = true;
      } else if (key == "fortran_order") {
        HEKLA_ASSIGN_OR_RETURN(header.fortran_order, boolean());
        seen_order = true;
      } else if (key == "shape") {
        HEKLA_ASSIGN_OR_RETURN(header.dims, shape());
        seen_shape = true;
      } else {
        return invalid_argument("npy: unknown key '{}' in the header", key.substr(0, 40));
      }
      if (!accept(',')) {
        HEKLA_RETURN_IF_ERROR(expect('}'));
        break;
      }
    }
    if (!seen_descr || !seen_order || !seen_shape) {
      return invalid_argument("npy: the header lacks descr, fortran_order or shape");
    }
    return header;
  }

 private:
  char peek() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  Status expect(char c) {
    if (accept(c)) return ok_status();
    return invalid_argument("npy: '{}' expected at byte {} of the header", c, at_);
  }
  Result<std::string_view> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') {
      return invalid_argument("npy: a quoted string expected at byte {} of the header", at_);
    }
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) {
      return invalid_argument("npy: the string at byte {} of the header does not end", at_);
    }
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }
  Result<bool> boolean() {
    peek();
    for (const std::string_view word : {std::string_view("True"), std::string_view("False")}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    return invalid_argument("npy: True or False expected at byte {} of the header", at_);
  }
  Result<Dims> shape() {
    HEKLA_RETURN_IF_ERROR(expect('('));
    Dims dims;
    while (!accept(')')) {
      const char first = peek();
      if (first < '0' || first > '9') {
        return invalid_argument("npy: a dimension expected at byte {} of the header", at_);
      }
      int64_t value = 0;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        const int64_t digit = text_[at_++] - '0';
        if (value > (INT64_MAX - digit) / 10) {
          return invalid_argument("npy: a dimension in the header exceeds 2^63");
        }
        value = value * 10 + digit;
      }
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
      dims.push_back(value);
      if (dims.size() > kMaxRank) return invalid_argument("npy: more than {} dimensions", kMaxRank);
      if (!accept(',')) {
        HEKLA_RETURN_IF_ERROR(expect(')'));
        break;
      }
    }
    return dims;
  }
  static Result<Descriptor> descriptor(std::string_view text) {
    Descriptor result;
    std::string_view rest = text;
    if (!rest.empty() && std::strchr("<>|=", rest[0]) != nullptr) {
      result.order = rest[0];
      rest.remove_prefix(1);
    }
    if (rest.size() < 2 || rest.size() > 4) {
      return invalid_argument("npy: unknown type '{}'", text.substr(0, 40));
    }
    result.kind = rest[0];
    for (const char c : rest.substr(1)) {
      if (c < '0' || c > '9') return invalid_argument("npy: unknown type '{}'", text.substr(0, 40));
      result.size = result.size * 10 + (c - '0');
    }
    return result;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// What numpy can name.
DType native_dtype(const Descriptor& d) {
  const auto pick = [&d](std::initializer_list<DType> types) {
    for (const DType type : types) {
      if (dtype_bytes(type) == d.size) return type;
    }
    return DType::kInvalid;
  };
  switch (d.kind) {
    case 'b':
      return pick({DType::kI1});
    case 'i':
      return pick({DType::kI8, DType::kI16, DType::kI32, DType::kI64});
    case 'u':
      return pick({DType::kUI8, DType::kUI16, DType::kUI32, DType::kUI64});
    case 'f':
      return pick({DType::kF16, DType::kF32, DType::kF64});
    case 'c':
      return pick({DType::kC64, DType::kC128});
    default:
      return DType::kInvalid;
  }
}

// The descriptor under which a dtype is written, without byte order.
std::string descriptor_of(DType dtype) {
  const int64_t bytes = dtype_bytes(dtype);
  if (dtype == DType::kI1) return "|b1";
  char kind = 'u';
  if (is_complex(dtype)) {
    kind = 'c';
  } else if (dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kF64 ||
             dtype == DType::kTF32) {
    kind = 'f';
  } else if (is_signed_integer(dtype) && dtype_bits(dtype) >= 8) {
    kind = 'i';
  }
  return fmt::format("{}{}{}", bytes == 1 ? '|' : '<', kind, bytes);
}

Result<DType> choose_dtype(const Descriptor& d, std::optional<DType> as) {
  const DType native = native_dtype(d);
  if (!as || *as == native) {
    if (native != DType::kInvalid) return native;
    return invalid_argument("npy: type '{}{}' has no dtype of its own{}", d.kind, d.size,
                            d.kind == 'V' ? "; name the true one" : "");
  }
  const bool is_raw = (d.kind == 'u' || d.kind == 'V') && d.size == dtype_bytes(*as);
  const bool is_same_form = fmt::format("{}{}", d.kind, d.size) == descriptor_of(*as).substr(1);
  // numpy has no types below eight bits: their values may stand in int8.
  const bool is_small_integer =
      d.kind == 'i' && d.size == 1 && is_signed_integer(*as) && dtype_bytes(*as) == 1;
  if (is_raw || is_same_form || is_small_integer) return *as;
  return invalid_argument("npy: the file holds '{}{}', which cannot be {}", d.kind, d.size,
                          dtype_name(*as));
}

void swap_bytes(std::byte* data, int64_t count, int64_t unit) {
  for (int64_t i = 0; i < count; ++i) std::reverse(data + i * unit, data + (i + 1) * unit);
}

// Copies a column-major array into row-major order.
void reorder(const std::byte* from, std::byte* to, const Dims& dims, int64_t bytes) {
  const size_t rank = dims.size();
  Dims stride(rank);  // of the source, in bytes
  int64_t step = bytes;
  for (size_t i = 0; i < rank; ++i) {
    stride[i] = step;
    step *= dims[i];
  }
  Dims index(rank, 0);
  int64_t offset = 0;
  const int64_t count = element_count(dims);
  for (int64_t k = 0; k < count; ++k) {
    std::memcpy(to + k * bytes, from + offset, static_cast<size_t>(bytes));
    for (size_t i = rank; i-- > 0;) {
      offset += stride[i];
      if (++index[i] < dims[i]) break;
      offset -= stride[i] * dims[i];
      index[i] = 0;
    }
  }
}

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Puts one-byte forms into the shape that the rest of the program relies on (see dtype.h).
void canonicalize(HostArray& array) {
  const DType dtype = array.dtype();
  const int bits = dtype_bits(dtype);
  if (array.size() == 0 || bits >= 8) return;
  auto* data = array.mutable_as<uint8_t>();
  const auto mask = static_cast<uint8_t>((1u << bits) - 1);
  for (int64_t i = 0; i < array.size(); ++i) {
    if (dtype == DType::kI1) {
      data[i] = data[i] != 0;
    } else {
      data[i] &= mask;
      if (is_signed_integer(dtype) && (data[i] >> (bits - 1)) != 0) {
        data[i] |= static_cast<uint8_t>(~mask);
      }
    }
  }
}

}  // namespace

Result<HostArray> parse_npy(std::string_view bytes, std::optional<DType> as) {
  if (!bytes.starts_with(kMagic)) return invalid_argument("npy: no npy file (wrong first bytes)");
  if (bytes.size() < 10) return invalid_argument("npy: the file ends inside its head");
  const int version = static_cast<uint8_t>(bytes[6]);
  if (version < 1 || version > 3 || bytes[7] != 0) {
    return invalid_argument("npy: version {}.{} is not known (1.0 to 3.0 are)", version,
                            static_cast<uint8_t>(bytes[7]));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t start = 8 + length_bytes;
  if (bytes.size() < start) return invalid_argument("npy: the file ends inside its head");
  const size_t length = little_endian(bytes.substr(8, length_bytes));
  if (length > kMaxHeader || length > bytes.size() - start) {
    return invalid_argument("npy: a header of {} bytes in a file of {} bytes", length,
                            bytes.size());
  }
  HEKLA_ASSIGN_OR_RETURN(Header header, HeaderParser(bytes.substr(start, length)).parse());
  HEKLA_ASSIGN_OR_RETURN(const DType dtype, choose_dtype(header.descriptor, as));
  const Result<int64_t> checked = checked_bytes(dtype, header.dims);
  if (!checked.ok()) return invalid_argument("npy: {}", checked.status().message());
  const int64_t size = *checked;
  const std::string_view payload = bytes.substr(start + length);
  if (static_cast<int64_t>(payload.size()) != size) {
    return invalid_argument("npy: {} takes {} bytes, the file has {} after its header",
                            shape_string(dtype, header.dims), size, payload.size());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(dtype, header.dims, false));
  if (size == 0) return array;
  const auto* source = reinterpret_cast<const std::byte*>(payload.data());
  std::byte* target = array.mutable_data();
  if (header.fortran_order && header.dims.size() > 1) {
    reorder(source, target, header.dims, dtype_bytes(dtype));
  } else {
    std::memcpy(target, source, static_cast<size_t>(size));
  }
  if (header.descriptor.order == '>') {
    const int64_t unit = dtype_bytes(complex_part(dtype));
    swap_bytes(target, size / unit, unit);
  }
  canonicalize(array);
  return array;
}

Result<HostArray> read_npy(const std::string& path, std::optional<DType> as) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return not_found("{}: {}", path, std::strerror(errno));
  std::string bytes;
  // In steps, so that memory follows what is really there.
  constexpr size_t kStep = 1 << 20;
  while (true) {
    const size_t old_size = bytes.size();
    bytes.resize(old_size + kStep);
    const size_t count = std::fread(bytes.data() + old_size, 1, kStep, file.get());
    bytes.resize(old_size + count);
    if (count < kStep) break;
  }
  if (std::ferror(file.get()) != 0) return data_loss("{}: {}", path, std::strerror(errno));
  Result<HostArray> array = parse_npy(bytes, as);
  if (!array.ok()) return array.status().with_context(path);
  return array;
}

std::string format_npy(const HostArray& array) {
  std::string shape = fmt::format("{}", fmt::join(array.dims(), ", "));
  if (array.rank() == 1) shape += ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   descriptor_of(array.dtype()), shape);
  const size_t head = header.size() + 1 + 10 > UINT16_MAX ? 12 : 10;
  // numpy pads so that the data start at a multiple of 64 bytes.
  header.append((64 - (head + header.size() + 1) % 64) % 64, ' ').push_back('\n');
  std::string bytes(kMagic);
  bytes.push_back(head == 10 ? 1 : 2);
  bytes.push_back(0);
  for (size_t i = 0; i < head - 8; ++i) bytes.push_back(static_cast<char>(header.size() >> 8 * i));
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(array.data()),
               static_cast<size_t>(array.size_bytes()));
  return bytes;
}

Status write_npy(const std::string& path, const HostArray& array) {
  if (array.dtype() == DType::kInvalid) return invalid_argument("{}: no array to write", path);
  const std::string bytes = format_npy(array);
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return unavailable("{}: {}", path, std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const Status status = unavailable("{}: {}", path, std::strerror(errno));
    std::remove(temporary.c_str());
    return status;
  }
  return ok_status();
}

}  // namespace hekla::runtime
