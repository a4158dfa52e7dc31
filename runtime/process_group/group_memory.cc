// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/group_memory.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string_view>

namespace hekla::process_group {
namespace {

using collectives::kSharedPageBytes;
using collectives::SegmentCard;

constexpr uint64_t kMagic = 0x31306d6765486b65;

struct Front {
  uint64_t magic, token[2];
  int64_t ranks, flat_bytes, slot_bytes;
};

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::array<uint64_t, 4> words_of(const Call& call) {
  return {static_cast<uint64_t>(call.operation) | static_cast<uint64_t>(call.dtype) << 8 |
              static_cast<uint64_t>(call.reduce) << 16 |
              static_cast<uint64_t>(call.refused & 0xff) << 24 |
              static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32,
          static_cast<uint64_t>(call.count), call.factor,
          // The line has no place for all of `refused`: what is left of it makes another detail.
          call.detail ^ static_cast<uint64_t>(call.refused >> 8) * 0x9e3779b97f4a7c15};
}

Call call_of_words(const std::array<uint64_t, 4>& words) {
  const auto least = [](uint64_t value, int count) {
    return static_cast<uint8_t>(std::min<uint64_t>(value & 0xff, static_cast<uint64_t>(count) - 1));
  };
  Call call;
  call.operation = static_cast<Operation>(least(words[0], kOperationCount));
  call.dtype = static_cast<DType>(least(words[0] >> 8, kDTypeCount));
  call.reduce = static_cast<ReduceOp>(least(words[0] >> 16, kReduceOpCount));
  call.root = static_cast<int32_t>(words[0] >> 32);
  call.count = static_cast<int64_t>(words[1]);
  call.factor = words[2];
  call.detail = words[3];
  call.refused = static_cast<uint32_t>(words[0] >> 24 & 0xff);
  return call;
}

GroupMemory::GroupMemory(const Sizes& sizes)
    : sizes_(sizes),
      announcement_bytes_(rounded(kBroughtAt + static_cast<size_t>(sizes.flat_bytes), 64)),
      slots_at_(rounded(sizeof(RankState) + 2 * announcement_bytes_, kSharedPageBytes)),
      part_bytes_(rounded(slots_at_ + kChannels * kSlots * static_cast<size_t>(sizes.slot_bytes),
                          kSharedPageBytes)),
      bytes_(kSharedPageBytes + static_cast<size_t>(sizes.ranks) * part_bytes_) {}

GroupMemory::~GroupMemory() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
  close_file();
}

void GroupMemory::close_file() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

Status GroupMemory::map(int file) {
  void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) {
    return unavailable("mapping {} bytes of memory that ranks share: {}", bytes_,
                       std::strerror(errno));
  }
  memory_ = static_cast<std::byte*>(at);
  ranks_ = memory_ + kSharedPageBytes;
  return ok_status();
}

Result<std::unique_ptr<GroupMemory>> GroupMemory::create(const Sizes& sizes,
                                                         const MemoryRoom& room) {
  std::unique_ptr<GroupMemory> made(new GroupMemory(sizes));
  // The kernel takes what there is before it finds that it is too little; in a control group it
  // kills instead.
  constexpr std::string_view kRemedy = "give less as shared_slot_bytes or shared_flat_bytes";
  if (made->bytes_ > static_cast<size_t>(room.limit.bytes / 4)) {
    return unavailable(
        "{} bytes of memory for {} ranks, more than a quarter of {}, of {} bytes: {}", made->bytes_,
        sizes.ranks, room.limit.whose, room.limit.bytes, kRemedy);
  }
  if (made->bytes_ > static_cast<size_t>(room.left.bytes)) {
    return unavailable("{} bytes of memory for {} ranks, and of {} {} are left: {}", made->bytes_,
                       sizes.ranks, room.left.whose, room.left.bytes, kRemedy);
  }
  HEKLA_ASSIGN_OR_RETURN(made->file_, collectives::create_shared_file(made->bytes_, true));
  HEKLA_RETURN_IF_ERROR(made->map(made->file_));
  if (::getrandom(made->token_, sizeof(made->token_), 0) != sizeof(made->token_)) {
    return unavailable("no random numbers: {}", std::strerror(errno));
  }
  for (int r = 0; r < sizes.ranks; ++r) {
    new (&made->state(r)) RankState;
    for (const uint64_t parity : {0, 1}) new (&made->announcement(r, parity)) Announcement;
  }
  new (made->memory_) Front{
      kMagic, {made->token_[0], made->token_[1]}, sizes.ranks, sizes.flat_bytes, sizes.slot_bytes};
  return made;
}

Result<std::unique_ptr<GroupMemory>> GroupMemory::open(const SegmentCard& card,
                                                       const Sizes& sizes) {
  std::unique_ptr<GroupMemory> made(new GroupMemory(sizes));
  HEKLA_ASSIGN_OR_RETURN(made->file_, collectives::open_shared_file(card, made->bytes_));
  HEKLA_RETURN_IF_ERROR(made->map(made->file_));
  made->close_file();
  Front front;
  std::memcpy(&front, made->memory_, sizeof(front));
  if (front.magic != kMagic || front.token[0] != card.token[0] || front.token[1] != card.token[1] ||
      front.ranks != sizes.ranks || front.flat_bytes != sizes.flat_bytes ||
      front.slot_bytes != sizes.slot_bytes) {
    return data_loss("the memory of process {} is not what its card says", card.pid);
  }
  return made;
}

SegmentCard GroupMemory::card() const {
  SegmentCard card = SegmentCard::of_this_process();
  card.file = file_;
  card.token[0] = token_[0];
  card.token[1] = token_[1];
  return card;
}

void GroupMemory::ring(int rank) const {
  RankState& state = this->state(rank);
  if (state.sleeps.load(std::memory_order_seq_cst) != 0) wake(rank);
}

void GroupMemory::wake(int rank) const {
  RankState& state = this->state(rank);
  state.bell.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &state.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void GroupMemory::sleep(int rank, uint32_t seen, int64_t nanoseconds) const {
  timespec time = {};
  time.tv_sec = nanoseconds / 1'000'000'000;
  time.tv_nsec = nanoseconds % 1'000'000'000;
  ::syscall(SYS_futex, &state(rank).bell, FUTEX_WAIT, seen, &time, nullptr, 0);
}

std::optional<std::pair<uint64_t, Call>> GroupMemory::last_call(int rank) const {
  // The later one; while it is being written the words are those of either.
  const Announcement* last = nullptr;
  uint64_t stamp = 0;
  for (const uint64_t parity : {0, 1}) {
    const Announcement& one = announcement(rank, parity);
    const uint64_t own = one.stamp.load(std::memory_order_acquire);
    if (own <= stamp) continue;
    stamp = own;
    last = &one;
  }
  if (last == nullptr) return {};
  std::array<uint64_t, 4> words;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = last->call[i].load(std::memory_order_relaxed);
  }
  return std::pair(stamp - 1, call_of_words(words));
}

}  // namespace hekla::process_group
