// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/c_api/handles.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"

using namespace hekla;              // NOLINT: the C functions stand in no namespace
using namespace hekla::checkpoint;  // NOLINT

namespace {

using Json = nlohmann::json;

Result<Verify> verify_of(std::string_view text) {
  if (text == "touched") return Verify::kTouched;
  if (text == "full") return Verify::kFull;
  if (text == "none") return Verify::kNone;
  return invalid_argument("verify is touched, full or none, not {}", text);
}

Result<std::string> info(const StepReader& step) {
  const CommitRecord& commit = step.commit();
  Json json = {{"step", commit.step},
               {"folder", step.folder()},
               {"reason", commit.reason},
               {"wall_time", commit.wall_time},
               {"world_size", commit.world_size},
               {"metrics", commit.metrics},
               {"tensors", Json::array()},
               {"files", Json::array()},
               {"items", nullptr}};
  for (const TensorInfo& tensor : step.index().tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", dtype_name(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"spec", tensor.spec}});
  }
  for (const FileRecord& file : commit.files) {
    const std::string folder = fmt::format("{}/", kExtraFolder);
    if (file.path == kItemsFile) {
      HEKLA_ASSIGN_OR_RETURN(json["items"], step.read_file(file.path));
    } else if (file.path.starts_with(folder)) {
      json["files"].push_back(file.path.substr(folder.size()));
    }
  }
  return json.dump();
}

Status read(const StepReader& step, int64_t count, const char* const* names, const int64_t* boxes,
            void* const* into, const int64_t* bytes) {
  std::vector<Wanted> wanted(static_cast<size_t>(count));
  std::vector<std::byte*> targets(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].tensor = step.index().find(names[i]);
    if (wanted[i].tensor < 0) {
      return not_found("step {} has no tensor \"{}\"", step.commit().step, names[i]);
    }
    const TensorInfo& tensor = step.index().tensors()[static_cast<size_t>(wanted[i].tensor)];
    const size_t n = tensor.shape.size();
    wanted[i].box = {Dims(boxes, boxes + n), Dims(boxes + n, boxes + 2 * n)};
    boxes += 2 * n;
    HEKLA_ASSIGN_OR_RETURN(const int64_t size, checked_bytes(tensor.dtype, wanted[i].box.size));
    if (size != bytes[i]) {
      return invalid_argument("the box of \"{}\" takes {} bytes; there is room for {}", names[i],
                              size, bytes[i]);
    }
    targets[i] = static_cast<std::byte*>(into[i]);
  }
  return step.read(wanted, targets);
}

}  // namespace

const char* hekla_checkpoint_error(void) { return c_api::last_error().c_str(); }
void hekla_checkpoint_set_error(const char* message) {
  c_api::run([&] {
    c_api::last_error() = message;
    return ok_status();
  });
}
void hekla_checkpoint_free(char* text) { delete[] text; }

int hekla_checkpoint_step_open(const char* root, int64_t step, const char* verify,
                               hekla_checkpoint_step** opened) {
  return c_api::run([&]() -> Status {
    StepReaderOptions options;
    HEKLA_ASSIGN_OR_RETURN(options.verify, verify_of(verify));
    int64_t chosen = step;
    if (step < 0) {
      HEKLA_ASSIGN_OR_RETURN(chosen, newest_step(posix_io(), root));
      if (chosen < 0) return not_found("{} has no valid step", root);
    }
    HEKLA_ASSIGN_OR_RETURN(StepLease lease, StepLease::acquire(posix_io(), root, chosen));
    std::string folder = lease.folder();
    HEKLA_ASSIGN_OR_RETURN(auto reader,
                           StepReader::open(posix_io(), std::move(folder), options,
                                            std::make_shared<StepLease>(std::move(lease))));
    *opened = new hekla_checkpoint_step{std::move(reader)};
    return ok_status();
  });
}

void hekla_checkpoint_step_destroy(hekla_checkpoint_step* step) { delete step; }

int hekla_checkpoint_step_info(hekla_checkpoint_step* step, char** json) {
  return c_api::run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::string text, info(*step->reader));
    *json = c_api::give(text);
    return ok_status();
  });
}

int hekla_checkpoint_step_read(hekla_checkpoint_step* step, int64_t count, const char* const* names,
                               const int64_t* boxes, void* const* into, const int64_t* bytes) {
  return c_api::run([&] { return read(*step->reader, count, names, boxes, into, bytes); });
}

int hekla_checkpoint_step_read_file(hekla_checkpoint_step* step, const char* name, char** data,
                                    int64_t* bytes) {
  return c_api::run([&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(const std::string text,
                           step->reader->read_file(fmt::format("{}/{}", kExtraFolder, name)));
    *data = c_api::give(text);
    *bytes = static_cast<int64_t>(text.size());
    return ok_status();
  });
}

int64_t hekla_checkpoint_step_bytes_read(hekla_checkpoint_step* step) {
  return step->reader->bytes_read();
}
