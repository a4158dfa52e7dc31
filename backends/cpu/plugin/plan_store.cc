// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/plan_store.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <optional>

#include "backends/compiler/plan/pack.h"
#include "runtime/base/log.h"

namespace hekla::cpu {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;
// Of one plan: above it most are constants, and to check what was read takes as long as planning.
constexpr size_t kMaxPlanBytes = size_t{4} << 20;

struct Search {
  const void* address;  // in the library that is looked for
  std::string id;
};

// The note "GNU" of type NT_GNU_BUILD_ID in a segment of notes.
std::string id_of_notes(const std::byte* notes, size_t size) {
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof(note));
    const size_t name = sizeof(note), value = name + padded(note.n_namesz);
    const size_t next = value + padded(note.n_descsz);
    if (next > size) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string id;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        id += fmt::format("{:02x}", static_cast<unsigned>(notes[value + i]));
      }
      return id;
    }
    notes += next;
    size -= next;
  }
  return {};
}

int look_at(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const auto wanted = reinterpret_cast<ElfW(Addr)>(search.address);
  bool is_here = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const ElfW(Addr) begin = info->dlpi_addr + segment.p_vaddr;
    is_here |= segment.p_type == PT_LOAD && wanted >= begin && wanted - begin < segment.p_memsz;
  }
  for (int i = 0; is_here && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE || !search.id.empty()) continue;
    const auto* notes = reinterpret_cast<const std::byte*>(info->dlpi_addr + segment.p_vaddr);
    search.id = id_of_notes(notes, segment.p_memsz);
  }
  return is_here ? 1 : 0;
}

}  // namespace

std::string build_id() {
  static const int here = 0;
  Search search{&here, {}};
  dl_iterate_phdr(look_at, &search);
  return search.id;
}

PlanStore::PlanStore(const std::string& folder, std::string build) : build_(std::move(build)) {
  if (folder.empty() || build_.empty()) return;
  Result<std::unique_ptr<FileCache>> cache = FileCache::open(folder, kMaxBytes);
  if (cache.ok()) {
    cache_ = *std::move(cache);
  } else {
    log_message(LogLevel::kWarning, "cpu: launch plans are not kept: {}", cache.status().message());
  }
}

std::string PlanStore::key(const std::string& fingerprint) const {
  return fmt::format("cpu plan {} {}", build_, fingerprint);
}

std::shared_ptr<const plan::LaunchPlan> PlanStore::load(const std::string& fingerprint) const {
  if (cache_ == nullptr || fingerprint.empty()) return nullptr;
  const std::optional<std::vector<std::byte>> bytes = cache_->load(key(fingerprint));
  if (!bytes.has_value()) return nullptr;
  Result<plan::LaunchPlan> plan = plan::unpack(*bytes);
  if (!plan.ok()) {
    log_message(LogLevel::kWarning, "cpu: a stored plan cannot be used and is made again: {}",
                plan.status().message());
    return nullptr;
  }
  return std::make_shared<const plan::LaunchPlan>(*std::move(plan));
}

void PlanStore::store(const std::string& fingerprint, const plan::LaunchPlan& plan) const {
  if (cache_ == nullptr || fingerprint.empty()) return;
  size_t constants = 0;
  for (const HostArray& array : plan.constants)
    constants += static_cast<size_t>(array.size_bytes());
  if (constants > kMaxPlanBytes) return;
  const std::optional<std::vector<std::byte>> bytes = plan::pack(plan);
  if (!bytes.has_value() || bytes->size() > kMaxPlanBytes) return;
  if (const Status status = cache_->store(key(fingerprint), *bytes); !status.ok()) {
    log_message(LogLevel::kWarning, "cpu: a launch plan is not kept: {}", status.message());
  }
}

}  // namespace hekla::cpu
