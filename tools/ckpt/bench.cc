// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/io/writer.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/save/saver.h"
#include "runtime/checkpoint/sharding/mesh.h"
#include "runtime/rendezvous/store.h"

namespace hekla::tools {

using checkpoint::FileWriter;
using checkpoint::WriterPool;

namespace {

constexpr int64_t kTensorBytes = int64_t{64} << 20;
constexpr int64_t kRowBytes =
    4096;  // pieces of whole pages, so that direct I/O takes them as they are

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Result<Memory> make_memory(int64_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(bytes)));
  if (memory == nullptr) return resource_exhausted("no {} bytes of memory", bytes);
  uint64_t state = 88172645463325252;
  for (int64_t at = 0; at < bytes; at += 8) {  // also touches every page
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(memory + at, &state, 8);
  }
  return Memory(memory);
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double cpu() const { return cpu_now() - cpu_start_; }

 private:
  static double cpu_now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
  }
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double cpu_start_ = cpu_now();
};

class Bench {
 public:
  Bench(Io& io, std::string folder, const BenchOptions& options)
      : io_(io), folder_(std::move(folder)), options_(options) {}

  Result<BenchReport> run() {
    HEKLA_RETURN_IF_ERROR(prepare());
    BenchReport report;
    report.bytes = bytes_;
    double longest_save = 0, longest_restore = 0;
    const auto keep = [](double& best, double seconds) {
      best = best == 0 ? seconds : std::min(best, seconds);
    };
    for (int round = 0; round < options_.repeat; ++round) {
      const std::string raw = join_path(folder_, "raw");
      Stopwatch raw_write;
      HEKLA_RETURN_IF_ERROR(write_raw(raw));
      keep(report.raw_write, raw_write.seconds());
      Stopwatch save;
      HEKLA_RETURN_IF_ERROR(save_step(round));
      const double save_seconds = save.seconds();
      longest_save = std::max(longest_save, save_seconds);
      if (report.save == 0 || save_seconds < report.save) report.save_cpu = save.cpu();
      keep(report.save, save_seconds);
      if (options_.read) {
        Stopwatch raw_read;
        HEKLA_RETURN_IF_ERROR(read_raw(raw));
        keep(report.raw_read, raw_read.seconds());
        Stopwatch restore;
        HEKLA_RETURN_IF_ERROR(restore_step(round));
        const double seconds = restore.seconds();
        longest_restore = std::max(longest_restore, seconds);
        if (report.restore == 0 || seconds < report.restore) report.restore_cpu = restore.cpu();
        keep(report.restore, seconds);
        if (std::memcmp(state_.get(), restored_.get(), static_cast<size_t>(bytes_)) != 0) {
          return data_loss("the step in {} gave back other bytes than were saved", folder_);
        }
      }
      HEKLA_RETURN_IF_ERROR(unlink_file(io_, raw));
      HEKLA_RETURN_IF_ERROR(checkpoint::delete_step(io_, folder_, round));
    }
    report.spread_save = longest_save / report.save;
    if (report.restore > 0) report.spread_restore = longest_restore / report.restore;
    if (!options_.write) report.raw_write = report.save = report.save_cpu = 0;
    return report;
  }

 private:
  Status prepare() {
    if (options_.bytes < kTensorBytes || options_.ranks < 1 || options_.ranks > 64 ||
        options_.repeat < 1) {
      return invalid_argument("bench needs at least {} bytes, 1 to 64 ranks and one round",
                              kTensorBytes);
    }
    const int64_t count = options_.bytes / kTensorBytes;
    bytes_ = count * kTensorBytes;
    const checkpoint::Sharding sharding{{{{{"rank", options_.ranks}}, {}}, {}}, {{{"rank"}}, {}}};
    const Dims shape = {kTensorBytes / kRowBytes, kRowBytes};
    HEKLA_ASSIGN_OR_RETURN(boxes_, checkpoint::held_boxes(sharding, shape));
    for (int64_t i = 0; i < count; ++i) {
      tensors_.push_back({fmt::format("layer/{:06}/weight", i), DType::kUI8, shape, ""});
    }
    HEKLA_ASSIGN_OR_RETURN(state_, make_memory(bytes_));
    if (options_.read) {
      HEKLA_ASSIGN_OR_RETURN(restored_, make_memory(bytes_));
    }
    HEKLA_RETURN_IF_ERROR(make_folders(io_, folder_));
    HEKLA_ASSIGN_OR_RETURN(const auto root, checkpoint::open_root(io_, folder_));
    run_uuid_ = root.run_uuid;
    checkpoint::WriterOptions writer;
    writer.staging_bytes = writer.item_bytes;  // the state is in memory already
    HEKLA_ASSIGN_OR_RETURN(pool_, WriterPool::create(io_, writer));
    return start_ranks();
  }

  Status write_raw(const std::string& path) {
    HEKLA_ASSIGN_OR_RETURN(auto writer, FileWriter::create(*pool_, path, bytes_, 0));
    writer->add({state_.get(), bytes_, 0, -1});
    HEKLA_RETURN_IF_ERROR(writer->drain());
    return writer->close();
  }

  // A group of threads with a saver each, made before the clock starts.
  Status start_ranks() {
    auto store = std::make_shared<rendezvous::LocalStore>();
    ranks_.resize(static_cast<size_t>(options_.ranks));
    return on_each_rank([&](int32_t number) -> Status {
      Rank& rank = ranks_[static_cast<size_t>(number)];
      HEKLA_ASSIGN_OR_RETURN(rank.group,
                             rendezvous::Group::form(store, number, options_.ranks,
                                                     Deadline::in(std::chrono::minutes(1))));
      checkpoint::SaverOptions options;
      options.writer.staging_bytes = options.writer.item_bytes;  // the state lies in memory
      HEKLA_ASSIGN_OR_RETURN(
          rank.saver, checkpoint::Saver::create(io_, *rank.group, folder_, run_uuid_, options));
      return ok_status();
    });
  }

  Status on_each_rank(const std::function<Status(int32_t)>& work) {
    std::vector<Status> results(static_cast<size_t>(options_.ranks));
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < options_.ranks; ++rank) {
      threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = work(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : results) HEKLA_RETURN_IF_ERROR(status);
    return ok_status();
  }

  Status save_step(int64_t step) {
    return on_each_rank([&](int32_t number) -> Status {
      checkpoint::State state;
      for (size_t t = 0; t < tensors_.size(); ++t) {
        checkpoint::StateTensor tensor{tensors_[t], boxes_, {}};
        for (const checkpoint::HeldBox& held : *boxes_) {
          if (held.ranks.front() != number) continue;
          const std::byte* data =
              state_.get() + static_cast<int64_t>(t) * kTensorBytes + held.box.start[0] * kRowBytes;
          tensor.arrays.push_back({held.box,
                                   {},
                                   checkpoint::host_source(HostArray::wrap(
                                       DType::kUI8, held.box.size, nullptr, data))});
        }
        state.tensors.push_back(std::move(tensor));
      }
      HEKLA_ASSIGN_OR_RETURN(const auto handle, ranks_[static_cast<size_t>(number)].saver->save(
                                                    step, std::move(state)));
      return handle->wait();
    });
  }

  Status read_raw(const std::string& path) {
    HEKLA_ASSIGN_OR_RETURN(const auto reader, checkpoint::Reader::create(io_, {}));
    checkpoint::ReadRequest request;
    request.bytes = bytes_;
    request.into = restored_.get();
    return reader->read(std::span(&path, 1), std::span(&request, 1));
  }

  Status restore_step(int64_t step) {
    HEKLA_ASSIGN_OR_RETURN(
        const auto reader,
        checkpoint::StepReader::open(io_, join_path(folder_, checkpoint::step_name(step))));
    std::vector<checkpoint::Wanted> wanted;
    std::vector<std::byte*> targets;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Dims& shape = tensors_[t].shape;
      wanted.push_back({static_cast<int32_t>(t), {Dims(shape.size(), 0), shape}, {}});
      targets.push_back(restored_.get() + static_cast<int64_t>(t) * kTensorBytes);
    }
    return reader->read(wanted, targets);
  }

  Io& io_;
  const std::string folder_;
  const BenchOptions options_;
  int64_t bytes_ = 0;
  std::string run_uuid_;
  std::vector<checkpoint::TensorInfo> tensors_;
  std::shared_ptr<const checkpoint::HeldBoxes> boxes_;
  struct Rank {
    std::unique_ptr<rendezvous::Group> group;
    std::unique_ptr<checkpoint::Saver> saver;
  };
  std::vector<Rank> ranks_;
  Memory state_, restored_;
  std::unique_ptr<WriterPool> pool_;
};

}  // namespace

Result<BenchReport> bench(Io& io, const std::string& folder, const BenchOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(const auto existing, find_file(io, folder));
  if (existing) {
    HEKLA_ASSIGN_OR_RETURN(const auto entries, list_folder(io, folder));
    if (!entries.empty())
      return failed_precondition("{} is not empty; give another folder", folder);
  }
  auto report = Bench(io, folder, options).run();
  HEKLA_RETURN_IF_ERROR(remove_tree(io, folder));
  return report;
}

}  // namespace hekla::tools
