// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/convert.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/format/stored_type.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/box_copy.h"
#include "runtime/checkpoint/sharding/mesh.h"
#include "runtime/checkpoint/sharding/tiles.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/safetensors.h"
#include "tools/ckpt/step_writer.h"

namespace hekla::tools {

using checkpoint::Box;
using checkpoint::TensorInfo;

namespace {

constexpr const char* kSuffix = ".safetensors";
// Metadata: what the tensors that went as bytes are.
constexpr const char* kDTypesKey = "hekla.dtypes";

// One file of a conversion: which tensors, and where.
struct Planned {
  SafetensorsHeader header;
  std::vector<int32_t> ids;  // of header.tensors
  int64_t bytes = 0;
};

std::vector<Planned> plan_files(const checkpoint::StepReader& step, int64_t max_bytes) {
  const auto& tensors = step.index().tensors();
  std::vector<int32_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  // Wide elements first: then each tensor is aligned to its element without holes.
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const auto key = [&](int32_t id) {
      const TensorInfo& tensor = tensors[static_cast<size_t>(id)];
      return std::pair(-checkpoint::stored_bits(tensor.dtype), std::string_view(tensor.name));
    };
    return key(a) < key(b);
  });
  std::vector<Planned> files(1);
  for (const int32_t id : order) {
    const int64_t bytes = tensor_bytes(tensors[static_cast<size_t>(id)]);
    if (files.back().bytes > 0 && bytes > max_bytes - files.back().bytes) files.emplace_back();
    files.back().ids.push_back(id);
    files.back().bytes += bytes;
  }
  return files;
}

// Fills in the header; types that the format lacks, or of less than whole bytes, go as bytes.
void describe(const checkpoint::StepReader& step, Planned& file,
              std::vector<std::string>& as_bytes) {
  nlohmann::json dtypes = nlohmann::json::object();
  int64_t at = 0;
  for (const int32_t id : file.ids) {
    const TensorInfo& tensor = step.index().tensors()[static_cast<size_t>(id)];
    const int64_t bytes = tensor_bytes(tensor);
    SafeTensor entry{tensor.name, tensor.dtype, tensor.shape, at, at + bytes};
    const bool is_whole =
        element_count(tensor.shape) * checkpoint::stored_bits(tensor.dtype) == bytes * 8;
    if (safetensors_dtype(tensor.dtype).empty() || !is_whole) {
      entry.dtype = DType::kUI8;
      entry.shape = {bytes};
      dtypes[tensor.name] = {{"dtype", checkpoint::stored_type(tensor.dtype)->name},
                             {"shape", tensor.shape}};
      as_bytes.push_back(tensor.name);
    }
    file.header.tensors.push_back(std::move(entry));
    at += bytes;
  }
  file.header.metadata["format"] = "pt";  // what other loaders ask for
  if (!dtypes.empty()) file.header.metadata[kDTypesKey] = dtypes.dump();
}

// Undoes what `describe` did to types that safetensors lacks.
Status restore_dtypes(SafetensorsHeader& header) {
  const auto found = header.metadata.find(kDTypesKey);
  if (found == header.metadata.end()) return ok_status();
  const auto dtypes = nlohmann::json::parse(found->second, nullptr, false);
  for (SafeTensor& tensor : header.tensors) {
    if (!dtypes.is_object() || !dtypes.contains(tensor.name)) continue;
    const auto& entry = dtypes[tensor.name];
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
        !entry.contains("shape") || !entry["shape"].is_array()) {
      return data_loss("{} of tensor '{}' needs dtype and shape", kDTypesKey, tensor.name);
    }
    const DType dtype =
        checkpoint::dtype_from_stored_name(entry["dtype"].get_ref<const std::string&>());
    Dims shape;
    for (const auto& size : entry["shape"]) {
      if (!size.is_number_integer()) return data_loss("{}: a shape without sizes", kDTypesKey);
      shape.push_back(size.get<int64_t>());
    }
    if (tensor.dtype != DType::kUI8 || dtype == DType::kInvalid ||
        !checked_bytes(dtype, shape).ok() ||
        checkpoint::stored_bytes(dtype, element_count(shape)) != tensor.end - tensor.begin) {
      return data_loss("{} does not fit tensor '{}'", kDTypesKey, tensor.name);
    }
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
  }
  return ok_status();
}

struct SourceFile {
  File file;
  int64_t data_offset = 0;
  SafetensorsHeader header;
};

Result<SourceFile> open_safetensors(Io& io, const std::string& path) {
  SourceFile source;
  HEKLA_ASSIGN_OR_RETURN(source.file, File::open(io, path, O_RDONLY));
  HEKLA_ASSIGN_OR_RETURN(const FileInfo info, source.file.info());
  std::byte length[8];
  HEKLA_RETURN_IF_ERROR(source.file.read(length, 0));
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i)
    header_bytes = header_bytes << 8 | std::to_integer<uint64_t>(length[i]);
  if (header_bytes > static_cast<uint64_t>(kMaxSafetensorsHeader) ||
      static_cast<int64_t>(header_bytes) > info.size - 8) {
    return data_loss("{}: a safetensors header of {} bytes in a file of {}, the limit is {}", path,
                     header_bytes, info.size, kMaxSafetensorsHeader);
  }
  std::string json(header_bytes, '\0');
  HEKLA_RETURN_IF_ERROR(source.file.read(std::as_writable_bytes(std::span(json)), 8));
  source.data_offset = 8 + static_cast<int64_t>(header_bytes);
  auto header = parse_safetensors_header(json, info.size - source.data_offset);
  if (!header.ok()) return header.status().with_context(path);
  source.header = *std::move(header);
  HEKLA_RETURN_IF_ERROR(restore_dtypes(source.header).with_context(path));
  return source;
}

// The box as it lies in a tensor that is stored whole at `offset`.
Status read_stored(const File& file, int64_t offset, const TensorInfo& tensor, const Box& box,
                   std::span<std::byte> memory, std::vector<std::byte>& scratch) {
  const Box whole = checkpoint::whole_box(tensor.shape);
  const checkpoint::BoxCopy copy(tensor.dtype, whole, box, box.size, box);
  const auto range = copy.stored_range();
  scratch.resize(static_cast<size_t>(range.end - range.begin));
  HEKLA_RETURN_IF_ERROR(file.read(scratch, offset + range.begin));
  copy.load(scratch, range.begin, memory.data());
  return ok_status();
}

Result<std::shared_ptr<const checkpoint::HeldBoxes>> boxes_of(const TensorInfo& tensor,
                                                              const checkpoint::Mesh& mesh,
                                                              const Resharding& how,
                                                              std::string& spec_text) {
  for (const std::string& text : how.specs) {
    const size_t equals = text.find('=');
    const bool has_pattern = equals != text.npos;
    if (has_pattern && !checkpoint::matches(tensor.name, text.substr(0, equals))) continue;
    const std::string spec = has_pattern ? text.substr(equals + 1) : text;
    HEKLA_ASSIGN_OR_RETURN(checkpoint::Sharding sharding, checkpoint::parse_sharding(fmt::format(
                                                              "mesh={} spec={}", how.mesh, spec)));
    if (!has_pattern && sharding.spec.dims.size() > tensor.shape.size()) sharding.spec = {};
    spec_text = checkpoint::sharding_text(sharding);
    return checkpoint::held_boxes(sharding, tensor.shape);
  }
  const checkpoint::Sharding whole{mesh, {}};
  spec_text = checkpoint::sharding_text(whole);
  return checkpoint::held_boxes(whole, tensor.shape);
}

}  // namespace

Result<Conversion> to_safetensors(const checkpoint::StepReader& step, const std::string& to,
                                  int64_t max_file_bytes) {
  Io& io = posix_io();
  const bool is_file = to.ends_with(kSuffix);
  std::vector<Planned> files = plan_files(step, is_file ? INT64_MAX : max_file_bytes);
  Conversion done;
  nlohmann::json weights = nlohmann::json::object();
  std::vector<std::string> heads;
  for (size_t i = 0; i < files.size(); ++i) {
    describe(step, files[i], done.as_bytes);
    HEKLA_ASSIGN_OR_RETURN(std::string head, safetensors_header(files[i].header));
    heads.push_back(std::move(head));
    done.bytes += files[i].bytes;
    done.tensors += static_cast<int64_t>(files[i].ids.size());
  }
  Progress progress("convert", done.bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        files.size() == 1 ? std::string("model") + kSuffix
                          : fmt::format("model-{:05}-of-{:05}{}", i + 1, files.size(), kSuffix);
    const std::string path = is_file ? to : join_path(to, name);
    HEKLA_ASSIGN_OR_RETURN(NewOutput output, NewOutput::create(io, path));
    HEKLA_RETURN_IF_ERROR(output.file().write(std::as_bytes(std::span(heads[i])), 0));
    const auto data = static_cast<int64_t>(heads[i].size());
    for (size_t k = 0; k < files[i].ids.size(); ++k) {
      const SafeTensor& tensor = files[i].header.tensors[k];
      HEKLA_RETURN_IF_ERROR(
          write_tensor(step, files[i].ids[k], output.file(), data + tensor.begin, progress));
      weights[tensor.name] = name;
    }
    HEKLA_RETURN_IF_ERROR(output.finish());
    done.files.push_back(path);
  }
  if (files.size() > 1) {
    const nlohmann::json index = {{"metadata", {{"total_size", done.bytes}}},
                                  {"weight_map", weights}};
    const std::string path = join_path(to, std::string("model") + kSuffix + ".index.json");
    HEKLA_RETURN_IF_ERROR(replace_file(io, path, index.dump(2) + "\n"));
    done.files.push_back(path);
  }
  return done;
}

Result<Conversion> from_safetensors(Io& io, const std::string& from, const std::string& to,
                                    int64_t step_number) {
  std::vector<std::string> paths;
  if (from.ends_with(kSuffix)) {
    paths.push_back(from);
  } else {
    HEKLA_ASSIGN_OR_RETURN(const auto entries, list_folder(io, from));
    for (const auto& entry : entries) {
      if (entry.name.ends_with(kSuffix)) paths.push_back(join_path(from, entry.name));
    }
    if (paths.empty()) return not_found("{} has no *{} files", from, kSuffix);
  }
  std::vector<SourceFile> sources;
  struct StoredTensor {
    size_t source;
    int64_t offset;
    TensorInfo info;
  };
  std::vector<StoredTensor> tensors;
  for (const std::string& path : paths) {
    HEKLA_ASSIGN_OR_RETURN(SourceFile source, open_safetensors(io, path));
    for (const SafeTensor& tensor : source.header.tensors) {
      tensors.push_back({sources.size(),
                         source.data_offset + tensor.begin,
                         {tensor.name, tensor.dtype, tensor.shape, ""}});
    }
    sources.push_back(std::move(source));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.info.name < b.info.name; });
  std::vector<checkpoint::TensorLayout> layouts;
  for (const StoredTensor& tensor : tensors) {
    const checkpoint::Holding whole{0, checkpoint::whole_box(tensor.info.shape)};
    HEKLA_ASSIGN_OR_RETURN(auto boxes,
                           checkpoint::held_boxes(std::span(&whole, 1), tensor.info.shape));
    layouts.push_back({tensor.info, std::move(boxes)});
  }
  StepToWrite step;
  HEKLA_ASSIGN_OR_RETURN(step.plan, checkpoint::make_save_plan(layouts, {}));
  step.step = step_number;
  std::vector<std::byte> scratch;
  HEKLA_ASSIGN_OR_RETURN(const std::string written,
                         write_step(
                             io, to, step,
                             [&](int32_t id, const Box& box, std::span<std::byte> memory) {
                               const StoredTensor& tensor = tensors[static_cast<size_t>(id)];
                               return read_stored(sources[tensor.source].file, tensor.offset,
                                                  tensor.info, box, memory, scratch);
                             },
                             "convert"));
  Conversion done;
  done.files = {written};
  done.tensors = static_cast<int64_t>(tensors.size());
  for (const StoredTensor& tensor : tensors) done.bytes += tensor_bytes(tensor.info);
  return done;
}

Result<Conversion> reshard(const checkpoint::StepReader& from, const std::string& to,
                           const Resharding& how) {
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::Sharding mesh_only,
                         checkpoint::parse_sharding(fmt::format("mesh={} spec=()", how.mesh)));
  std::vector<std::pair<TensorInfo, int32_t>> order;  // and the tensor's number in `from`
  for (size_t i = 0; i < from.index().tensors().size(); ++i) {
    order.emplace_back(from.index().tensors()[i], static_cast<int32_t>(i));
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  std::vector<checkpoint::TensorLayout> layouts;
  Conversion done;
  for (auto& [info, id] : order) {
    std::string spec;
    auto boxes = boxes_of(info, mesh_only.mesh, how, spec);
    if (!boxes.ok()) return boxes.status().with_context("tensor '" + info.name + "'");
    info.spec = spec;
    layouts.push_back({info, *std::move(boxes)});
    done.bytes += tensor_bytes(info);
  }
  StepToWrite step;
  checkpoint::SaveOptions options;
  options.world_size = static_cast<int32_t>(checkpoint::device_count(mesh_only.mesh));
  for (const int64_t device : mesh_only.mesh.device_ids) {
    options.world_size = std::max(options.world_size, static_cast<int32_t>(device) + 1);
  }
  HEKLA_ASSIGN_OR_RETURN(step.plan, checkpoint::make_save_plan(layouts, options));
  step.step = from.commit().step;
  step.world_size = options.world_size;
  step.reason = from.commit().reason;
  step.metrics = from.commit().metrics;
  for (const auto& file : from.commit().files) {
    if (file.path.starts_with("extra/")) {
      step.extra.push_back({file.path, join_path(from.folder(), file.path)});
    }
  }
  HEKLA_ASSIGN_OR_RETURN(
      const std::string written,
      write_step(
          posix_io(), to, step,
          [&](int32_t id, const Box& box, std::span<std::byte> memory) {
            const checkpoint::Wanted wanted{order[static_cast<size_t>(id)].second, box, {}};
            std::byte* const target = memory.data();
            return from.read(std::span(&wanted, 1), std::span(&target, 1));
          },
          "reshard"));
  done.files = {written};
  done.tensors = static_cast<int64_t>(order.size());
  return done;
}

}  // namespace hekla::tools
