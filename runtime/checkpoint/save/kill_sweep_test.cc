// SPDX-License-Identifier: Apache-2.0
// The kill sweep over whole saves: HDF5 shards, frozen tensors that step 2 links from step 1, and
// compressed pieces. commit/testing/kill_sweep.h says how it is started.
#include "runtime/checkpoint/commit/testing/kill_sweep.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/commit/testing/sample_save.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/save/testing/savers.h"

namespace hekla::checkpoint {
namespace {

using Values = testing::State;

// "frozen" is the same in all steps, "coded" compresses, "plain" does neither; small ones go with
// the metadata.
Values values_of(int64_t step) {
  std::mt19937_64 random(static_cast<uint64_t>(step)), same(99);
  const std::string rows = "mesh=(a:4) spec=(a)", copies = "mesh=(a:4) spec=()";
  Values values;
  values.add("plain", DType::kF32, {130, 512}, rows, random);
  values.add("bias", DType::kBF16, {33}, copies, random);
  values.add("frozen/rows", DType::kF32, {133, 512}, rows, same);
  values.add("frozen/copy", DType::kI8, {100}, copies, same);
  HostArray coded(DType::kI32, {515, 128});
  for (int64_t i = 0; i < hekla::element_count(coded.dims()); ++i) {
    const auto value = static_cast<int32_t>(i / 100 + step);
    std::memcpy(coded.mutable_data() + 4 * i, &value, 4);
  }
  values.add("coded", DType::kI32, {515, 128}, rows, random);
  for (size_t t = 0; t < values.tensors.size(); ++t) {
    if (values.tensors[t].name == "coded") values.values[t] = coded;
  }
  return values;
}

SaverOptions options_of_test() {
  SaverOptions options = testing::small_options();
  options.commit = quick_options();
  options.writer.threads = 1;
  options.plan.frozen = {"frozen/*"};
  options.plan.compress = {{"coded", Compression::kZstd}};
  return options;
}

Status save_part(Io& io, rendezvous::Group& group, const std::string& root, int64_t step,
                 bool overwrite) {
  HEKLA_ASSIGN_OR_RETURN(const RootInfo info, open_root(io, root));
  HEKLA_ASSIGN_OR_RETURN(const auto saver,
                         Saver::create(io, group, root, info.run_uuid, options_of_test()));
  SaveArguments arguments;
  arguments.overwrite = overwrite;
  HEKLA_ASSIGN_OR_RETURN(
      const auto handle,
      saver->save(step, testing::state_of(values_of(step), group.rank(), group.world()),
                  arguments));
  return handle->wait();
}

Status save_whole(Io& io, const std::string& root, int64_t step, int world) {
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::vector<Status> results(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      results[static_cast<size_t>(rank)] = [&]() -> Status {
        HEKLA_ASSIGN_OR_RETURN(
            const auto group,
            rendezvous::Group::form(store, rank, world, Deadline::in(std::chrono::seconds(30))));
        return save_part(io, *group, root, step, false);
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : results) HEKLA_RETURN_IF_ERROR(status);
  return ok_status();
}

// All tensors of a step, every digest compared; the kinds of files that it should have.
// `has_links`: frozen ones are links to the step before.
Status check_step(Io& io, const std::string& root, int64_t step, bool has_links) {
  StepReaderOptions options;
  options.verify = Verify::kFull;
  HEKLA_ASSIGN_OR_RETURN(const auto reader,
                         StepReader::open(io, join_path(root, step_name(step)), options));
  const Values values = values_of(step);
  if (reader->tensors().size() != values.tensors.size()) return data_loss("other tensors");
  for (size_t t = 0; t < values.tensors.size(); ++t) {
    HEKLA_ASSIGN_OR_RETURN(const auto tensor, reader->tensor(values.tensors[t].name));
    HEKLA_ASSIGN_OR_RETURN(const HostArray array, tensor.read());
    if (!array.identical(values.values[t])) {
      return data_loss("step {} has other values of {}", step, values.tensors[t].name);
    }
  }
  int frozen = 0, packed = 0;
  for (const FileRecord& file : reader->commit().files) {
    const bool is_frozen = file.path.starts_with("data/frozen-");
    if (is_frozen && has_links && !file.origin) return internal_error("{} is no link", file.path);
    frozen += is_frozen ? 1 : 0;
    packed += file.path.starts_with("data/packed-") ? 1 : 0;
  }
  if (frozen == 0 || packed == 0) return internal_error("no frozen or packed files in {}", step);
  return ok_status();
}

class SweptState final : public SweptSave {
 public:
  Status prepare(Io& io, const std::string& root) override {
    return save_whole(io, root, 1, kWorld);
  }
  Status save(Io& io, rendezvous::Group& group, const std::string& root, int64_t step,
              bool overwrite) override {
    return save_part(io, group, root, step, overwrite);
  }
  Status save_next(Io& io, const std::string& root, int64_t step) override {
    return save_whole(io, root, step, 2);
  }
  Result<int64_t> check(Io& io, const std::string& root) override {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<StepEntry> steps, list_steps(io, root));
    int64_t newest = -1;
    bool has_first = false;
    for (const StepEntry& entry : steps) has_first = has_first || entry.step == 1;
    for (const StepEntry& entry : steps) {
      HEKLA_RETURN_IF_ERROR(entry.status);
      HEKLA_RETURN_IF_ERROR(check_step(io, root, entry.step, has_first && entry.step == 2));
      newest = std::max(newest, entry.step);
    }
    return newest;
  }
};

}  // namespace
}  // namespace hekla::checkpoint

int main(int argc, char** argv) {
  using namespace hekla::checkpoint;
  return run_kill_sweep(argc, argv, std::make_unique<SweptState>(), 60);
}
