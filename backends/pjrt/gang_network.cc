// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/gang_network.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "backends/pjrt/gang_link.h"
#include "runtime/base/log.h"
#include "runtime/base/protobuf_wire.h"

namespace hekla::pjrt {
namespace {

using collectives::Message;

// Of launches that others began before this process.
constexpr uint64_t kMaxAhead = uint64_t{1} << 20;

enum class NoteKind : uint8_t { kLaunch = 1, kData = 2, kAbort = 3, kFinish = 4 };

// A message's head: 1 kind, 2 the processes, 3 the launch's number, 4 text (of a launch the
// program's name, of an abort its message, else what the sender's handler is to read), 5 the
// program's signature, 6 the code of an abort, 7 the communicator.
struct Note {
  NoteKind kind = NoteKind::kData;
  std::vector<int64_t> processes;
  uint64_t number = 0;
  std::string text;
  std::string signature;
  int64_t code = 0;
  std::string communicator;
};

std::string write_note(const Note& note) {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(note.kind));
  writer.packed(2, note.processes);
  writer.varint(3, note.number);
  writer.bytes(4, note.text);
  if (!note.signature.empty()) writer.bytes(5, note.signature);
  if (note.code != 0) writer.varint(6, static_cast<uint64_t>(note.code));
  if (!note.communicator.empty()) writer.bytes(7, note.communicator);
  return writer.text();
}

Result<Note> read_note(std::string_view head) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(head));
  Note note;
  for (const wire::Field& field : fields) {
    if (field.number == 1) note.kind = static_cast<NoteKind>(field.value);
    if (field.number == 2) {
      HEKLA_ASSIGN_OR_RETURN(note.processes, wire::parse_varints(field));
    }
    if (field.number == 3) note.number = field.value;
    if (field.number == 4) note.text = field.bytes;
    if (field.number == 5) note.signature = field.bytes;
    if (field.number == 6) note.code = static_cast<int64_t>(field.value);
    if (field.number == 7) note.communicator = field.bytes;
  }
  return note;
}

std::string processes_text(const std::vector<int>& processes) {
  return fmt::format("{}", fmt::join(processes, ", "));
}

Status status_of_note(const Note& note) {
  const bool is_known =
      note.code > 0 && note.code <= static_cast<int>(StatusCode::kUnauthenticated);
  return {is_known ? static_cast<StatusCode>(note.code) : StatusCode::kUnknown, note.text};
}

}  // namespace

OptionTable gang_network_option_table(GangNetworkOptions& options) {
  OptionTable table;
  table.integer("process_silence_seconds", "HEKLA_PROCESS_SILENCE_SECONDS", options.silence_seconds,
                {0, int64_t{1} << 30}, "60",
                "how long another process of the run may show no sign of life, because it is "
                "stopped, before launches that need it end with DEADLINE_EXCEEDED, which names it; "
                "that one has died is seen at once; 0: for ever");
  table.text(
      "process_transport", "HEKLA_PROCESS_TRANSPORT", options.transport,
      {collectives::kProcessEngines.begin(), collectives::kProcessEngines.end()}, "auto",
      "what processes exchange through, the same for all of them: shm: shared memory, which "
      "those of one machine have; gloo, ucx: the network, by Gloo or by UCX; auto, auto_ucx: "
      "shared memory where it reaches, else Gloo or UCX");
  table.text("process_address", "HEKLA_PROCESS_ADDRESS", options.address, {},
             "that of the route to the coordinator, else the default route's",
             "by which interface other machines reach this process: its name, an address or a name "
             "of this machine");
  table.text("coordinator_address", "JAX_COORDINATOR_ADDRESS", options.coordinator, {}, "none",
             "where the processes of the run meet, host:port; `jax.distributed` sets it");
  return table;
}

// What has come for one launch; without a gang as long as it has not begun here.
struct GangNetwork::Inbox {
  struct Early {
    int from;
    std::string head;
    std::vector<HostArray> blocks;
  };
  struct Launched {
    std::string name, signature;
  };
  std::mutex mutex;
  // Guarded by mutex.
  bool has_begun = false;
  std::weak_ptr<Gang> gang;
  std::shared_ptr<const GangProgram> program;
  GangLink::Handler handler;
  std::vector<Early> early;          // data for the handler
  std::map<int, Launched> launched;  // by process
  std::map<int, bool> has_finished;  // by process
  Status aborted;                    // by another process
  int told_by = -1;                  // the process that the gang's error came from first

  // Of the mutex: where another process launches another program.
  Status compare(int own) const {
    for (const auto& [process, one] : launched) {
      if (one.signature == program->signature) continue;
      const bool is_same_name = one.name == program->name;
      return failed_precondition(
          "processes {} launch different programs: {} process {}, {} process {}{}; all processes "
          "launch the same programs in the same order",
          processes_text(program->processes), program->name, own, one.name, process,
          is_same_name ? ", of the same name and another text or other compile options" : "");
    }
    return ok_status();
  }
};

class GangNetwork::Link final : public GangLink {
 public:
  Link(std::shared_ptr<GangNetwork> network, std::shared_ptr<Inbox> inbox, GangProgramRef program,
       uint64_t number)
      : network_(std::move(network)),
        inbox_(std::move(inbox)),
        program_(std::move(program)),
        number_(number) {}
  ~Link() override { network_->forget({program_->processes, program_->communicator}, number_); }

  int own_process() const override { return static_cast<int>(network_->process_.index); }
  int process_of(int64_t device) const override {
    return program_->process_of[static_cast<size_t>(device)];
  }

  void listen(Handler handler) override {
    for (;;) {
      std::vector<Inbox::Early> early;
      {
        const std::lock_guard lock(inbox_->mutex);
        if (inbox_->early.empty()) {
          inbox_->handler = std::move(handler);
          return;
        }
        early.swap(inbox_->early);
      }
      for (auto& one : early) handler(one.from, std::move(one.head), std::move(one.blocks));
    }
  }

  void send(int process, std::string head, std::vector<HostArray> blocks) override {
    Note note;
    note.text = std::move(head);
    send_note(process, std::move(note), std::move(blocks));
  }

  void send_note(int process, Note note, std::vector<HostArray> blocks = {}) {
    note.processes.assign(program_->processes.begin(), program_->processes.end());
    note.number = number_;
    note.communicator = program_->communicator;
    // What was sent before it arrives before it.
    CompletionRef sent;
    if (note.kind == NoteKind::kFinish) {
      sent = Completion::make();
      const std::lock_guard lock(mutex_);
      under_way_.push_back(sent);
    }
    network_->transport_->send(process, {write_note(note), std::move(blocks)}, sent);
  }

  // `but`: who knows it already, if anybody.
  void tell_all(const Note& note, int but = -1) {
    for (const int process : program_->processes) {
      if (process != own_process() && process != but) send_note(process, note);
    }
  }

  void finish() override {
    Note note;
    note.kind = NoteKind::kFinish;
    tell_all(note);
  }

  CompletionRef flushed() override {
    std::vector<CompletionRef> under_way;
    {
      const std::lock_guard lock(mutex_);
      under_way = under_way_;
    }
    return Completion::all(std::move(under_way));
  }

  std::string describe(int process) const override {
    {
      const std::lock_guard lock(inbox_->mutex);
      if (inbox_->launched.contains(process)) return "has launched it";
    }
    const std::lock_guard lock(network_->mutex_);
    const auto last = network_->last_launched_.find(process);
    return last == network_->last_launched_.end()
               ? "has launched nothing over several processes so far"
               : "has not launched it yet; it launched " + last->second + " last";
  }

  Status loss_of(int process) const override { return network_->transport_->status(process); }

  void post_in_order(const CompletionRef& ready, std::function<void()> post) override {
    network_->order_->add(ready, std::move(post));
  }

 private:
  const std::shared_ptr<GangNetwork> network_;  // shared with the client and other links
  const std::shared_ptr<Inbox> inbox_;          // shared with the network while it is listed there
  const GangProgramRef program_;
  const uint64_t number_;
  std::mutex mutex_;
  std::vector<CompletionRef> under_way_;  // guarded by mutex_; words that it has finished
};

GangNetwork::GangNetwork(const ProcessOptions& process)
    : process_(process), order_(std::make_shared<PostOrder>()) {}

GangNetwork::~GangNetwork() = default;

std::shared_ptr<GangNetwork> GangNetwork::create(std::shared_ptr<KeyValueStore> store,
                                                 std::string platform,
                                                 const ProcessOptions& process,
                                                 const GangNetworkOptions& options) {
  std::shared_ptr<GangNetwork> network(new GangNetwork(process));
  // An event keeps the network as long as it is under way.
  const std::weak_ptr<GangNetwork> weak = network;
  collectives::Transport::Events events;
  events.received = [weak](int from, Message message) {
    if (const auto self = weak.lock()) self->received(from, std::move(message));
  };
  events.lost = [weak](int lost_process, const Status& why) {
    if (const auto self = weak.lock()) self->lost(lost_process, why);
  };
  Result<std::unique_ptr<collectives::ProcessTransport>> transport =
      collectives::ProcessTransport::create(
          std::move(store), "hekla/" + platform, static_cast<int>(process.index),
          static_cast<int>(process.count), std::move(events),
          {options.transport, options.address, options.coordinator,
           std::chrono::seconds(options.silence_seconds)});
  network->start_ = transport.status();
  if (transport.ok()) network->transport_ = *std::move(transport);
  return network;
}

void GangNetwork::meet() {
  if (transport_ != nullptr) transport_->meet();
}

Status GangNetwork::connect(const GangProgram& program) {
  const auto context = [&] {
    return fmt::format("{} has collectives over the devices of processes {}", program.name,
                       processes_text(program.processes));
  };
  if (!start_.ok()) return start_.with_context(context());
  for (const int process : program.processes) {
    if (process == process_.index) continue;
    // One that is lost is connected: launches say so.
    const Status status = transport_->connect(process);
    if (!status.ok()) return status.with_context(context());
  }
  return ok_status();
}

std::shared_ptr<GangNetwork::Inbox> GangNetwork::inbox_of(const LineKey& key, uint64_t number,
                                                          bool begins) {
  Line& line = lines_[key];
  const auto it = line.inboxes.find(number);
  if (it != line.inboxes.end()) return it->second;
  if (!begins && (number < line.next || number - line.next > kMaxAhead)) return nullptr;
  return line.inboxes.emplace(number, std::make_shared<Inbox>()).first->second;
}

void GangNetwork::forget(const LineKey& key, uint64_t number) {
  const std::lock_guard lock(mutex_);
  lines_[key].inboxes.erase(number);
}

void GangNetwork::leave(Inbox& inbox, int process) {
  GangLink::Handler handler;
  {
    const std::lock_guard lock(inbox.mutex);
    if (std::exchange(inbox.has_finished[process], true)) return;
    handler = inbox.handler;
    if (handler == nullptr) inbox.early.push_back({process, {}, {}});
  }
  if (handler != nullptr) handler(process, {}, {});
}

void GangNetwork::begin(const GangRef& gang, const GangProgramRef& program) {
  const int own = static_cast<int>(process_.index);
  std::shared_ptr<Inbox> inbox;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const LineKey key(program->processes, program->communicator);
    number = lines_[key].next++;
    inbox = inbox_of(key, number, /*begins=*/true);
    last_launched_[own] = program->name;
  }
  const auto link = std::make_shared<Link>(shared_from_this(), inbox, program, number);
  gang->set_link(link);
  // What another process said is told on: this one may leave now, and who has not heard of the
  // error yet would take that for it.
  gang->on_abort([weak = std::weak_ptr(link), inbox](const Status& status) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    int told_by = -1;
    {
      const std::lock_guard lock(inbox->mutex);
      told_by = inbox->told_by;
    }
    Note note;
    note.kind = NoteKind::kAbort;
    note.code = static_cast<int64_t>(status.code());
    note.text = status.message().substr(0, Message::kMaxHeadBytes / 2);
    self->tell_all(note, told_by);
  });
  Note note;
  note.kind = NoteKind::kLaunch;
  note.text = program->name;
  note.signature = program->signature;
  link->tell_all(note);

  Status status;
  {
    const std::lock_guard lock(inbox->mutex);
    inbox->has_begun = true;
    inbox->gang = gang;
    inbox->program = program;
    status = inbox->aborted;
    if (status.ok()) status = inbox->compare(own);
  }
  for (const int process : program->processes) {
    if (!status.ok() || process == own) continue;
    const Status lost = transport_->status(process);
    if (!program->communicator.empty()) {
      if (!lost.ok()) leave(*inbox, process);
      continue;
    }
    const std::lock_guard lock(inbox->mutex);
    if (!inbox->has_finished.contains(process)) status = lost;
  }
  if (!status.ok()) gang->abort(status);
}

void GangNetwork::received(int from, Message message) {
  Result<Note> note = read_note(message.head);
  if (!note.ok()) {
    return log_message(LogLevel::kWarning, "{} sends what is not understood here: {}",
                       transport_->name(from), note.status().to_string());
  }
  std::vector<int> processes;
  for (const int64_t process : note->processes) processes.push_back(static_cast<int>(process));
  const bool is_ours =
      std::ranges::is_sorted(processes) && std::ranges::find(processes, from) != processes.end() &&
      std::ranges::find(processes, static_cast<int>(process_.index)) != processes.end();
  if (!is_ours) return;
  std::shared_ptr<Inbox> inbox;
  {
    const std::lock_guard lock(mutex_);
    inbox = inbox_of({processes, note->communicator}, note->number, /*begins=*/false);
    if (note->kind == NoteKind::kLaunch) last_launched_[from] = note->text;
  }
  if (inbox == nullptr) return;
  GangRef to_abort;
  Status status;
  GangLink::Handler handler;
  {
    const std::lock_guard lock(inbox->mutex);
    switch (note->kind) {
      case NoteKind::kLaunch:
        inbox->launched[from] = {std::move(note->text), std::move(note->signature)};
        if (inbox->has_begun) status = inbox->compare(static_cast<int>(process_.index));
        break;
      case NoteKind::kData:
      case NoteKind::kFinish:
        if (note->kind == NoteKind::kFinish) {
          inbox->has_finished[from] = true;
          note->text.clear();
        }
        handler = inbox->handler;
        if (handler == nullptr) {
          inbox->early.push_back({from, std::move(note->text), std::move(message.blocks)});
        }
        break;
      case NoteKind::kAbort:
        status = status_of_note(*note);
        if (inbox->aborted.ok()) {
          inbox->aborted = status;
          inbox->told_by = from;
        }
        break;
    }
    if (!status.ok()) to_abort = inbox->gang.lock();
  }
  if (handler != nullptr) handler(from, std::move(note->text), std::move(message.blocks));
  if (to_abort != nullptr) to_abort->abort(status);
}

void GangNetwork::lost(int process, const Status& why) {
  std::vector<std::shared_ptr<Inbox>> concerned, communicators;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, line] : lines_) {
      if (std::ranges::find(key.first, process) == key.first.end()) continue;
      auto& inboxes = key.second.empty() ? concerned : communicators;
      for (const auto& [number, inbox] : line.inboxes) inboxes.push_back(inbox);
    }
  }
  for (const auto& inbox : communicators) leave(*inbox, process);
  for (const auto& inbox : concerned) {
    GangRef gang;
    {
      const std::lock_guard lock(inbox->mutex);
      if (!inbox->has_finished.contains(process)) gang = inbox->gang.lock();
    }
    if (gang != nullptr) gang->abort(why);
  }
}

}  // namespace hekla::pjrt
