// SPDX-License-Identifier: Apache-2.0
// FileStore: a Store in a folder that all processes see.
//
// One file per key, put in place whole by rename or link, so that a reader sees a value or none
// and a death within a call leaves at most an unused temporary file. A new value where there must
// be none is a link: atomic on every file system. The other changes also take flock on one file,
// which the kernel frees when its holder dies, so that no addition is lost. Nothing is synced:
// values are for live processes and need not survive a power cut.
//
// A member holds flock on its own file: the same machine sees its death at once, another one when
// its heartbeat is old. Children made by fork without exec keep the lock alive as long as they
// live. Changes are noticed by inotify, and by looking every 50 ms where that does not reach
// (network file systems). Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "runtime/base/io/file.h"
#include "runtime/rendezvous/lease.h"
#include "runtime/rendezvous/store.h"

namespace hekla::rendezvous {

class FileStore final : public Store {
 public:
  // Makes the folder when it is missing. `io` must outlive the store.
  static Result<std::unique_ptr<FileStore>> open(Io& io, std::string folder);
  ~FileStore() override;

  Status set(std::string_view key, std::string_view value) override;
  Result<std::optional<std::string>> get(std::string_view key) override;
  Result<int64_t> add(std::string_view key, int64_t delta) override;
  Result<Swap> compare_set(std::string_view key, std::optional<std::string_view> expected,
                           std::string_view desired) override;
  Status remove(std::string_view key) override;
  Result<std::map<std::string, std::string>> get_all(std::string_view prefix) override;
  Status remove_all(std::string_view prefix) override;
  Status join(std::string_view member) override;
  Status leave(std::string_view member) override;
  Result<bool> is_lost(std::string_view member) override;
  uint64_t ticket() override;
  void wait_change(uint64_t ticket, Deadline deadline) override;

 private:
  FileStore(Io& io, std::string folder) : io_(io), folder_(std::move(folder)) {}
  static Status check(std::string_view key);
  std::string path_of(std::string_view kind, std::string_view key) const;
  std::string temporary_path() const;
  // A whole value under a name that nobody looks at; the path.
  Result<std::string> write_temporary(std::string_view value);
  Status put(std::string_view key, std::string_view value);  // rename in place
  // The folder's lock, until the file is closed.
  Result<File> lock();
  void drop_old_temporaries();

  Io& io_;
  const std::string folder_;
  int inotify_ = -1;
  std::mutex mutex_;
  uint64_t changes_ = 0;                  // noticed; guarded by mutex_
  std::map<std::string, Lease> members_;  // held by this object; guarded by mutex_
};

// For implementations of add. FAILED_PRECONDITION: not a number; OUT_OF_RANGE: the sum is none.
Result<int64_t> parse_number(std::string_view key, std::string_view text);
Result<std::string> sum_text(std::string_view key, std::string_view text, int64_t delta);

}  // namespace hekla::rendezvous
