// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/shared_segment.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>
#include <vector>

#include "runtime/base/host.h"
#include "runtime/base/protobuf_wire.h"

namespace hekla::collectives {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kLeastRingBytes = kSharedPageBytes;
constexpr uint64_t kMostRingBytes = uint64_t{1} << 30;

class FileHandle {
 public:
  explicit FileHandle(int number) : number_(number) {}
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  ~FileHandle() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

std::string error_text() { return std::strerror(errno); }

// "pid:[4026531836]"; empty where /proc does not tell.
std::string pid_namespace() {
  char text[64] = {};
  const ssize_t length = ::readlink("/proc/self/ns/pid", text, sizeof(text) - 1);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

// Where the kernel counts what it has promised (overcommit_memory 2), a page that it cannot give is
// a signal to whoever writes it first.
bool is_promise_counted() {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int mode = 0;
  file >> mode;
  return mode == 2;
}

uint64_t slot_bytes(uint64_t ring_bytes) { return kSharedPageBytes + ring_bytes; }

Result<std::byte*> map_shared(int file, uint64_t offset, uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  if (at == MAP_FAILED) {
    return unavailable("mapping {} bytes of memory that processes share: {}", bytes, error_text());
  }
  return static_cast<std::byte*>(at);
}

}  // namespace

void Bell::ring() {
  count.fetch_add(1, std::memory_order_seq_cst);
  if (waiting.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wait(uint32_t seen, int64_t nanoseconds) {
  waiting.store(1, std::memory_order_seq_cst);
  timespec time = {};
  time.tv_sec = nanoseconds / 1'000'000'000;
  time.tv_nsec = nanoseconds % 1'000'000'000;
  ::syscall(SYS_futex, &count, FUTEX_WAIT, seen, &time, nullptr, 0);
  waiting.store(0, std::memory_order_relaxed);
}

std::string SegmentCard::text() const {
  wire::Writer writer;
  writer.bytes(1, boot_id);
  writer.bytes(2, host);
  writer.bytes(3, pid_namespace);
  writer.varint(4, static_cast<uint64_t>(pid));
  writer.varint(5, static_cast<uint64_t>(file));
  writer.fixed64(6, token[0]);
  writer.fixed64(7, token[1]);
  writer.varint(8, ring_bytes);
  return writer.text();
}

Result<SegmentCard> SegmentCard::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  SegmentCard card;
  for (const wire::Field& field : fields) {
    if (field.number == 1) card.boot_id = field.bytes;
    if (field.number == 2) card.host = field.bytes;
    if (field.number == 3) card.pid_namespace = field.bytes;
    if (field.number == 4) card.pid = static_cast<int64_t>(field.value);
    if (field.number == 5) card.file = static_cast<int64_t>(field.value);
    if (field.number == 6) card.token[0] = field.value;
    if (field.number == 7) card.token[1] = field.value;
    if (field.number == 8) card.ring_bytes = field.value;
  }
  if (card.pid <= 0 || card.pid > INT_MAX || card.file < 0 || card.file > INT_MAX ||
      !std::has_single_bit(card.ring_bytes) || card.ring_bytes < kLeastRingBytes ||
      card.ring_bytes > kMostRingBytes) {
    return invalid_argument("a malformed description of shared memory");
  }
  return card;
}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(head_, other.head_);
  std::swap(rings_, other.rings_);
  std::swap(rings_bytes_, other.rings_bytes_);
  std::swap(first_, other.first_);
  std::swap(ring_bytes_, other.ring_bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (rings_ != nullptr) ::munmap(rings_, rings_bytes_);
  if (head_ != nullptr) ::munmap(head_, kSharedPageBytes);
  if (file_ >= 0) ::close(file_);
}

Ring SharedSegment::ring(int sender) const {
  std::byte* const slot = rings_ + static_cast<size_t>(sender - first_) * slot_bytes(ring_bytes_);
  return {reinterpret_cast<RingHead*>(slot), slot + kSharedPageBytes, ring_bytes_};
}

Result<SharedSegment> SharedSegment::create(int rank, int size, uint64_t ring_bytes) {
  if (!std::has_single_bit(ring_bytes) || ring_bytes < kLeastRingBytes ||
      ring_bytes > kMostRingBytes) {
    return invalid_argument("a ring of {} bytes; it must be a power of two from {} to {}",
                            ring_bytes, kLeastRingBytes, kMostRingBytes);
  }
  SharedSegment segment;
  segment.ring_bytes_ = ring_bytes;
  segment.rings_bytes_ = static_cast<size_t>(size) * slot_bytes(ring_bytes);
  HEKLA_ASSIGN_OR_RETURN(segment.file_, create_shared_file(kSharedPageBytes + segment.rings_bytes_,
                                                           is_promise_counted()));
  HEKLA_ASSIGN_OR_RETURN(std::byte * head, map_shared(segment.file_, 0, kSharedPageBytes));
  segment.head_ = new (head) SegmentHead;
  HEKLA_ASSIGN_OR_RETURN(segment.rings_,
                         map_shared(segment.file_, kSharedPageBytes, segment.rings_bytes_));
  for (int sender = 0; sender < size; ++sender) new (segment.ring(sender).head) RingHead;
  SegmentHead& own = *segment.head_;
  if (::getrandom(own.token, sizeof(own.token), 0) != sizeof(own.token)) {
    return unavailable("no random numbers: {}", error_text());
  }
  own.ring_bytes = ring_bytes;
  own.size = static_cast<uint32_t>(size);
  own.rank = static_cast<uint32_t>(rank);
  own.magic = SegmentHead::kMagic;
  return segment;
}

Result<int> create_shared_file(uint64_t bytes, bool is_reserved) {
  FileHandle file(::memfd_create("hekla processes", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.number() < 0) return unavailable("no memory to share (memfd): {}", error_text());
  // The kernel's answer to what is too large is an error here, not a signal at the first write.
  if (::ftruncate(file.number(), static_cast<off_t>(bytes)) != 0 ||
      (is_reserved && ::fallocate(file.number(), 0, 0, static_cast<off_t>(bytes)) != 0) ||
      ::fcntl(file.number(), F_ADD_SEALS, kSeals) != 0) {
    return unavailable("no {} bytes of memory to share: {}", bytes, error_text());
  }
  return file.release();
}

Result<int> open_shared_file(const SegmentCard& card, uint64_t bytes) {
  if (card.boot_id != boot_id() || card.boot_id.empty()) {
    return failed_precondition(
        "it runs on another machine, {}, than this one, {}, and shared memory does not reach there",
        card.host, host_name());
  }
  if (card.pid_namespace != pid_namespace()) {
    return failed_precondition(
        "it runs on the same machine but in another container, whose processes are not seen from "
        "here, so it shares no memory");
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", card.pid, card.file);
  FileHandle file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.number() < 0) {
    return failed_precondition(
        "its memory cannot be opened ({}: {}): it has ended, or belongs to another user", path,
        error_text());
  }
  const auto is_other = [&](const char* what) {
    return data_loss("what {} leads to is not its memory: {}", path, what);
  };
  const int seals = ::fcntl(file.number(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return is_other("it is not sealed");
  struct stat about = {};
  if (::fstat(file.number(), &about) != 0 || static_cast<uint64_t>(about.st_size) != bytes) {
    return is_other("it has another size");
  }
  return file.release();
}

Result<SharedSegment> SharedSegment::open(const SegmentCard& card, int rank, int own, int size) {
  const uint64_t slot = slot_bytes(card.ring_bytes);
  HEKLA_ASSIGN_OR_RETURN(
      const int number,
      open_shared_file(card, kSharedPageBytes + static_cast<uint64_t>(size) * slot));
  const FileHandle file(number);
  SharedSegment segment;
  segment.ring_bytes_ = card.ring_bytes;
  segment.first_ = own;
  HEKLA_ASSIGN_OR_RETURN(std::byte * head, map_shared(file.number(), 0, kSharedPageBytes));
  segment.head_ = reinterpret_cast<SegmentHead*>(head);
  const SegmentHead& theirs = *segment.head_;
  if (theirs.magic != SegmentHead::kMagic || theirs.token[0] != card.token[0] ||
      theirs.token[1] != card.token[1] || theirs.ring_bytes != card.ring_bytes ||
      theirs.size != static_cast<uint32_t>(size) || theirs.rank != static_cast<uint32_t>(rank)) {
    return data_loss("the memory of process {} is not what its card says", card.pid);
  }
  segment.rings_bytes_ = slot;
  HEKLA_ASSIGN_OR_RETURN(
      segment.rings_,
      map_shared(file.number(), kSharedPageBytes + static_cast<uint64_t>(own) * slot, slot));
  return segment;
}

SegmentCard SegmentCard::of_this_process() {
  SegmentCard card;
  card.boot_id = hekla::boot_id();
  card.host = host_name();
  card.pid_namespace = collectives::pid_namespace();
  card.pid = ::getpid();
  card.ring_bytes = kLeastRingBytes;
  return card;
}

SegmentCard SharedSegment::card() const {
  SegmentCard card = SegmentCard::of_this_process();
  card.file = file_;
  card.token[0] = head_->token[0];
  card.token[1] = head_->token[1];
  card.ring_bytes = ring_bytes_;
  return card;
}

}  // namespace hekla::collectives
