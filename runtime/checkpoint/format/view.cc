// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/view.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "runtime/checkpoint/format/hdf5_objects.h"
#include "runtime/checkpoint/format/memory_file.h"
#include "runtime/checkpoint/format/stored_type.h"

namespace hekla::checkpoint {
namespace {

// A piece in the coordinates of what is stored: its box, or its range of packed bytes.
struct Part {
  const Piece* piece;
  size_t number;  // among the tensor's pieces
  Box box;
};

// HDF5 replaces '%' sequences in the names of a virtual dataset's sources.
std::string source_name(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

// Where a box of a packed tensor begins and ends in bytes, if it is one run of whole bytes.
std::optional<Box> packed_range(const TensorInfo& tensor, const Box& box) {
  const size_t rank = tensor.shape.size();
  // One run: after the first dimension of more than one element, all others are whole.
  size_t d = 0;
  while (d < rank && box.size[d] == 1) ++d;
  for (size_t k = d + 1; k < rank; ++k) {
    if (box.size[k] != tensor.shape[k]) return std::nullopt;
  }
  int64_t first = 0;
  for (size_t k = 0; k < rank; ++k) first = first * tensor.shape[k] + box.start[k];
  const int64_t elements = element_count(box.size);
  const int bits = stored_bits(tensor.dtype);
  // Eight elements take whole bytes whatever their width.
  const bool last = first + elements == element_count(tensor.shape);
  if (first % 8 * bits % 8 != 0 || (!last && elements % 8 * bits % 8 != 0)) return std::nullopt;
  return Box{{stored_bytes(tensor.dtype, first)}, {stored_bytes(tensor.dtype, elements)}};
}

Status set_fill(hid_t creation, hid_t type, DType dtype) {
  const auto nan = nan_bits(dtype);
  if (!nan || stored_bits(dtype) < 8) return ok_status();
  std::array<std::byte, 16> fill{};
  const auto part = static_cast<size_t>(dtype_bytes(complex_part(dtype)));
  std::memcpy(fill.data(), &*nan, part);
  if (is_complex(dtype)) std::memcpy(fill.data() + part, &*nan, part);
  return check_hdf5(H5Pset_fill_value(creation, type, fill.data()), "set fill value");
}

bool shows_holes(DType dtype) { return nan_bits(dtype).has_value() && stored_bits(dtype) >= 8; }

Status add_mapping(hid_t creation, hid_t whole, const TensorInfo& tensor, const Part& part,
                   const std::string& file) {
  const std::vector<hsize_t> start(part.box.start.begin(), part.box.start.end());
  const std::vector<hsize_t> size(part.box.size.begin(), part.box.size.end());
  HEKLA_RETURN_IF_ERROR(check_hdf5(
      H5Sselect_hyperslab(whole, H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr),
      "select a box"));
  HEKLA_ASSIGN_OR_RETURN(const Handle source,
                         own(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr),
                             H5Sclose, "space of a source"));
  const std::string dataset = fmt::format("/state/{}/p{}", tensor.name, part.number);
  return check_hdf5(H5Pset_virtual(creation, whole, source_name(file).c_str(),
                                   source_name(dataset).c_str(), source.get()),
                    "map " + dataset);
}

class ViewWriter {
 public:
  ViewWriter(const StepIndex& index, hid_t file, ObjectWriter& writer)
      : index_(index), file_(file), writer_(writer) {}

  Status add(int32_t id) {
    const TensorInfo& tensor = index_.tensors[static_cast<size_t>(id)];
    const std::string path = "/" + tensor.name;
    HEKLA_RETURN_IF_ERROR(
        writer_.make_groups(std::string_view(path).substr(0, path.rfind('/'))).status());
    std::vector<Part> parts;
    std::set<int32_t> files;
    bool is_mappable = true;
    const std::span<const Piece> pieces = index_.pieces_of(id);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].bytes == 0) continue;
      const bool is_packed = stored_type(tensor.dtype)->as == StoredAs::kPacked;
      const auto box = is_packed ? packed_range(tensor, pieces[i].box) : pieces[i].box;
      is_mappable = is_mappable && box.has_value();
      parts.push_back({&pieces[i], i, box.value_or(Box{})});
      files.insert(pieces[i].file);
    }
    if (parts.empty()) return writer_.make_dataset(path, tensor.dtype, tensor.shape).status();
    if (parts.size() == 1) return add_link(path, tensor, parts[0]);
    if (files.size() > kMaxViewSources) {
      return add_warning(path, tensor,
                         fmt::format("in {} files, more than the {} that readers can "
                                     "be trusted with",
                                     files.size(), kMaxViewSources));
    }
    if (!is_mappable) return add_warning(path, tensor, "packed and cut within bytes or rows");
    return add_virtual(path, tensor, parts, files.size());
  }

 private:
  Status add_link(const std::string& path, const TensorInfo& tensor, const Part& part) {
    const std::string& file = index_.files[static_cast<size_t>(part.piece->file)].path;
    const std::string dataset = fmt::format("/state/{}/p{}", tensor.name, part.number);
    return check_hdf5(H5Lcreate_external(file.c_str(), dataset.c_str(), file_, path.c_str(),
                                         writer_.link_creation(), H5P_DEFAULT),
                      path);
  }

  Status add_virtual(const std::string& path, const TensorInfo& tensor,
                     const std::vector<Part>& parts, size_t files) {
    HEKLA_ASSIGN_OR_RETURN(const hid_t type, writer_.type(tensor.dtype));
    HEKLA_ASSIGN_OR_RETURN(const Handle creation,
                           own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation"));
    HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_obj_track_times(creation.get(), false), "set times"));
    HEKLA_RETURN_IF_ERROR(set_fill(creation.get(), type, tensor.dtype));
    HEKLA_ASSIGN_OR_RETURN(const Handle whole, make_space(tensor.dtype, tensor.shape));
    for (const Part& part : parts) {
      HEKLA_RETURN_IF_ERROR(add_mapping(creation.get(), whole.get(), tensor, part,
                                        index_.files[static_cast<size_t>(part.piece->file)].path));
    }
    HEKLA_RETURN_IF_ERROR(check_hdf5(H5Sselect_all(whole.get()), "select all"));
    HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                           own(H5Dcreate2(file_, path.c_str(), type, whole.get(),
                                          writer_.link_creation(), creation.get(), H5P_DEFAULT),
                               H5Dclose, path));
    HEKLA_RETURN_IF_ERROR(writer_.add_attributes(dataset.get(), tensor.dtype, tensor.shape));
    HEKLA_RETURN_IF_ERROR(
        writer_.number_attribute(dataset.get(), "expected_files", static_cast<int64_t>(files)));
    HEKLA_RETURN_IF_ERROR(writer_.number_attribute(dataset.get(), "complete", 1));
    if (shows_holes(tensor.dtype)) return ok_status();
    return writer_.text_attribute(
        dataset.get(), "warning",
        "a missing shard file reads as zeros without an error; check with `hekla ckpt verify`");
  }

  Status add_warning(const std::string& path, const TensorInfo& tensor, const std::string& why) {
    HEKLA_ASSIGN_OR_RETURN(const hid_t type, writer_.type(tensor.dtype));
    HEKLA_ASSIGN_OR_RETURN(const Handle space, own(H5Screate(H5S_NULL), H5Sclose, "no space"));
    HEKLA_ASSIGN_OR_RETURN(const Handle creation,
                           own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation"));
    HEKLA_RETURN_IF_ERROR(check_hdf5(H5Pset_obj_track_times(creation.get(), false), "set times"));
    HEKLA_ASSIGN_OR_RETURN(const Handle dataset,
                           own(H5Dcreate2(file_, path.c_str(), type, space.get(),
                                          writer_.link_creation(), creation.get(), H5P_DEFAULT),
                               H5Dclose, path));
    HEKLA_RETURN_IF_ERROR(writer_.add_attributes(dataset.get(), tensor.dtype, tensor.shape));
    HEKLA_RETURN_IF_ERROR(writer_.number_attribute(dataset.get(), "complete", 0));
    return writer_.text_attribute(
        dataset.get(), "warning",
        fmt::format("no data here: the tensor is {}; `hekla ckpt consolidate` writes one file",
                    why));
  }

  const StepIndex& index_;
  const hid_t file_;
  ObjectWriter& writer_;
};

}  // namespace

Result<std::vector<std::byte>> make_view(const StepIndex& index) {
  NewFile::Bytes bytes;
  HEKLA_RETURN_IF_ERROR(on_hdf5_thread([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(NewFile memory, NewFile::create(0, 0));
    HEKLA_ASSIGN_OR_RETURN(ObjectWriter writer, ObjectWriter::create(memory.id()));
    HEKLA_RETURN_IF_ERROR(writer.text_attribute(memory.id(), "format", "hekla-view"));
    HEKLA_RETURN_IF_ERROR(writer.number_attribute(memory.id(), "step", index.step));
    ViewWriter view(index, memory.id(), writer);
    for (size_t i = 0; i < index.tensors.size(); ++i) {
      HEKLA_RETURN_IF_ERROR(view.add(static_cast<int32_t>(i)));
    }
    HEKLA_ASSIGN_OR_RETURN(bytes, std::move(memory).finish());
    return ok_status();
  }));
  bytes.head.insert(bytes.head.end(), bytes.tail.begin(), bytes.tail.end());
  return std::move(bytes.head);
}

}  // namespace hekla::checkpoint
