// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/committer.h"

#include <fmt/chrono.h>

#include <cerrno>
#include <ctime>
#include <set>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"
#include "runtime/base/io/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/rendezvous/lease.h"

namespace hekla::checkpoint {
namespace {

using Json = nlohmann::json;
using std::chrono::nanoseconds;

constexpr std::string_view kCommitWord = "commit";
constexpr std::string_view kCommittedWord = "committed";

std::string dump(const Json& json) {
  // Messages may carry bytes of file names that are not UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_of(const Status& status) {
  return dump({{"code", static_cast<int>(status.code())}, {"message", status.message()}});
}

Status status_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("code") || !json["code"].is_number_integer() ||
      !json.contains("message") || !json["message"].is_string()) {
    return internal_error("the store holds no reason but \"{}\"", text.substr(0, 200));
  }
  return Status(static_cast<StatusCode>(json["code"].get<int>()),
                json["message"].get<std::string>());
}

std::string text_of(const std::vector<FileRecord>& files) {
  Json list = Json::array();
  for (const FileRecord& file : files) {
    list.push_back({file.path, file.size, file.metadata_digest, file.table_digest,
                    file.origin ? file.origin->step : -1, file.origin ? file.origin->nonce : ""});
  }
  return dump(list);
}

Result<std::vector<FileRecord>> files_of(int rank, const std::string& text) {
  const Json list = Json::parse(text, nullptr, false);
  const auto bad = [&] { return internal_error("rank {} sent no list of files", rank); };
  if (!list.is_array()) return bad();
  std::vector<FileRecord> files;
  for (const Json& entry : list) {
    if (!entry.is_array() || entry.size() != 6 || !entry[0].is_string() ||
        !entry[1].is_number_integer() || !entry[2].is_string() || !entry[3].is_string() ||
        !entry[4].is_number_integer() || !entry[5].is_string()) {
      return bad();
    }
    files.push_back({entry[0].get<std::string>(), entry[1].get<int64_t>(),
                     entry[2].get<std::string>(), entry[3].get<std::string>(), rank});
    if (entry[4].get<int64_t>() >= 0) {
      files.back().origin = {entry[4].get<int64_t>(), entry[5].get<std::string>()};
    }
  }
  return files;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kPlan:
      return "P0 plan";
    case Phase::kAllocate:
      return "P1 allocate";
    case Phase::kSnapshot:
      return "P2 snapshot";
    case Phase::kWrite:
      return "P3 write";
    case Phase::kCommit:
      return "P4 commit";
    case Phase::kPublish:
      return "P5 publish";
    case Phase::kDone:
      return "P6 done";
  }
  return "?";
}

Committer::Committer(Io& io, rendezvous::Group& group, std::string root, std::string run_uuid,
                     CommitOptions options)
    : io_(io),
      group_(group),
      root_(std::move(root)),
      run_uuid_(std::move(run_uuid)),
      options_(std::move(options)) {}

// One call of run.
class Committer::Save {
 public:
  Save(Committer& owner, const SaveRequest& request, SavePayload& payload)
      : owner_(owner),
        io_(owner.io_),
        group_(owner.group_),
        request_(request),
        payload_(payload),
        options_(owner.options_) {}

  Status run() {
    Status status = work();
    if (status.ok()) {
      enter(Phase::kDone);
      return status;
    }
    if (!is_settled_) status = give_up(status);
    end_watch();
    work_stop_.request_stop();  // what the payload still has under way
    payload_.abandon();
    if (group_.is_coordinator()) remove_rest(status);
    return status;
  }

 private:
  Status work() {
    const std::stop_callback pass_on(request_.stop, [this] { work_stop_.request_stop(); });
    HEKLA_RETURN_IF_ERROR(plan());
    if (group_.world() > 1) watch();
    HEKLA_RETURN_IF_ERROR(allocate());
    enter(Phase::kSnapshot);
    HEKLA_RETURN_IF_ERROR(payload_.snapshot(site_));
    HEKLA_RETURN_IF_ERROR(write());
    end_watch();
    return group_.is_coordinator() ? commit() : wait_for_outcome();
  }

  // ---- words ----

  void enter(Phase phase) {
    phase_ = phase;
    if (options_.on_phase) options_.on_phase(phase);
  }
  std::string name(std::string_view key) const { return fmt::format("s/{}/{}", request_.id, key); }
  rendezvous::Store& store() const { return group_.store(); }
  Status say(std::string_view key, std::string_view value) {
    return store().set(group_.key(name(key)), value);
  }
  Status say_mine(std::string_view key, std::string_view value) {
    return say(fmt::format("{}/{}", key, group_.rank()), value);
  }
  rendezvous::Group::Wait wait_until(std::string_view what, nanoseconds limit,
                                     bool stops_at_decision = true) {
    rendezvous::Group::Wait wait;
    wait.what = fmt::format("waiting for {}", what);
    wait.deadline = Deadline::in(limit);
    if (stops_at_decision) wait.stop_key = name("decision");
    wait.stop = request_.stop;
    wait.report_every = options_.report_every;
    wait.report = [this, what = std::string(what)](const std::vector<int>& missing) {
      log_message(LogLevel::kWarning, "step {}, {}: waiting {:.0f} s for {} of rank {}",
                  request_.step, phase_name(phase_), seconds(), what,
                  rendezvous::rank_list(missing));
    };
    return wait;
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // What happened, where; said on this rank and sent to the others.
  Status placed(const Status& status) const {
    return status.with_context(fmt::format("step {}, {}, rank {} ({}), after {:.1f} s",
                                           request_.step, phase_name(phase_), group_.rank(),
                                           host_name(), seconds()));
  }

  // ---- the decision ----

  // Aborts the save for all ranks, unless somebody was faster; the reason that counts.
  Status give_up(const Status& reason) {
    const Status mine = placed(reason);
    const Result<rendezvous::Store::Swap> swap =
        store().compare_set(group_.key(name("decision")), std::nullopt, text_of(mine));
    is_settled_ = true;
    // Without the store nobody hears: the others find their deadline.
    if (!swap.ok() || swap->swapped || !swap->value) return mine;
    is_commit_decided_ = *swap->value == kCommitWord;
    if (is_commit_decided_) return in_doubt(mine);
    return status_of(*swap->value);
  }

  static Status in_doubt(const Status& status) {
    return status.with_context(
        "the coordinator was committing, and recovery will tell whether the step exists");
  }

  // After a wait that `decision` stopped: the others' reason.
  Status stopped(const std::string& decision) {
    is_settled_ = true;
    return status_of(decision);
  }

  // While this rank works nobody asks the store for it. The watch hears an abort, that another rank
  // is waited for and, on the coordinator, notices deaths.
  void watch() {
    watcher_ = start_thread([this](const std::stop_token& ending) {
      rendezvous::Group::Wait wait;
      wait.what = "all ranks";
      wait.stop_key = name("decision");
      wait.stop = ending;
      if (request_.on_priority_raised) {
        wait.notice_key = name("priority");
        wait.notice = request_.on_priority_raised;
      }
      const Result<rendezvous::Group::Waited> waited =
          group_.is_coordinator() ? group_.wait_ranks(name("ready/"), wait)
                                  : group_.wait_key(name("outcome"), 0, wait);
      if (waited.ok() && !waited->stopped) return;
      if (!waited.ok() && waited.status().code() == StatusCode::kUnavailable) {
        // A death; or the store is gone, and then this changes nothing.
        const Status reason = waited.status().with_context(fmt::format("step {}", request_.step));
        static_cast<void>(
            store().compare_set(group_.key(name("decision")), std::nullopt, text_of(reason)));
      }
      if (!ending.stop_requested()) work_stop_.request_stop();
    });
  }
  void end_watch() { watcher_ = {}; }
  // An error of the payload, or the abort that caused it.
  Status payload_error(const Status& status) {
    if (!work_stop_.stop_requested()) return status;
    const Result<std::optional<std::string>> decision = store().get(group_.key(name("decision")));
    if (decision.ok() && *decision && **decision != kCommitWord) return stopped(**decision);
    return status;
  }

  // ---- the phases ----

  Status plan() {
    enter(Phase::kPlan);
    site_.step = request_.step;
    site_.run_uuid = owner_.run_uuid_;
    site_.stop = work_stop_.get_token();
    if (request_.step < 0 || request_.step > kMaxStep) {
      return invalid_argument("step {}: 0 to {} are allowed", request_.step, kMaxStep);
    }
    if (group_.is_coordinator()) {
      HEKLA_RETURN_IF_ERROR(prepare_folder());
      if (request_.wants_parent) HEKLA_RETURN_IF_ERROR(find_parent());
      return say("plan", dump({{"nonce", site_.nonce},
                               {"step", request_.step},
                               {"parent", site_.parent ? site_.parent->step : -1},
                               {"layout", request_.layout_hash},
                               {"layout_text", request_.layout_text}}));
    }
    HEKLA_ASSIGN_OR_RETURN(
        const rendezvous::Group::Waited waited,
        group_.wait_key(name("plan"), 0, wait_until("the plan", options_.plan_deadline)));
    if (waited.stopped) return stopped(*waited.stopped);
    const Json plan = Json::parse(waited.values.at(0), nullptr, false);
    if (!plan.is_object() || !plan.contains("nonce") || !plan["nonce"].is_string() ||
        !plan.contains("step") || !plan["step"].is_number_integer() || !plan.contains("layout") ||
        !plan["layout"].is_number_unsigned() || !plan.contains("parent") ||
        !plan["parent"].is_number_integer()) {
      return internal_error("the coordinator sent no plan");
    }
    if (plan["step"].get<int64_t>() != request_.step) {
      return failed_precondition("rank {} saves step {} while rank 0 saves step {}", group_.rank(),
                                 request_.step, plan["step"].get<int64_t>());
    }
    if (plan["layout"].get<uint64_t>() != request_.layout_hash) {
      return failed_precondition(
          "the state of rank {} is laid out otherwise than that of rank 0: here {}; there {}",
          group_.rank(), request_.layout_text, plan.value("layout_text", std::string()));
    }
    site_.nonce = plan["nonce"].get<std::string>();
    site_.folder = join_path(owner_.root_, folder_name());
    const int64_t parent = plan["parent"].get<int64_t>();
    if (parent >= 0) site_.parent = {parent, join_path(owner_.root_, step_name(parent))};
    return ok_status();
  }

  // The newest valid step but the one that is saved, held until this save ends. What cannot be read
  // or held is no parent; the save then writes everything.
  Status find_parent() {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                           list_folder(io_, owner_.root_));
    // Sorted by name, and the numbers are padded.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      const std::optional<int64_t> step = parse_step_name(entry->name);
      if (!step || *step == request_.step) continue;
      Result<StepLease> lease = StepLease::acquire(io_, owner_.root_, *step);
      if (!lease.ok() || !read_step(io_, lease->folder(), *step).ok()) continue;
      site_.parent = {*step, lease->folder()};
      parent_lease_ = *std::move(lease);
      return ok_status();
    }
    return ok_status();
  }

  std::string folder_name() const {
    return options_.atomic_rename ? temporary_name(request_.step, site_.nonce)
                                  : step_name(request_.step);
  }

  Status prepare_folder() {
    site_.nonce = random_hex(8);
    const std::string final_path = join_path(owner_.root_, step_name(request_.step));
    HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> taken, find_file(io_, final_path));
    if (taken) {
      const bool is_step = read_step(io_, final_path, request_.step).ok();
      if (is_step && !request_.overwrite) {
        return already_exists("{} is a committed step; overwrite is not set", final_path);
      }
      if (is_step && !options_.atomic_rename) {
        return failed_precondition("{} cannot be replaced where folders cannot be renamed",
                                   final_path);
      }
      if (!is_step) {
        // As recovery would: what is no step must not be in the way of one.
        HEKLA_RETURN_IF_ERROR(rename_path(
            io_, final_path, join_path(owner_.root_, bad_name(step_name(request_.step)))));
      }
    }
    // The lease before the folder: whoever finds the folder finds a live owner.
    HEKLA_ASSIGN_OR_RETURN(
        owner_lease_, rendezvous::Lease::hold(io_, join_path(owner_.root_, owner_name(site_.nonce)),
                                              std::to_string(request_.step)));
    site_.folder = join_path(owner_.root_, folder_name());
    HEKLA_RETURN_IF_ERROR(make_folder(io_, site_.folder));
    has_folder_ = true;
    HEKLA_RETURN_IF_ERROR(make_folder(io_, join_path(site_.folder, kDataFolder)));
    return make_folder(io_, join_path(site_.folder, kExtraFolder));
  }

  Status allocate() {
    enter(Phase::kAllocate);
    if (const Status status = payload_.allocate(site_); !status.ok()) return payload_error(status);
    HEKLA_RETURN_IF_ERROR(say_mine("alloc", "ok"));
    if (!group_.is_coordinator()) {
      HEKLA_ASSIGN_OR_RETURN(
          const rendezvous::Group::Waited waited,
          group_.wait_key(name("go"), 0,
                          wait_until("all ranks to make their files",
                                     options_.allocate_deadline + options_.plan_deadline)));
      return waited.stopped ? stopped(*waited.stopped) : ok_status();
    }
    HEKLA_ASSIGN_OR_RETURN(
        const rendezvous::Group::Waited waited,
        group_.wait_ranks(name("alloc/"),
                          wait_until("files to be made", options_.allocate_deadline)));
    if (waited.stopped) return stopped(*waited.stopped);
    // All ranks are in this save, so none still looks at the words of one before.
    for (const std::string& id : owner_.old_ids_) {
      HEKLA_RETURN_IF_ERROR(store().remove_all(group_.key(fmt::format("s/{}/", id))));
    }
    owner_.old_ids_.clear();
    return say("go", "ok");
  }

  Status write() {
    enter(Phase::kWrite);
    Result<std::vector<FileRecord>> files = payload_.write(site_);
    if (!files.ok()) return payload_error(files.status());
    // Names too: on a network file system each machine answers for its own.
    HEKLA_RETURN_IF_ERROR(sync_folder(io_, join_path(site_.folder, kDataFolder)));
    HEKLA_RETURN_IF_ERROR(sync_folder(io_, join_path(site_.folder, kExtraFolder)));
    return say_mine("ready", text_of(*files));
  }

  Status wait_for_outcome() {
    enter(Phase::kCommit);
    const Result<rendezvous::Group::Waited> waited = group_.wait_key(
        name("outcome"), 0,
        wait_until("all ranks to write", options_.write_deadline + options_.commit_deadline));
    std::string outcome;
    if (waited.ok() && !waited->stopped) {
      outcome = waited->values.at(0);
    } else {
      if (waited.ok() && *waited->stopped != kCommitWord) return stopped(*waited->stopped);
      if (!waited.ok()) {
        const Status reason = give_up(waited.status());
        if (!is_commit_decided_) return reason;
      }
      // From here on only the coordinator knows how it ends, and nobody can call it back.
      is_settled_ = true;
      rendezvous::Group::Wait wait =
          wait_until("the coordinator to commit", options_.commit_deadline, false);
      wait.stop = {};
      const Result<rendezvous::Group::Waited> ended = group_.wait_key(name("outcome"), 0, wait);
      if (!ended.ok()) return in_doubt(placed(ended.status()));
      outcome = ended->values.at(0);
    }
    is_settled_ = true;
    return outcome == kCommittedWord ? ok_status() : status_of(outcome);
  }

  Status commit() {
    HEKLA_ASSIGN_OR_RETURN(const rendezvous::Group::Waited waited,
                           group_.wait_ranks(name("ready/"), wait_until("files to be written",
                                                                        options_.write_deadline)));
    if (waited.stopped) return stopped(*waited.stopped);
    enter(Phase::kCommit);
    CommitRecord record;
    record.step = request_.step;
    record.run_uuid = owner_.run_uuid_;
    record.nonce = site_.nonce;
    record.wall_time = utc_now();
    record.writer_version = request_.writer_version;
    record.world_size = group_.world();
    record.layout_hash = request_.layout_hash;
    record.metrics = request_.metrics;
    record.reason = request_.reason;
    for (const auto& [rank, text] : waited.values) {
      HEKLA_ASSIGN_OR_RETURN(std::vector<FileRecord> files, files_of(rank, text));
      record.files.insert(record.files.end(), files.begin(), files.end());
    }
    HEKLA_ASSIGN_OR_RETURN(const std::vector<FileRecord> more,
                           payload_.finish(site_, record.files, &record));
    record.files.insert(record.files.end(), more.begin(), more.end());
    for (const FileRecord& file : record.files) {
      const std::string path = join_path(site_.folder, file.path);
      HEKLA_ASSIGN_OR_RETURN(const FileInfo info, stat_file(io_, path));
      if (info.size != file.size) {
        return data_loss("{} has {} bytes, rank {} wrote {}", path, info.size, file.writer,
                         file.size);
      }
    }
    // data/ and extra/ were synced by whoever wrote into them, before it said that it was ready.
    HEKLA_RETURN_IF_ERROR(sync_folder(io_, site_.folder));
    HEKLA_ASSIGN_OR_RETURN(const std::string text, write_commit(record));

    HEKLA_ASSIGN_OR_RETURN(
        const rendezvous::Store::Swap swap,
        store().compare_set(group_.key(name("decision")), std::nullopt, kCommitWord));
    if (!swap.swapped && swap.value != kCommitWord) return stopped(swap.value.value_or(""));
    is_settled_ = true;
    Status status = publish(text);
    if (!status.ok()) {
      undo();
      status = placed(status);
    }
    const Status said = say("outcome", status.ok() ? std::string(kCommittedWord) : text_of(status));
    if (status.ok()) {
      after_commit();
      if (!said.ok()) {
        // The step is there; that the others do not hear of it is theirs to report.
        log_message(LogLevel::kWarning, "step {} is committed, the others cannot be told: {}",
                    request_.step, said.to_string());
      }
    }
    return status;
  }

  // COMMIT and the final name; `undo` takes back what it did.
  Status publish(const std::string& text) {
    const std::string commit_path = join_path(site_.folder, kCommitFile);
    if (options_.atomic_rename) {
      const std::string temporary = commit_path + ".tmp";
      HEKLA_RETURN_IF_ERROR(create_file(io_, temporary, text));
      if (request_.reads_back) HEKLA_RETURN_IF_ERROR(expect_text(io_, temporary, text));
      HEKLA_RETURN_IF_ERROR(rename_path(io_, temporary, commit_path));
    } else {
      HEKLA_RETURN_IF_ERROR(create_file(io_, commit_path, text));
      if (request_.reads_back) HEKLA_RETURN_IF_ERROR(expect_text(io_, commit_path, text));
    }
    has_commit_ = true;
    HEKLA_RETURN_IF_ERROR(sync_folder(io_, site_.folder));
    enter(Phase::kPublish);
    if (options_.atomic_rename) {
      const std::string final_path = join_path(owner_.root_, step_name(request_.step));
      HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> taken, find_file(io_, final_path));
      File claim;
      if (taken) {
        HEKLA_ASSIGN_OR_RETURN(claim, claim_step(io_, final_path));
        HEKLA_RETURN_IF_ERROR(rename_path(
            io_, final_path, join_path(owner_.root_, old_name(request_.step, site_.nonce))));
        has_old_ = true;
        // One name may not overtake the other: at every moment one of them leads to a whole step.
        HEKLA_RETURN_IF_ERROR(sync_folder(io_, owner_.root_));
      }
      HEKLA_RETURN_IF_ERROR(rename_path(io_, site_.folder, final_path));
      is_renamed_ = true;
    }
    return sync_folder(io_, owner_.root_);
  }

  void undo() {
    const std::string final_path = join_path(owner_.root_, step_name(request_.step));
    // As far as the disk lets it; what is left, is as recovery can find it.
    if (is_renamed_ && io_.rename(final_path, site_.folder) == 0) is_renamed_ = false;
    if (!is_renamed_ && has_commit_) io_.unlink(join_path(site_.folder, kCommitFile));
    if (!is_renamed_ && has_old_) {
      io_.rename(join_path(owner_.root_, old_name(request_.step, site_.nonce)), final_path);
    }
    static_cast<void>(sync_folder(io_, owner_.root_));
  }

  void after_commit() {
    const auto check = [&](const Status& status, std::string_view what) {
      if (status.ok()) return;
      log_message(LogLevel::kWarning, "step {} is committed; {}: {}", request_.step, what,
                  status.to_string());
    };
    check(owner_lease_.release(), "giving up its lease");
    check(replace_file(io_, join_path(owner_.root_, kLatestFile), step_name(request_.step) + "\n"),
          "writing LATEST");
    if (has_old_) {
      check(discard(io_, owner_.root_, old_name(request_.step, site_.nonce)),
            "removing the step it replaced");
    }
  }

  // What a failed save leaves of its folder.
  void remove_rest(const Status& reason) {
    if (has_folder_ && !is_renamed_) {
      // For people, should the folder stay.
      const Status noted =
          create_file(io_, join_path(site_.folder, kAbortedFile), reason.to_string() + "\n");
      const std::string folder = folder_name();
      const Status status = discard(io_, owner_.root_, folder);
      if (!noted.ok() || !status.ok()) {
        log_message(LogLevel::kWarning, "the rest of the failed save of step {} in {}: {}",
                    request_.step, site_.folder, (status.ok() ? noted : status).to_string());
      }
    }
    static_cast<void>(owner_lease_.release());
  }

  Committer& owner_;
  Io& io_;
  rendezvous::Group& group_;
  const SaveRequest& request_;
  SavePayload& payload_;
  const CommitOptions& options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  SaveSite site_;
  Phase phase_ = Phase::kPlan;
  rendezvous::Lease owner_lease_;  // the coordinator's
  StepLease parent_lease_;         // likewise
  bool is_settled_ = false;        // the decision is known: there is nothing to abort
  bool is_commit_decided_ = false;
  bool has_folder_ = false, has_commit_ = false, has_old_ = false, is_renamed_ = false;
  std::stop_source work_stop_;  // tells the payload
  std::jthread watcher_;
};

Status Committer::refuse(const std::string& id, const Status& reason) {
  return group_.store()
      .compare_set(group_.key(fmt::format("s/{}/decision", id)), std::nullopt, text_of(reason))
      .status();
}

void Committer::raise_priority(const std::string& id) {
  // Nobody would be helped by an error: the save then only takes longer.
  static_cast<void>(group_.store().set(group_.key(fmt::format("s/{}/priority", id)), "priority"));
}

Status Committer::run(const SaveRequest& request, SavePayload& payload) {
  const Status status = Save(*this, request, payload).run();
  if (group_.is_coordinator()) old_ids_.push_back(request.id);
  return status;
}

}  // namespace hekla::checkpoint
