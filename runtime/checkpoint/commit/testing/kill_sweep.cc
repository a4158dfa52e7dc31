// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/testing/kill_sweep.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/testing/child.h"
#include "runtime/checkpoint/commit/manager_lock.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/rendezvous/file_store.h"

namespace hekla::checkpoint {
namespace {

constexpr int kWorld = SweptSave::kWorld;
// Nothing takes this long: a point that does hangs.
constexpr unsigned kAlarmSeconds = 120;
constexpr size_t kSideBySide = 6;

SweptSave* g_save = nullptr;
int64_t g_points = 0;
int64_t g_only = -1;

enum class Scene { kNewStep, kReplacedStep, kFirstStep };
enum class Calls { kFile, kStore };
enum class After { kOthersLive, kAllDie };

// Where whom to kill.
struct Point {
  Scene scene = Scene::kNewStep;
  Calls calls = Calls::kFile;
  int rank = 0;
  int64_t call = 0;  // 0: nobody
  bool torn = false;
  After after = After::kOthersLive;
  int64_t recovery_call = 0;  // recovery is killed there once; 0: it is not

  std::string text() const {
    return fmt::format(
        "scene {}, rank {} killed at {} call {}{}{}{}", static_cast<int>(scene), rank,
        calls == Calls::kFile ? "file" : "store", call, torn ? " (half done)" : "",
        after == After::kAllDie ? ", all others with it" : "",
        recovery_call > 0 ? fmt::format(", recovery at call {}", recovery_call) : "");
  }
};

// What the ranks of a point tell their parent, in memory that they share.
struct Report {
  int64_t file_calls[kWorld];
  int64_t store_calls[kWorld];
  char committed[kWorld];
};

std::string base_folder() {
  // Kills do not ask whether the folder is a disk; in memory the sweep is four times as fast.
  const char* folder = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::getenv("TMPDIR");
  return folder == nullptr ? "/tmp" : folder;
}

int64_t new_step(Scene scene) { return scene == Scene::kReplacedStep ? 1 : 2; }

int run_rank(const Point& point, int rank, const std::string& folder, Report* report) {
  ScriptedIo file_io(posix_io()), store_io(posix_io());
  if (point.rank == rank && point.call > 0) {
    FaultRule rule;
    rule.changes_only = true;
    rule.first = point.call;
    rule.action = point.torn ? FaultRule::Action::kTornKill : FaultRule::Action::kKill;
    (point.calls == Calls::kFile ? file_io : store_io).add(rule);
  }
  const auto save = [&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<rendezvous::Store> store,
                           rendezvous::FileStore::open(store_io, join_path(folder, "store")));
    HEKLA_ASSIGN_OR_RETURN(
        const std::unique_ptr<rendezvous::Group> group,
        rendezvous::Group::form(store, rank, kWorld,
                                Deadline::in(std::chrono::seconds(
                                    // Dead ranks of a group not yet formed are not known.
                                    point.calls == Calls::kStore ? 1 : 30))));
    const std::string root = join_path(folder, "run");
    return g_save->save(file_io, *group, root, new_step(point.scene),
                        point.scene == Scene::kReplacedStep);
  };
  const Status status = save();
  report->file_calls[rank] = file_io.changes();
  report->store_calls[rank] = store_io.changes();
  report->committed[rank] = status.ok();
  return 0;
}

// The root as it is before the save.
Status prepare(Scene scene, const std::string& folder) {
  Io& io = posix_io();
  const std::string root = join_path(folder, "run");
  HEKLA_RETURN_IF_ERROR(make_folders(io, root));
  if (scene == Scene::kFirstStep) return ok_status();
  return g_save->prepare(io, root);
}

// Kills and waits for all; false when a rank hung or crashed.
bool play(const Point& point, const std::string& folder, Report* report) {
  std::map<pid_t, int> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks[start_child([&] { return run_rank(point, rank, folder, report); }, kAlarmSeconds)] = rank;
  }
  bool ok = true;
  while (!ranks.empty()) {
    int status = 0;
    const pid_t child = ::waitpid(-1, &status, 0);
    const auto found = ranks.find(child);
    if (found == ranks.end()) continue;
    const int rank = found->second;
    ranks.erase(found);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (killed && point.after == After::kAllDie) {
      for (const auto& [other, other_rank] : ranks) ::kill(other, SIGKILL);
    }
    if (killed && (rank == point.rank || point.after == After::kAllDie)) continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::fprintf(stderr, "rank %d ended with status %d\n", rank, status);
      ok = false;
    }
  }
  return ok;
}

Status settle(const Point& point, const std::string& folder, const Report& report) {
  Io& io = posix_io();
  const std::string root = join_path(folder, "run");
  HEKLA_RETURN_IF_ERROR(open_root(io, root).status());
  if (point.recovery_call > 0) {
    run_child([&] {
      ScriptedIo scripted(io);
      scripted.add(
          {.changes_only = true, .first = point.recovery_call, .action = FaultRule::Action::kKill});
      static_cast<void>(recover(scripted, root));
      return 0;
    });
  }
  {
    HEKLA_ASSIGN_OR_RETURN(const ManagerLock lock, ManagerLock::acquire(io, root));
    HEKLA_ASSIGN_OR_RETURN(const RecoveryReport recovered, recover(io, root));
    if (!recovered.left.empty()) return internal_error("left: {}", recovered.left[0]);
    if (!recovered.quarantined.empty()) return internal_error("{}", recovered.quarantined[0]);
  }
  HEKLA_ASSIGN_OR_RETURN(const int64_t newest, g_save->check(io, root));
  const int64_t previous = point.scene == Scene::kFirstStep ? -1 : 1;
  const int64_t next = new_step(point.scene);
  if (newest != previous && newest != next) return internal_error("step {} is there", newest);
  if (std::count(report.committed, report.committed + kWorld, 1) > 0 && newest != next) {
    return internal_error("a rank was told that step {} is committed; {} is there", next, newest);
  }
  HEKLA_RETURN_IF_ERROR(g_save->save_next(io, root, 3));
  HEKLA_ASSIGN_OR_RETURN(const int64_t last, g_save->check(io, root));
  if (last != 3) return internal_error("the next save gave step {}", last);
  HEKLA_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, list_folder(io, root));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name.starts_with(".") || entry.name.ends_with(".new")) {
      return internal_error("{} is left over", entry.name);
    }
  }
  return ok_status();
}

// In a process of its own: 0 when the promise holds.
int run_point(const Point& point, int64_t number, Report* report) {
  std::string folder = join_path(base_folder(), "hekla-kill-XXXXXX");
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  Status status = prepare(point.scene, folder);
  if (status.ok() && !play(point, folder, report)) status = internal_error("a rank failed");
  if (status.ok()) status = settle(point, folder, *report);
  if (status.ok()) status = remove_tree(posix_io(), folder);
  if (status.ok()) return 0;
  std::fprintf(stderr, "point %lld (%s) in %s: %s\n", static_cast<long long>(number),
               point.text().c_str(), folder.c_str(), status.to_string().c_str());
  return 1;
}

Report* shared_report() {
  void* memory =
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Report{};
}

// All single kills of all scenes, from the calls that a save without one makes; then the same with
// a second death. In an order that mixes them.
std::vector<Point> all_points() {
  std::vector<Point> points;
  for (const Scene scene : {Scene::kNewStep, Scene::kReplacedStep, Scene::kFirstStep}) {
    Report* report = shared_report();
    Point nobody;
    nobody.scene = scene;
    const int code = run_child(
        [&] {
          ::setenv("HEKLA_LOG", "error", 1);
          return run_point(nobody, -1, report);
        },
        2 * kAlarmSeconds);
    EXPECT_EQ(code, 0) << "a save without kills";
    for (int rank = 0; rank < kWorld; ++rank) {
      EXPECT_EQ(report->committed[rank], 1);
      for (const Calls calls : {Calls::kFile, Calls::kStore}) {
        const int64_t count =
            calls == Calls::kFile ? report->file_calls[rank] : report->store_calls[rank];
        EXPECT_GT(count, 10);
        for (int64_t call = 1; call <= count; ++call) {
          for (const bool torn : {false, true}) {
            for (const After after : {After::kOthersLive, After::kAllDie}) {
              points.push_back({scene, calls, rank, call, torn, after, 0});
            }
          }
        }
      }
    }
    ::munmap(report, sizeof(Report));
  }
  std::mt19937_64 draw(5);
  const size_t once = points.size();
  for (size_t i = 0; i < once; ++i) {
    points.push_back(points[i]);
    points.back().recovery_call = static_cast<int64_t>(1 + draw() % 12);
  }
  std::shuffle(points.begin(), points.end(), draw);
  return points;
}

TEST(KillSweep, TheRestartFindsThePreviousOrTheNewStep) {
  const std::vector<Point> points = all_points();
  RecordProperty("different", static_cast<int>(points.size()));
  ASSERT_GT(points.size(), 1000u);
  const int64_t begin = g_only >= 0 ? g_only : 0;
  const int64_t end = g_only >= 0 ? g_only + 1 : g_points;
  std::map<pid_t, Report*> running;
  int64_t failed = 0;
  const auto wait_for_one = [&] {
    int status = 0;
    const pid_t child = ::waitpid(-1, &status, 0);
    const auto found = running.find(child);
    if (found == running.end()) return;
    ::munmap(found->second, sizeof(Report));
    running.erase(found);
    failed += status != 0;
  };
  for (int64_t number = begin; number < end; ++number) {
    while (running.size() >= kSideBySide) wait_for_one();
    const Point& point = points[static_cast<size_t>(number) % points.size()];
    Report* report = shared_report();
    ASSERT_NE(report, nullptr);
    const pid_t child = start_child(
        [&] {
          if (g_only < 0) ::setenv("HEKLA_LOG", "error", 1);
          return run_point(point, number, report);
        },
        2 * kAlarmSeconds);
    running[child] = report;
    if (end - begin > 1000 && number % 1000 == 0) {
      std::printf("%lld of %lld points, %lld failed\n", static_cast<long long>(number),
                  static_cast<long long>(end), static_cast<long long>(failed));
      std::fflush(stdout);
    }
  }
  while (!running.empty()) wait_for_one();
  EXPECT_EQ(failed, 0) << "of " << end - begin << " points";
}

}  // namespace

int run_kill_sweep(int argc, char** argv, std::unique_ptr<SweptSave> save, int64_t quick_points) {
  g_save = save.get();
  g_points = quick_points;
  ::testing::InitGoogleTest(&argc, argv);
  const auto number = [](std::string_view argument, std::string_view name, int64_t* value) {
    if (!argument.starts_with(name)) return false;
    argument.remove_prefix(name.size());
    return std::from_chars(argument.data(), argument.data() + argument.size(), *value).ec ==
           std::errc();
  };
  for (int i = 1; i < argc; ++i) {
    if (!number(argv[i], "--points=", &g_points) && !number(argv[i], "--only=", &g_only)) {
      std::fprintf(stderr, "unknown argument %s: --points=N or --only=N\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}

}  // namespace hekla::checkpoint
