// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/ucx/pair.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runtime/base/hash.h"
#include "runtime/collectives/ucx/device.h"

namespace hekla::collectives::carrier {
namespace {

// Of the message by which both ends know that they have each other.
constexpr uint64_t kHelloChannel = UINT64_MAX;
constexpr ucp_tag_t kWholeTag = UINT64_MAX;
// How much is taken at once with the mutex held.
constexpr int kTurns = 64;
// How long what has been sent may take to go out when the pair is closed.
constexpr std::chrono::milliseconds kClosingTime(500);

uint64_t random_word() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

// UCX ends the process where an address is none of its own, so a name carries its hash.
struct NameHead {
  uint64_t hash;  // of the address
  uint64_t word;  // of tags
};

void check(ucs_status_t status) {
  if (status != UCS_OK) throw std::runtime_error(ucs_status_string(status));
}

}  // namespace

Pair::Pair(Device& device, std::chrono::milliseconds connect_time)
    : device_(device), connect_time_(connect_time), word_(random_word()) {
  ucp_worker_params_t parameters = {};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(ucp_worker_create(device.context(), &parameters, &worker_));
  try {
    check(ucp_worker_get_efd(worker_, &descriptor_));
    ucp_worker_attr_t attributes = {};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    check(ucp_worker_query(worker_, &attributes));
    const std::string address(reinterpret_cast<const char*>(attributes.address),
                              attributes.address_length);
    ucp_worker_release_address(worker_, attributes.address);
    const NameHead head{fnv1a(address), word_};
    name_ = std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + address;
    if (name_.size() > kMaxNameBytes) throw std::runtime_error("an address of too many bytes");
    const Lock lock(mutex_);
    progress();
  } catch (...) {
    ucp_worker_destroy(worker_);
    throw;
  }
}

Pair::~Pair() { destroy_worker(); }

void Pair::serve() {
  const Lock lock(mutex_);
  progress();
}

void Pair::check_open() const {
  if (worker_ == nullptr || !failure_.empty()) {
    throw std::runtime_error(failure_.empty() ? "closed" : failure_);
  }
}

void Pair::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
  changed_.notify_all();
}

// UCX tells the sends of a connection that it has failed, and leaves receives as they are.
void Pair::progress() {
  if (worker_ == nullptr) return;
  bool is_armed = false;
  for (int turn = 0; turn < kTurns && !is_armed; ++turn) {
    if (ucp_worker_progress(worker_) != 0) continue;
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status != UCS_OK && status != UCS_ERR_BUSY) fail(ucs_status_string(status));
    is_armed = status != UCS_ERR_BUSY;
  }
  if (!is_armed) ucp_worker_signal(worker_);
  if (failure_.empty()) return;
  for (PairBuffer* const buffer : buffers_) {
    for (Operation& operation : buffer->sides_[kReceive].posted) cancel(operation);
  }
}

template <typename IsOver>
bool Pair::progress_until(Lock& lock, Clock::time_point end, const IsOver& is_over) {
  progress();
  return changed_.wait_until(lock, end, [&] { return is_over() || !failure_.empty(); }) &&
         is_over();
}

void Pair::completed(void* request, ucs_status_t status, Operation& operation) {
  operation.status = status;
  operation.request = nullptr;
  ucp_request_free(request);
  operation.pair->changed_.notify_all();
}

void Pair::post(Operation& operation, Direction direction, uint64_t channel,
                std::span<std::byte> bytes) {
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.user_data = &operation;
  ucs_status_ptr_t request = nullptr;
  if (direction == kSend && endpoint_ == nullptr) {
    operation.status = UCS_ERR_NOT_CONNECTED;
    return;
  }
  if (direction == kSend) {
    parameters.cb.send = [](void* done, ucs_status_t status, void* data) {
      completed(done, status, *static_cast<Operation*>(data));
    };
    request = ucp_tag_send_nbx(endpoint_, bytes.data(), bytes.size(), partner_word_ ^ channel,
                               &parameters);
  } else {
    parameters.cb.recv = [](void* done, ucs_status_t status, const ucp_tag_recv_info_t*,
                            void* data) {
      completed(done, status, *static_cast<Operation*>(data));
    };
    request = ucp_tag_recv_nbx(worker_, bytes.data(), bytes.size(), word_ ^ channel, kWholeTag,
                               &parameters);
  }
  if (UCS_PTR_IS_ERR(request)) {
    operation.status = UCS_PTR_STATUS(request);
  } else if (request == nullptr) {
    operation.status = UCS_OK;
  } else if (operation.status == UCS_INPROGRESS) {
    operation.request = request;
  }
}

void Pair::cancel(Operation& operation) {
  if (operation.request != nullptr) ucp_request_cancel(worker_, operation.request);
}

void Pair::create_endpoint(const std::string& address) {
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.arg = this;
  parameters.err_handler.cb = [](void* own, ucp_ep_h, ucs_status_t status) {
    static_cast<Pair*>(own)->fail(ucs_status_string(status));
  };
  const ucs_status_t status = ucp_ep_create(worker_, &parameters, &endpoint_);
  if (status != UCS_OK) fail(ucs_status_string(status));
}

void Pair::connect(std::string_view partner) {
  char sent = 0, received = 0;
  Operation operations[] = {{this}, {this}};
  Lock lock(mutex_);
  check_open();
  NameHead head = {};
  std::memcpy(&head, partner.data(), std::min(partner.size(), sizeof(head)));
  const std::string address(partner.substr(std::min(partner.size(), sizeof(head))));
  if (address.empty() || head.hash != fnv1a(address)) {
    throw std::runtime_error("no address of UCX's");
  }
  partner_word_ = head.word;
  const Clock::time_point end = Clock::now() + connect_time_;
  const auto is_over = [&](Direction direction) {
    return operations[direction].status != UCS_INPROGRESS;
  };
  post(operations[kReceive], kReceive, kHelloChannel,
       std::as_writable_bytes(std::span(&received, 1)));
  // One after the other: where connections of both ends cross and are lost, UCX handles an event of
  // one that it has just closed, and ends the process.
  bool is_met = name_ < partner || progress_until(lock, end, [&] { return is_over(kReceive); });
  if (is_met) {
    create_endpoint(address);
    post(operations[kSend], kSend, kHelloChannel, std::as_writable_bytes(std::span(&sent, 1)));
    is_met = progress_until(lock, end, [&] { return is_over(kSend) && is_over(kReceive); });
  }
  if (!is_met) fail("the other end does not answer");
  if (failure_.empty()) {
    for (const Operation& operation : operations) {
      if (operation.status != UCS_OK) fail(ucs_status_string(operation.status));
    }
  }
  if (failure_.empty()) return;
  // What is under way uses this function's memory.
  destroy_worker();
  throw std::runtime_error(failure_);
}

void Pair::shut() {
  const Lock lock(mutex_);
  fail("closed here");
}

std::string Pair::why_closed() {
  const Lock lock(mutex_);
  return worker_ == nullptr && failure_.empty() ? "closed" : failure_;
}

void Pair::close_endpoint(bool by_force) {
  ucp_ep_h const endpoint = std::exchange(endpoint_, nullptr);
  if (endpoint == nullptr) return;
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = by_force ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &parameters);
  if (!UCS_PTR_IS_PTR(request)) return;
  const Clock::time_point end = Clock::now() + kClosingTime;
  while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::now() < end) {
    if (ucp_worker_progress(worker_) == 0) std::this_thread::yield();
  }
  ucp_request_free(request);
}

void Pair::destroy_worker() {
  if (worker_ == nullptr) return;
  device_.remove(*this);
  close_endpoint(true);
  for (PairBuffer* const buffer : buffers_) {
    for (PairBuffer::Side& side : buffer->sides_) {
      for (Operation& operation : side.posted) cancel(operation);
    }
  }
  ucp_worker_destroy(std::exchange(worker_, nullptr));
}

void Pair::close() {
  const Lock lock(mutex_);
  if (worker_ != nullptr) close_endpoint(!failure_.empty());
  destroy_worker();
}

// ---- PairBuffer ----

PairBuffer::PairBuffer(std::shared_ptr<Pair> pair, std::span<std::byte> memory)
    : pair_(std::move(pair)), memory_(memory) {
  const Pair::Lock lock(pair_->mutex_);
  pair_->check_open();
  pair_->buffers_.insert(this);
}

PairBuffer::~PairBuffer() {
  const Pair::Lock lock(pair_->mutex_);
  bool is_under_way = false;
  for (Side& side : sides_) {
    for (Pair::Operation& operation : side.posted) {
      pair_->cancel(operation);
      is_under_way = is_under_way || operation.status == UCS_INPROGRESS;
    }
  }
  // UCX keeps the address of what it has begun.
  if (is_under_way) {
    pair_->fail("its memory is wanted back");
    pair_->destroy_worker();
  }
  pair_->buffers_.erase(this);
}

void PairBuffer::send(uint64_t channel, size_t offset, size_t bytes) {
  post(Pair::kSend, channel, offset, bytes);
}

void PairBuffer::receive(uint64_t channel, size_t offset, size_t bytes) {
  post(Pair::kReceive, channel, offset, bytes);
}

void PairBuffer::post(Pair::Direction direction, uint64_t channel, size_t offset, size_t bytes) {
  const Pair::Lock lock(pair_->mutex_);
  if (direction == Pair::kSend || pair_->worker_ == nullptr) pair_->check_open();
  Pair::Operation& operation = sides_[direction].posted.emplace_back(pair_.get());
  // Of a pair that has failed what came before can still be received; progress() cancels the rest.
  pair_->post(operation, direction, channel, memory_.subspan(offset, bytes));
  pair_->progress();
}

bool PairBuffer::take(Side& side) {
  if (side.posted.empty()) {
    pair_->check_open();
    return false;
  }
  const Pair::Operation& first = side.posted.front();
  if (first.status == UCS_INPROGRESS) {
    pair_->check_open();
    return false;
  }
  const ucs_status_t status = first.status;
  side.posted.pop_front();
  if (status == UCS_OK) return true;
  pair_->fail(ucs_status_string(status));
  throw std::runtime_error(pair_->failure_);
}

Waited PairBuffer::wait(Pair::Direction direction) {
  Side& side = sides_[direction];
  Pair::Lock lock(pair_->mutex_);
  for (;;) {
    if (take(side)) return kDone;
    if (std::exchange(side.is_woken, false)) return kWoken;
    pair_->changed_.wait(lock);
  }
}

void PairBuffer::last(Pair::Direction direction, std::chrono::milliseconds most) {
  Side& side = sides_[direction];
  Pair::Lock lock(pair_->mutex_);
  const Pair::Clock::time_point end = Pair::Clock::now() + most;
  while (!take(side)) {
    if (Pair::Clock::now() >= end) {
      pair_->fail("the other end takes too long");
    } else {
      pair_->changed_.wait_until(lock, end);
    }
  }
}

void PairBuffer::wake(Pair::Direction direction) {
  const Pair::Lock lock(pair_->mutex_);
  sides_[direction].is_woken = true;
  pair_->changed_.notify_all();
}

}  // namespace hekla::collectives::carrier
