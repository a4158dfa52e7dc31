// SPDX-License-Identifier: Apache-2.0
// DeviceProgram: steps of the host within a launch, collectives among them.
#include <future>

#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/launch/device_program_run.h"
#include "backends/vulkan/queue/internal_thread.h"

namespace hekla::vulkan {

namespace {

Status wait_for(const std::function<void(Transfers::Done)>& transfer) {
  std::promise<Status> promise;
  transfer([&](const Status& status) { promise.set_value(status); });
  return promise.get_future().get();
}

}  // namespace

DeviceProgram::HostOperand DeviceProgram::host_operand(const Run& run,
                                                       const plan::Slice& slice) const {
  const auto [memory, offset] = find(run, slice);
  HostOperand operand{*memory, offset, slice.bytes, {}};
  if (operand.memory && slice.bytes > 0 && operand.memory->host() == nullptr) {
    operand.staged.resize(static_cast<size_t>(slice.bytes));
  }
  return operand;
}

Status DeviceProgram::download(HostOperand& operand) const {
  if (operand.staged.empty()) return ok_status();
  return wait_for([&](Transfers::Done done) {
    device_->transfers().download(operand.memory, operand.offset, operand.staged.data(),
                                  operand.size, std::move(done));
  });
}

Status DeviceProgram::upload(const HostOperand& operand) const {
  if (operand.staged.empty()) return ok_status();
  return wait_for([&](Transfers::Done done) {
    device_->transfers().upload(operand.staged.data(), operand.memory, operand.offset, operand.size,
                                std::move(done));
  });
}

reference::LaunchContext DeviceProgram::launch_context(Run& run) const {
  reference::LaunchContext context{run.request.replica, run.request.partition, run.request.number,
                                   program_->host_memory_limit_bytes};
  if (run.request.gang != nullptr) context.cancelled = &run.request.gang->aborted();
  context.exchange = run.request.member.exchange();
  context.transfers = run.request.transfers.get();
  if (run.calls) context.calls = &*run.calls;
  context.device = device_->index();
  context.collectives = run.request.collectives.get();
  return context;
}

Result<size_t> DeviceProgram::run_on_host(Run& run, const HostPart& part) {
  if (part.kind == HostPart::Kind::kStart) {
    HEKLA_RETURN_IF_ERROR(start_collective(run, std::get<plan::StartStep>(part.step->what)));
    return size_t{0};
  }
  if (part.kind == HostPart::Kind::kDone) {
    HEKLA_RETURN_IF_ERROR(end_collective(run, std::get<plan::DoneStep>(part.step->what)));
    return size_t{0};
  }
  std::vector<HostOperand> operands;
  std::vector<bool> are_written;
  plan::for_each_slice(*part.step, *program_->plan,
                       [&](const plan::Slice& slice, const plan::Use& use) {
                         operands.push_back(host_operand(run, slice));
                         are_written.push_back(use.is_written);
                       });
  std::vector<std::span<std::byte>> bytes;
  for (HostOperand& operand : operands) {
    HEKLA_RETURN_IF_ERROR(download(operand));
    bytes.push_back(operand.bytes());
  }
  LaunchEnd* const end = run.request.transfers != nullptr || run.calls ? run.end.get() : nullptr;
  if (end != nullptr) HEKLA_RETURN_IF_ERROR(end->enter_client());
  const Result<size_t> choice = run_host_part(part, *program_, bytes, launch_context(run));
  if (end != nullptr) end->leave_client();
  HEKLA_RETURN_IF_ERROR(choice.status());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (are_written[i]) HEKLA_RETURN_IF_ERROR(upload(operands[i]));
  }
  HEKLA_RETURN_IF_ERROR(device_->device().health());
  return *choice;
}

Status DeviceProgram::start_collective(Run& run, const plan::StartStep& step) {
  if (run.under_way == nullptr) {
    const bool has_peers = run.request.member.exchange() != nullptr;
    SerialQueue* lane = has_peers ? &device_->communication() : nullptr;
    // Several such launches may be on the device at once, one waiting for the other in a callback.
    if (has_peers && run.request.transfers != nullptr) {
      run.own_lane = std::make_unique<SerialQueue>(internal_thread_options());
      lane = run.own_lane.get();
    }
    run.under_way = std::make_unique<reference::CollectivesUnderWay>(lane);
  }
  std::vector<HostOperand> operands;
  std::vector<HostOperand>& kept = run.results[step.number];
  for (const plan::Slice& slice : step.inputs) operands.push_back(host_operand(run, slice));
  for (const plan::Slice& slice : step.outputs) kept.push_back(host_operand(run, slice));
  std::vector<std::span<std::byte>> inputs, outputs;
  for (HostOperand& operand : operands) {
    HEKLA_RETURN_IF_ERROR(download(operand));
    inputs.push_back(operand.bytes());
  }
  for (HostOperand& operand : kept) outputs.push_back(operand.bytes());
  return run.under_way->start(step.number, *step.program, inputs, outputs, {launch_context(run)})
      .with_context(step.name);
}

Status DeviceProgram::end_collective(Run& run, const plan::DoneStep& step) {
  HEKLA_RETURN_IF_ERROR(run.under_way->await(step.number));
  const auto kept = run.results.extract(step.number);
  for (const HostOperand& result : kept.mapped()) HEKLA_RETURN_IF_ERROR(upload(result));
  return device_->device().health();
}

}  // namespace hekla::vulkan
