// SPDX-License-Identifier: Apache-2.0
#include "tools/train/train.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/device/client_source.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"
#include "runtime/client/open.h"
#include "tools/run/compare.h"
#include "tools/train/training.h"

namespace hekla::tools {
namespace {

using checkpoint::CheckpointManager;
using checkpoint::SaveHandle;
using checkpoint::SaveStage;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using SharedBuffer = std::shared_ptr<const runtime::Buffer>;

// Launches that may wait for the device: enough to keep it busy.
constexpr size_t kMaxInFlight = 4;

class Job {
 public:
  Job(const TrainRequest& request, const Training& training)
      : request_(request), training_(training) {
    epochs_ = request.epochs > 0 ? request.epochs : training.epochs;
    steps_ = epochs_ * training.steps_per_epoch;
  }

  Status run() {
    const Clock::time_point start = Clock::now();
    HEKLA_RETURN_IF_ERROR(open());
    HEKLA_RETURN_IF_ERROR(load_state());
    while (step_ < steps_) HEKLA_RETURN_IF_ERROR(advance());
    HEKLA_RETURN_IF_ERROR(manager_->wait());
    report_saved();
    HEKLA_ASSIGN_OR_RETURN(const double accuracy, test());
    const checkpoint::Saver::Counts counts = manager_->counts();
    HEKLA_RETURN_IF_ERROR(manager_->close());
    const std::chrono::duration<double> seconds = Clock::now() - start;
    request_.report({{"event", "end"},
                     {"steps", steps_},
                     {"accuracy", accuracy},
                     {"saved", counts.committed},
                     {"blocked_seconds", blocked_seconds_},
                     {"seconds", seconds.count()}});
    return ok_status();
  }

 private:
  Status open() {
    runtime::Options options;
    for (const std::string& text : request_.client_options) {
      HEKLA_ASSIGN_OR_RETURN(auto option, runtime::parse_option(text));
      options.push_back(std::move(option));
    }
    HEKLA_ASSIGN_OR_RETURN(runtime::Client client, runtime::open_client(request_.device, options));
    client_.emplace(std::move(client));
    HEKLA_ASSIGN_OR_RETURN(runtime::Executable program, client_->compile(training_.step.program));
    program_.emplace(std::move(program));
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<rendezvous::Group> group,
                           rendezvous::Group::form(std::make_shared<rendezvous::LocalStore>(), 0, 1,
                                                   Deadline::in(std::chrono::seconds(60))));
    checkpoint::ManagerOptions manager;
    manager.save.every_steps =
        request_.save_every > 0 ? request_.save_every : training_.steps_per_epoch;
    manager.save.steps = {steps_};
    manager.retention.last = 3;
    HEKLA_ASSIGN_OR_RETURN(manager_, CheckpointManager::open(posix_io(), std::move(group),
                                                             request_.root, std::move(manager)));
    return ok_status();
  }

  Result<SharedBuffer> upload(const HostArray& array) const {
    HEKLA_ASSIGN_OR_RETURN(runtime::Buffer buffer,
                           client_->to_device(array, program_->devices()[0]));
    return std::make_shared<const runtime::Buffer>(std::move(buffer));
  }

  Status load_state() {
    checkpoint::RestoreRequest wanted;
    for (size_t i = 0; i < training_.names.size(); ++i) {
      checkpoint::RestoreTarget target;
      target.name = training_.names[i];
      target.dtype = training_.first_state[i].dtype();
      target.shape = training_.first_state[i].dims();
      wanted.targets.push_back(std::move(target));
    }
    Result<checkpoint::Restored> restored = manager_->restore(wanted);
    const bool is_new = restored.status().code() == StatusCode::kNotFound;
    if (!is_new) {
      HEKLA_RETURN_IF_ERROR(restored.status());
      step_ = restored->step;
      const auto seed = restored->items.find("seed");
      if (step_ > steps_ || seed == restored->items.end() ||
          seed->second != checkpoint::Item(static_cast<int64_t>(training_.seed))) {
        return failed_precondition(
            "{}: step {} is not of a training of {} steps with seed {}; take another root folder",
            request_.root, step_, steps_, training_.seed);
      }
    }
    for (size_t i = 0; i < training_.names.size(); ++i) {
      const HostArray& array =
          is_new ? training_.first_state[i] : restored->tensors.tensors[i].arrays[0];
      HEKLA_ASSIGN_OR_RETURN(SharedBuffer buffer, upload(array));
      state_.push_back(std::move(buffer));
    }
    request_.report(
        {{"event", "started"}, {"step", step_}, {"steps", steps_}, {"resumed", !is_new}});
    return ok_status();
  }

  Status advance() {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> batch, training_.batch_of(step_));
    std::vector<SharedBuffer> examples;
    for (const HostArray& array : batch) {
      HEKLA_ASSIGN_OR_RETURN(SharedBuffer buffer, upload(array));
      examples.push_back(std::move(buffer));
    }
    std::vector<const runtime::Buffer*> arguments;
    for (const SharedBuffer& buffer : state_) arguments.push_back(buffer.get());
    for (const SharedBuffer& buffer : examples) arguments.push_back(buffer.get());
    HEKLA_ASSIGN_OR_RETURN(runtime::Launch launch, program_->launch(std::span(&arguments, 1)));
    ++step_;
    for (size_t i = 0; i < state_.size(); ++i) {
      state_[i] = std::make_shared<const runtime::Buffer>(std::move(launch.outputs[0][i]));
    }
    in_flight_.push_back(std::move(launch.done[0]));
    if (in_flight_.size() > kMaxInFlight) {
      HEKLA_RETURN_IF_ERROR(in_flight_.front().await());
      in_flight_.pop_front();
    }
    HEKLA_ASSIGN_OR_RETURN(const bool is_due, manager_->should_save(step_));
    if (is_due) HEKLA_RETURN_IF_ERROR(save());
    report_saved();
    if (step_ % training_.steps_per_epoch == 0) {
      HEKLA_ASSIGN_OR_RETURN(const HostArray loss, launch.outputs[0].back().to_host());
      request_.report({{"event", "epoch"},
                       {"epoch", step_ / training_.steps_per_epoch},
                       {"epochs", epochs_},
                       {"step", step_},
                       {"loss", element(loss, 0)}});
    }
    return ok_status();
  }

  Result<checkpoint::State> state_to_save() const {
    checkpoint::State state;
    for (size_t i = 0; i < state_.size(); ++i) {
      HEKLA_RETURN_IF_ERROR(add_buffer(&state, training_.names[i], state_[i]));
    }
    state.items["seed"] = static_cast<int64_t>(training_.seed);
    return state;
  }

  Status save() {
    const Clock::time_point start = Clock::now();
    HEKLA_ASSIGN_OR_RETURN(checkpoint::State state, state_to_save());
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<SaveHandle> handle,
                           manager_->save_async(step_, std::move(state)));
    blocked_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    saves_.push_back(std::move(handle));
    return ok_status();
  }

  void report_saved() {
    while (!saves_.empty() && saves_.front()->is_done()) {
      if (saves_.front()->stage() == SaveStage::kCommitted) {
        request_.report({{"event", "saved"}, {"step", saves_.front()->step()}});
      }
      saves_.pop_front();
    }
  }

  Result<double> test() const {
    HEKLA_ASSIGN_OR_RETURN(const runtime::Executable classifier,
                           client_->compile(training_.classifier.program));
    HEKLA_ASSIGN_OR_RETURN(const SharedBuffer examples, upload(training_.classifier.inputs.back()));
    std::vector<const runtime::Buffer*> arguments;
    for (size_t i = 0; i < training_.weights; ++i) arguments.push_back(state_[i].get());
    arguments.push_back(examples.get());
    HEKLA_ASSIGN_OR_RETURN(const runtime::Launch launch,
                           classifier.launch(std::span(&arguments, 1)));
    HEKLA_ASSIGN_OR_RETURN(const HostArray classes, launch.outputs[0][training_.classes].to_host());
    int64_t right = 0;
    for (int64_t i = 0; i < classes.size(); ++i) {
      right +=
          static_cast<int64_t>(element(classes, i)) == training_.labels[static_cast<size_t>(i)];
    }
    return static_cast<double>(right) / static_cast<double>(classes.size());
  }

  const TrainRequest& request_;
  const Training& training_;
  int64_t epochs_ = 0;
  int64_t steps_ = 0;
  int64_t step_ = 0;  // launched so far
  double blocked_seconds_ = 0;
  std::optional<runtime::Client> client_;
  std::optional<runtime::Executable> program_;
  std::vector<SharedBuffer> state_;
  std::deque<runtime::Event> in_flight_;
  std::unique_ptr<CheckpointManager> manager_;
  std::deque<std::shared_ptr<SaveHandle>> saves_;
};

}  // namespace

TrainResult train(const TrainRequest& request) {
  const Result<Training> training = read_training(request.folder);
  if (!training.ok()) return {training.status(), TrainStage::kInput};
  return {Job(request, *training).run(), TrainStage::kDevice};
}

}  // namespace hekla::tools
