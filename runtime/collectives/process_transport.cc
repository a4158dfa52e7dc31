// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/process_transport.h"

#include <utility>

#include "runtime/base/host.h"
#include "runtime/base/protobuf_wire.h"
#include "runtime/collectives/carrier_library.h"
#include "runtime/collectives/network_address.h"
#include "runtime/collectives/shared_segment.h"

namespace hekla::collectives {
namespace {

// As long as clients wait for each other's devices.
constexpr std::chrono::minutes kCardTimeout(2);
// Transports that a process may make one after the other.
constexpr int kMaxGenerations = 1000;
// In place of a NetworkCard, before the words why there is none.
constexpr std::string_view kProblem = "problem: ";

}  // namespace

std::string ProcessTransport::Card::text() const {
  wire::Writer writer;
  writer.bytes(1, engine);
  writer.bytes(2, host);
  if (!memory.empty()) writer.bytes(3, memory);
  if (!network.empty()) writer.bytes(4, network);
  if (!problem.empty()) writer.bytes(5, problem);
  return writer.text();
}

Result<ProcessTransport::Card> ProcessTransport::Card::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  Card card;
  for (const wire::Field& field : fields) {
    if (field.number == 1) card.engine = field.bytes;
    if (field.number == 2) card.host = field.bytes;
    if (field.number == 3) card.memory = field.bytes;
    if (field.number == 4) card.network = field.bytes;
    if (field.number == 5) card.problem = field.bytes;
  }
  return card;
}

std::string ProcessTransport::key(std::string_view what, int process) const {
  return fmt::format("{}/{}/{}/{}", prefix_, what, generation_, process);
}

Result<std::unique_ptr<ProcessTransport>> ProcessTransport::create(
    std::shared_ptr<rendezvous::KeyValueStore> store, std::string prefix, int rank, int size,
    Events events, const ProcessTransportOptions& options) {
  std::unique_ptr<ProcessTransport> made(new ProcessTransport());
  made->store_ = std::move(store);
  made->prefix_ = std::move(prefix);
  made->rank_ = rank;
  made->size_ = size;
  made->options_ = options;
  made->gate_ = std::make_shared<EventGate>();
  made->events_ = EventGate::guard(made->gate_, std::move(events));
  made->engines_.resize(static_cast<size_t>(size));
  made->own_.engine = options.engine;
  made->own_.host = host_name();
  // Where there is no engine the others hear of it instead of waiting.
  const Status opened = made->open_engine();
  if (!opened.ok()) made->own_.problem = opened.message();
  // A process may make several transports one after the other; stores take a key once.
  for (;; ++made->generation_) {
    const Status put = made->store_->put(made->key("process", rank), made->own_.text());
    if (put.code() == StatusCode::kAlreadyExists && made->generation_ < kMaxGenerations) continue;
    HEKLA_RETURN_IF_ERROR(opened);
    HEKLA_RETURN_IF_ERROR(put);
    return made;
  }
}

Status ProcessTransport::open_engine() {
  if (!is_network_alone(options_.engine)) {
    SharedMemoryOptions memory;
    memory.silence = options_.silence;
    HEKLA_ASSIGN_OR_RETURN(memory_, SharedMemory::create(rank_, size_, events_, memory));
    own_.memory = memory_->card();
    return ok_status();
  }
  std::vector<int> peers;
  for (int p = 0; p < size_; ++p) {
    if (p != rank_) peers.push_back(p);
  }
  HEKLA_RETURN_IF_ERROR(open_network(peers));
  own_.network = network_->card();
  return ok_status();
}

ProcessTransport::~ProcessTransport() { gate_->close(); }

Status ProcessTransport::open_network(const std::vector<int>& peers) {
  NetworkOptions network;
  const bool is_ucx = options_.engine == "ucx" || options_.engine == "auto_ucx";
  HEKLA_ASSIGN_OR_RETURN(network.carrier,
                         carrier_table(is_ucx ? CarrierKind::kUcx : CarrierKind::kGloo));
  HEKLA_ASSIGN_OR_RETURN(network.address,
                         own_network_address(options_.address, options_.coordinator));
  network.silence = options_.silence;
  HEKLA_ASSIGN_OR_RETURN(network_, NetworkTransport::create(rank_, size_, peers, events_, network));
  return ok_status();
}

Result<ProcessTransport::Card> ProcessTransport::card_of(int process) {
  if (const auto known = cards_.find(process); known != cards_.end()) return known->second;
  HEKLA_ASSIGN_OR_RETURN(const std::string text,
                         store_->get(key("process", process), kCardTimeout));
  HEKLA_ASSIGN_OR_RETURN(Card card, Card::read(text));
  return cards_.emplace(process, std::move(card)).first->second;
}

Result<ProcessTransport::Way> ProcessTransport::way_to(const Card& card) const {
  if (card.engine != options_.engine) {
    return failed_precondition(
        "it exchanges through '{}' and process {} through '{}' (process_transport): give all "
        "processes of a run the same",
        card.engine, rank_, options_.engine);
  }
  if (!card.problem.empty()) return failed_precondition("it says: {}", card.problem);
  if (is_network_alone(options_.engine)) return Way::kNetwork;
  if (options_.engine == "shm") return Way::kMemory;
  HEKLA_ASSIGN_OR_RETURN(const SegmentCard own, SegmentCard::read(own_.memory));
  HEKLA_ASSIGN_OR_RETURN(const SegmentCard theirs, SegmentCard::read(card.memory));
  return own.is_near(theirs) ? Way::kMemory : Way::kNetwork;
}

Status ProcessTransport::put_network_card() {
  std::vector<int> peers;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    Result<Card> other = card_of(p);
    if (!other.ok()) return other.status().with_context(fmt::format("process {}", p));
    const Result<Way> way = way_to(*other);
    if (way.ok() && *way == Way::kNetwork) peers.push_back(p);
  }
  network_status_ = open_network(peers);
  const std::string text =
      network_status_.ok() ? network_->card() : std::string(kProblem) + network_status_.message();
  const Status put = store_->put(key("network", rank_), text);
  if (network_status_.ok()) network_status_ = put;
  has_put_network_ = true;
  return ok_status();
}

Status ProcessTransport::reach_over_network(int process, const Card& card) {
  std::string network = card.network;
  if (network.empty()) {
    if (!has_put_network_) HEKLA_RETURN_IF_ERROR(put_network_card());
    HEKLA_RETURN_IF_ERROR(network_status_);
    HEKLA_ASSIGN_OR_RETURN(network, store_->get(key("network", process), kCardTimeout));
  }
  if (network.starts_with(kProblem)) {
    return failed_precondition("it says: {}", network.substr(kProblem.size()));
  }
  HEKLA_RETURN_IF_ERROR(network_->connect(process, network));
  const std::lock_guard lock(mutex_);
  engines_[static_cast<size_t>(process)] = network_.get();
  return ok_status();
}

Status ProcessTransport::reach(int process) {
  if (engine_of(process) != nullptr) return ok_status();
  HEKLA_ASSIGN_OR_RETURN(const Card card, card_of(process));
  HEKLA_ASSIGN_OR_RETURN(const Way way, way_to(card));
  if (way == Way::kNetwork) return reach_over_network(process, card);
  HEKLA_RETURN_IF_ERROR(memory_->connect(process, card.memory));
  const std::lock_guard lock(mutex_);
  engines_[static_cast<size_t>(process)] = memory_.get();
  return ok_status();
}

void ProcessTransport::meet() {
  const std::lock_guard lock(connect_mutex_);
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    const Result<Card> card = card_of(p);
    if (!card.ok()) continue;
    const Result<Way> way = way_to(*card);
    if (way.ok() && *way == Way::kNetwork && engine_of(p) == nullptr) {
      static_cast<void>(reach_over_network(p, *card));
    }
  }
}

Status ProcessTransport::connect(int process) {
  const std::lock_guard lock(connect_mutex_);
  const Status status = reach(process);
  return status.ok() ? status : status.with_context(fmt::format("process {}", process));
}

Transport* ProcessTransport::engine_of(int process) const {
  const std::lock_guard lock(mutex_);
  return engines_[static_cast<size_t>(process)];
}

std::string ProcessTransport::name(int process) const {
  const Transport* const engine = engine_of(process);
  return engine == nullptr ? fmt::format("process {}", process) : engine->name(process);
}

Status ProcessTransport::status(int process) const {
  const Transport* const engine = engine_of(process);
  if (engine == nullptr) return failed_precondition("process {} is not connected", process);
  return engine->status(process);
}

std::chrono::nanoseconds ProcessTransport::silent_for(int process) const {
  const Transport* const engine = engine_of(process);
  return engine == nullptr ? std::chrono::nanoseconds(0) : engine->silent_for(process);
}

void ProcessTransport::send(int process, Message message, CompletionRef sent) {
  Transport* const engine = engine_of(process);
  if (engine != nullptr) return engine->send(process, std::move(message), std::move(sent));
  if (sent != nullptr) {
    sent->complete(failed_precondition("process {} is not connected", process));
  }
}

void ProcessTransport::abandon(int process, const Status& why) {
  Transport* const engine = engine_of(process);
  if (engine != nullptr) engine->abandon(process, why);
}

}  // namespace hekla::collectives
