// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/io/memory_io.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "runtime/base/hash.h"

namespace hekla {
namespace {

constexpr uint64_t kRoot = 1;
constexpr int kFirstDescriptor = 1000;  // not to be taken for one of the kernel's
// Below this many pending changes all combinations are tried: 3 fates would be too many for more.
constexpr int64_t kExhaustive = 5;

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at < path.size()) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (slash > at && path.compare(at, slash - at, ".") != 0) {
      parts.push_back(path.substr(at, slash - at));
    }
    at = slash + 1;
  }
  return parts;
}

// FNV-1a, of eight bytes at a time: a fingerprint of a disk is taken for every power cut.
void mix(uint64_t* hash, const void* data, size_t size) {
  constexpr uint64_t kPrime = 0x100000001b3;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    *hash = (*hash ^ word) * kPrime;
    *hash ^= *hash >> 32;
  }
  for (size_t i = 0; i < size; ++i) *hash = (*hash ^ bytes[i]) * kPrime;
}

}  // namespace

MemoryIo::MemoryIo() { nodes_[kRoot] = Node{FileKind::kDirectory, {}, {}, 0}; }

void MemoryIo::set_capacity(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void MemoryIo::set_direct_allowed(bool allowed) {
  const std::lock_guard lock(mutex_);
  direct_allowed_ = allowed;
}

void MemoryIo::advance(int64_t ns) {
  const std::lock_guard lock(mutex_);
  clock_offset_ns_ += ns;
}

int64_t MemoryIo::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
             .count() +
         clock_offset_ns_;
}

int64_t MemoryIo::used() const {
  int64_t bytes = 0;
  for (const auto& [id, node] : nodes_) bytes += static_cast<int64_t>(node.bytes.size());
  return bytes;
}

int MemoryIo::find(const std::string& path, uint64_t* node) const {
  uint64_t at = kRoot;
  for (const std::string& part : parts_of(path)) {
    const Node& folder = nodes_.at(at);
    if (folder.kind != FileKind::kDirectory) return -ENOTDIR;
    const auto entry = folder.entries.find(part);
    if (entry == folder.entries.end()) return -ENOENT;
    at = entry->second;
  }
  *node = at;
  return 0;
}

int MemoryIo::find_parent(const std::string& path, uint64_t* folder, std::string* name) const {
  std::vector<std::string> parts = parts_of(path);
  if (parts.empty()) return -EEXIST;
  *name = parts.back();
  if (name->size() > 255) return -ENAMETOOLONG;
  parts.pop_back();
  std::string parent;
  for (const std::string& part : parts) parent += "/" + part;
  if (const int status = find(parent, folder); status < 0) return status;
  return nodes_.at(*folder).kind == FileKind::kDirectory ? 0 : -ENOTDIR;
}

void MemoryIo::apply(const Change& change) {
  switch (change.kind) {
    case Change::Kind::kMake:
      nodes_[change.node] = Node{change.made, {}, {}, now()};
      break;
    case Change::Kind::kWrite: {
      Node& node = nodes_[change.node];
      const size_t end = static_cast<size_t>(change.offset) + change.bytes.size();
      if (node.bytes.size() < end) node.bytes.resize(end);
      std::copy(change.bytes.begin(), change.bytes.end(), node.bytes.begin() + change.offset);
      node.modified_ns = now();
      break;
    }
    case Change::Kind::kResize:
      nodes_[change.node].bytes.resize(static_cast<size_t>(change.offset));
      nodes_[change.node].modified_ns = now();
      break;
    case Change::Kind::kNames:
      for (const NameChange& name : change.names) {
        Node& folder = nodes_[name.folder];
        if (name.node == 0) {
          folder.entries.erase(name.name);
        } else {
          folder.entries[name.name] = name.node;
        }
        folder.modified_ns = now();
      }
      break;
    case Change::Kind::kSync:
      break;
  }
}

void MemoryIo::record(Change change) {
  apply(change);
  journal_.push_back(std::move(change));
}

int MemoryIo::change_names(std::vector<NameChange> names) {
  std::vector<uint64_t> lost;
  for (const NameChange& name : names) {
    const Node& folder = nodes_.at(name.folder);
    const auto entry = folder.entries.find(name.name);
    if (entry != folder.entries.end()) lost.push_back(entry->second);
  }
  Change change;
  change.kind = Change::Kind::kNames;
  change.names = std::move(names);
  record(std::move(change));
  for (const uint64_t node : lost) forget_if_unused(node);
  return 0;
}

void MemoryIo::forget_if_unused(uint64_t node) {
  if (node == kRoot) return;
  for (const auto& [fd, open] : open_) {
    if (open.node == node) return;
  }
  for (const auto& [id, folder] : nodes_) {
    for (const auto& [name, child] : folder.entries) {
      if (child == node) return;
    }
  }
  nodes_.erase(node);
}

void MemoryIo::describe(uint64_t id, FileInfo* info) const {
  const Node& node = nodes_.at(id);
  info->kind = node.kind;
  info->size = static_cast<int64_t>(node.bytes.size());
  info->inode = id;
  info->device = 1;
  info->modified_ns = node.modified_ns;
}

int MemoryIo::open(const std::string& path, int flags, int) {
  const std::lock_guard lock(mutex_);
  if ((flags & O_DIRECT) != 0 && !direct_allowed_) return -EINVAL;
  uint64_t node = 0;
  const int found = find(path, &node);
  if (found == 0) {
    if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return -EEXIST;
    const bool folder = nodes_.at(node).kind == FileKind::kDirectory;
    if (folder && (flags & O_ACCMODE) != O_RDONLY) return -EISDIR;
    if (!folder && (flags & O_DIRECTORY) != 0) return -ENOTDIR;
    if ((flags & O_TRUNC) != 0 && !nodes_.at(node).bytes.empty()) resize(node, 0);
  } else {
    if (found != -ENOENT || (flags & O_CREAT) == 0) return found;
    uint64_t folder = 0;
    std::string name;
    if (const int status = find_parent(path, &folder, &name); status < 0) return status;
    node = next_node_++;
    Change made;
    made.kind = Change::Kind::kMake;
    made.node = node;
    record(std::move(made));
    change_names({{folder, name, node}});
  }
  int fd = kFirstDescriptor;
  while (open_.count(fd) != 0) ++fd;
  open_[fd] = Open{node, flags, LockKind::kNone};
  return fd;
}

int MemoryIo::close(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end()) return -EBADF;
  const uint64_t node = found->second.node;
  open_.erase(found);
  forget_if_unused(node);
  return 0;
}

int64_t MemoryIo::pread(int fd, void* data, int64_t bytes, int64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end() || (found->second.flags & O_ACCMODE) == O_WRONLY) return -EBADF;
  const Node& node = nodes_.at(found->second.node);
  if (node.kind == FileKind::kDirectory) return -EISDIR;
  const auto size = static_cast<int64_t>(node.bytes.size());
  const int64_t moved = std::max<int64_t>(0, std::min(bytes, size - offset));
  if (moved > 0) std::memcpy(data, node.bytes.data() + offset, static_cast<size_t>(moved));
  return moved;
}

int64_t MemoryIo::pwrite(int fd, const void* data, int64_t bytes, int64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end() || (found->second.flags & O_ACCMODE) == O_RDONLY) return -EBADF;
  const Node& node = nodes_.at(found->second.node);
  if (capacity_ >= 0) {
    const auto size = static_cast<int64_t>(node.bytes.size());
    const int64_t limit = std::max(size, size + capacity_ - used());
    bytes = std::min(bytes, limit - offset);
    if (bytes <= 0) return -ENOSPC;
  }
  const auto* from = static_cast<const std::byte*>(data);
  Change change;
  change.kind = Change::Kind::kWrite;
  change.node = found->second.node;
  change.offset = offset;
  change.bytes.assign(from, from + bytes);
  record(std::move(change));
  return bytes;
}

int MemoryIo::resize(uint64_t node, int64_t bytes) {
  const auto size = static_cast<int64_t>(nodes_.at(node).bytes.size());
  if (capacity_ >= 0 && bytes > size && used() + bytes - size > capacity_) return -ENOSPC;
  Change change;
  change.kind = Change::Kind::kResize;
  change.node = node;
  change.offset = bytes;
  record(std::move(change));
  return 0;
}

int MemoryIo::fallocate(int fd, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end() || (found->second.flags & O_ACCMODE) == O_RDONLY) return -EBADF;
  const auto size = static_cast<int64_t>(nodes_.at(found->second.node).bytes.size());
  return bytes > size ? resize(found->second.node, bytes) : 0;
}

int MemoryIo::truncate(int fd, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end() || (found->second.flags & O_ACCMODE) == O_RDONLY) return -EBADF;
  return resize(found->second.node, bytes);
}

int MemoryIo::fsync(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end()) return -EBADF;
  Change change;
  change.kind = Change::Kind::kSync;
  change.node = found->second.node;
  record(std::move(change));
  return 0;
}

int MemoryIo::fdatasync(int fd) { return fsync(fd); }

int MemoryIo::write_behind(int, int64_t, int64_t, bool) { return 0; }

int MemoryIo::drop_cache(int, int64_t, int64_t) { return 0; }

int MemoryIo::lock(int fd, LockKind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end()) return -EBADF;
  if (kind != LockKind::kNone) {
    for (const auto& [other, open] : open_) {
      if (other == fd || open.node != found->second.node || open.lock == LockKind::kNone) continue;
      if (kind == LockKind::kExclusive || open.lock == LockKind::kExclusive) return -EWOULDBLOCK;
    }
  }
  found->second.lock = kind;
  return 0;
}

int MemoryIo::direct_alignment(int, int64_t* memory, int64_t* offset) {
  *memory = *offset = 4096;
  return 0;
}

int MemoryIo::stat(const std::string& path, FileInfo* info) {
  const std::lock_guard lock(mutex_);
  uint64_t node = 0;
  if (const int status = find(path, &node); status < 0) return status;
  describe(node, info);
  return 0;
}

int MemoryIo::fstat(int fd, FileInfo* info) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(fd);
  if (found == open_.end()) return -EBADF;
  describe(found->second.node, info);
  return 0;
}

int MemoryIo::mkdir(const std::string& path, int) {
  const std::lock_guard lock(mutex_);
  uint64_t folder = 0;
  std::string name;
  if (const int status = find_parent(path, &folder, &name); status < 0) return status;
  if (nodes_.at(folder).entries.count(name) != 0) return -EEXIST;
  Change change;
  change.kind = Change::Kind::kMake;
  change.made = FileKind::kDirectory;
  change.node = next_node_++;
  const uint64_t node = change.node;
  record(std::move(change));
  return change_names({{folder, name, node}});
}

int MemoryIo::rmdir(const std::string& path) {
  const std::lock_guard lock(mutex_);
  uint64_t folder = 0, node = 0;
  std::string name;
  if (const int status = find_parent(path, &folder, &name); status < 0) return status;
  if (const int status = find(path, &node); status < 0) return status;
  if (nodes_.at(node).kind != FileKind::kDirectory) return -ENOTDIR;
  if (!nodes_.at(node).entries.empty()) return -ENOTEMPTY;
  return change_names({{folder, name, 0}});
}

int MemoryIo::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  uint64_t source = 0, from_folder = 0, to_folder = 0, target = 0;
  std::string from_name, to_name;
  if (const int status = find_parent(from, &from_folder, &from_name); status < 0) return status;
  if (const int status = find(from, &source); status < 0) return status;
  if (const int status = find_parent(to, &to_folder, &to_name); status < 0) return status;
  if (find(to, &target) == 0) {
    const Node& replaced = nodes_.at(target);
    const bool folder = nodes_.at(source).kind == FileKind::kDirectory;
    if (folder && replaced.kind != FileKind::kDirectory) return -ENOTDIR;
    if (!folder && replaced.kind == FileKind::kDirectory) return -EISDIR;
    if (folder && !replaced.entries.empty()) return -ENOTEMPTY;
    if (target == source) return 0;
  }
  return change_names({{from_folder, from_name, 0}, {to_folder, to_name, source}});
}

int MemoryIo::link(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  uint64_t node = 0, folder = 0;
  std::string name;
  if (const int status = find(from, &node); status < 0) return status;
  if (nodes_.at(node).kind == FileKind::kDirectory) return -EPERM;
  if (const int status = find_parent(to, &folder, &name); status < 0) return status;
  if (nodes_.at(folder).entries.count(name) != 0) return -EEXIST;
  return change_names({{folder, name, node}});
}

int MemoryIo::unlink(const std::string& path) {
  const std::lock_guard lock(mutex_);
  uint64_t folder = 0, node = 0;
  std::string name;
  if (const int status = find_parent(path, &folder, &name); status < 0) return status;
  if (const int status = find(path, &node); status < 0) return status;
  if (nodes_.at(node).kind == FileKind::kDirectory) return -EISDIR;
  return change_names({{folder, name, 0}});
}

int MemoryIo::list(const std::string& path, std::vector<DirectoryEntry>* entries) {
  const std::lock_guard lock(mutex_);
  uint64_t node = 0;
  if (const int status = find(path, &node); status < 0) return status;
  if (nodes_.at(node).kind != FileKind::kDirectory) return -ENOTDIR;
  for (const auto& [name, child] : nodes_.at(node).entries) {
    entries->push_back({name, nodes_.at(child).kind});
  }
  return 0;
}

int MemoryIo::space(const std::string&, FileSystemSpace* space) {
  const std::lock_guard lock(mutex_);
  space->total_bytes = capacity_ < 0 ? int64_t{1} << 60 : capacity_;
  space->free_bytes = std::max<int64_t>(0, space->total_bytes - used());
  return 0;
}

int64_t MemoryIo::journal_size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(journal_.size());
}

// Per change: nothing of it can be lost. Makes and syncs are of no matter by themselves.
std::vector<bool> MemoryIo::durable(int64_t changes) const {
  std::vector<bool> safe(static_cast<size_t>(changes));
  std::set<uint64_t> synced;  // by what comes after the change looked at
  for (int64_t i = changes - 1; i >= 0; --i) {
    const Change& change = journal_[static_cast<size_t>(i)];
    bool is_safe = true;
    if (change.kind == Change::Kind::kSync) {
      synced.insert(change.node);
    } else if (change.kind == Change::Kind::kNames) {
      for (const NameChange& name : change.names) is_safe &= synced.count(name.folder) != 0;
    } else if (change.kind != Change::Kind::kMake) {
      is_safe = synced.count(change.node) != 0;
    }
    safe[static_cast<size_t>(i)] = is_safe;
  }
  return safe;
}

int64_t MemoryIo::pending(int64_t changes) const {
  const std::lock_guard lock(mutex_);
  const std::vector<bool> safe = durable(changes);
  return std::count(safe.begin(), safe.end(), false);
}

std::unique_ptr<MemoryIo> MemoryIo::after_power_cut(int64_t changes,
                                                    const std::vector<Fate>& fates) const {
  const std::lock_guard lock(mutex_);
  auto disk = std::make_unique<MemoryIo>();
  const std::vector<bool> safe = durable(changes);
  size_t next_fate = 0;
  for (int64_t i = 0; i < changes; ++i) {
    const Change& change = journal_[static_cast<size_t>(i)];
    const Fate fate = safe[static_cast<size_t>(i)] ? Fate::kKept : fates.at(next_fate++);
    if (fate == Fate::kDropped) continue;
    if (fate == Fate::kTorn && change.kind == Change::Kind::kWrite) {
      Change half = change;
      half.bytes.resize(half.bytes.size() / 2);
      disk->apply(half);
    } else {
      disk->apply(change);
    }
  }
  // What no name leads to is lost; the new disk's journal begins with what is there.
  std::set<uint64_t> reached;
  std::vector<uint64_t> open = {kRoot};
  while (!open.empty()) {
    const uint64_t node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    for (const auto& [name, child] : disk->nodes_[node].entries) open.push_back(child);
  }
  std::erase_if(disk->nodes_, [&](const auto& entry) { return reached.count(entry.first) == 0; });
  disk->next_node_ = next_node_;
  for (const auto& [id, node] : disk->nodes_) {
    Change made;
    made.kind = Change::Kind::kMake;
    made.node = id;
    made.made = node.kind;
    if (id != kRoot) disk->journal_.push_back(made);
    Change filled;
    filled.node = id;
    filled.kind = Change::Kind::kWrite;
    filled.bytes = node.bytes;
    if (!node.bytes.empty()) disk->journal_.push_back(filled);
    Change named;
    named.kind = Change::Kind::kNames;
    for (const auto& [name, child] : node.entries) named.names.push_back({id, name, child});
    if (!named.names.empty()) disk->journal_.push_back(named);
    Change synced;
    synced.kind = Change::Kind::kSync;
    synced.node = id;
    disk->journal_.push_back(synced);
  }
  disk->capacity_ = capacity_;
  disk->clock_offset_ns_ = clock_offset_ns_;
  disk->direct_allowed_ = direct_allowed_;
  return disk;
}

uint64_t MemoryIo::fingerprint() const {
  const std::lock_guard lock(mutex_);
  uint64_t hash = kFnv1aBasis;
  const std::function<void(uint64_t)> walk = [&](uint64_t id) {
    const Node& node = nodes_.at(id);
    mix(&hash, &node.kind, sizeof(node.kind));
    mix(&hash, node.bytes.data(), node.bytes.size());
    for (const auto& [name, child] : node.entries) {
      mix(&hash, name.c_str(), name.size() + 1);
      walk(child);
      mix(&hash, "/", 1);
    }
  };
  walk(kRoot);
  return hash;
}

int64_t for_each_power_cut(const MemoryIo& disk, int64_t from, int64_t random_cuts, uint64_t seed,
                           const std::function<bool(const PowerCutPoint&, MemoryIo&)>& check) {
  using Fate = MemoryIo::Fate;
  std::mt19937_64 draw(seed);
  std::set<uint64_t> seen;
  int64_t tried = 0;
  for (int64_t changes = from; changes <= disk.journal_size(); ++changes) {
    const auto pending = static_cast<size_t>(disk.pending(changes));
    std::vector<std::vector<Fate>> cuts;
    if (static_cast<int64_t>(pending) <= kExhaustive) {
      std::vector<Fate> fates(pending, Fate::kDropped);
      while (true) {
        cuts.push_back(fates);
        size_t at = 0;
        while (at < pending && fates[at] == Fate::kTorn) fates[at++] = Fate::kDropped;
        if (at == pending) break;
        fates[at] = static_cast<Fate>(static_cast<char>(fates[at]) + 1);
      }
    } else {
      cuts.emplace_back(pending, Fate::kDropped);
      cuts.emplace_back(pending, Fate::kKept);
      for (size_t i = 0; i < pending; ++i) {
        for (const Fate fate : {Fate::kDropped, Fate::kTorn}) {
          cuts.emplace_back(pending, Fate::kKept).at(i) = fate;
        }
        cuts.emplace_back(pending, Fate::kDropped).at(i) = Fate::kKept;
      }
      for (int64_t i = 0; i < random_cuts; ++i) {
        std::vector<Fate>& fates = cuts.emplace_back(pending, Fate::kDropped);
        for (Fate& fate : fates) fate = static_cast<Fate>(draw() % 3);
      }
    }
    for (const std::vector<Fate>& fates : cuts) {
      const PowerCutPoint point{changes, fates};
      const std::unique_ptr<MemoryIo> after = disk.after_power_cut(changes, fates);
      if (!seen.insert(after->fingerprint()).second) continue;
      ++tried;
      if (!check(point, *after)) return tried;
    }
  }
  return tried;
}

}  // namespace hekla
