// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/hdf5.h"

#include <pthread.h>

#include <mutex>
#include <new>
#include <string>

#include "runtime/base/async/completion.h"
#include "runtime/base/async/serial_queue.h"

namespace hekla::checkpoint {
namespace {

struct Hdf5Thread {
  SerialQueue queue{{.on_start = [] {
    // Without this the library would run its exit handlers in whatever state a dying process is.
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }}};
  std::mutex working;  // held while the library is at work

  Status run(const std::function<Status()>& work) {
    try {
      const std::lock_guard lock(working);
      return work();
    } catch (const std::bad_alloc&) {
      return resource_exhausted("no memory for the metadata of a checkpoint");
    }
  }
  Status submit(const std::function<Status()>& work) {
    if (queue.is_own_thread()) return work();
    Completion done;
    queue.post([&] { done.complete(run(work)); });
    return done.await();
  }
};

std::mutex start_mutex;
Hdf5Thread* hdf5_thread = nullptr;  // never freed: its thread lives as long as the process

void before_fork() {
  start_mutex.lock();
  if (hdf5_thread != nullptr) hdf5_thread->working.lock();
}
void after_fork_in_parent() {
  if (hdf5_thread != nullptr) hdf5_thread->working.unlock();
  start_mutex.unlock();
}
void after_fork_in_child() {
  hdf5_thread = nullptr;
  start_mutex.unlock();
}

Hdf5Thread& the_hdf5_thread() {
  const std::lock_guard lock(start_mutex);
  if (hdf5_thread == nullptr) {
    static const int registered =
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    (void)registered;
    hdf5_thread = new Hdf5Thread();
  }
  return *hdf5_thread;
}

herr_t append_error(unsigned, const H5E_error2_t* error, void* text) {
  *static_cast<std::string*>(text) +=
      fmt::format("{}{}: {}", static_cast<std::string*>(text)->empty() ? "" : "; ",
                  error->func_name == nullptr ? "?" : error->func_name,
                  error->desc == nullptr ? "?" : error->desc);
  return 0;
}

}  // namespace

Status on_hdf5_thread(const std::function<Status()>& work) {
  return the_hdf5_thread().submit(work);
}

Status hdf5_error(std::string_view what) {
  std::string stack;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, append_error, &stack);
  H5Eclear2(H5E_DEFAULT);
  return internal_error("{}: HDF5: {}", what, stack.empty() ? "no error stack" : stack);
}

Status Handle::close(std::string_view what) {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  return id < 0 ? ok_status() : check_hdf5(close_(id), what);
}

Result<Handle> own(hid_t id, herr_t (*close)(hid_t), std::string_view what) {
  if (id < 0) return hdf5_error(what);
  return Handle(id, close);
}

Status check_hdf5(herr_t status, std::string_view what) {
  return status < 0 ? hdf5_error(what) : ok_status();
}

}  // namespace hekla::checkpoint
