// SPDX-License-Identifier: Apache-2.0
// What a library that moves bytes between machines offers (libhekla_gloo.so, libhekla_ucx.so), as
// a C table: pairs of ends, one in each of two processes, and bytes from one to the other.
//
// The library is a file of its own, opened by carrier_library.h when processes of several machines
// first meet. Nothing but `hekla_carrier_table` is visible in it, and what it links to is loaded
// with it alone.
//
// Functions that fail say why in `Error` and return null, false or kFailed. Thread-safe, but for
// two waits of one kind on one buffer, two calls of is_open on one pair, and for what frees. A pair
// has failed once and for all when its partner's process has ended or something else closed it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hekla::collectives::carrier {

struct Error {
  char text[500] = {};
};

enum Waited : int32_t { kFailed = -1, kWoken = 0, kDone = 1 };

inline constexpr int32_t kTableVersion = 1;
inline constexpr size_t kMaxNameBytes = 4096;

struct Table {
  int32_t version;
  // "Gloo 0.5.0 (tcp)": the same on all processes.
  const char* (*description)();

  // This process on the interface of a numeric address. It has a thread, started by the caller,
  // whose signal mask it inherits.
  void* (*open)(const char* address, Error* error);
  void (*close)(void* device);  // after its pairs

  // One end; it can be reached from now on by who has `name`, which gets kMaxNameBytes at most.
  void* (*make_pair)(void* device, int64_t connect_ms, char* name, size_t* name_bytes,
                     Error* error);
  void (*free_pair)(void* pair);  // after its buffers; what has been sent still arrives
  // Blocks until the partner is there, for connect_ms at most. Once.
  bool (*connect)(void* pair, const char* name, size_t name_bytes, Error* error);
  // Ends a call of connect under way, and the pair.
  void (*shut)(void* pair);
  // Of a pair that is connected. False: it has failed.
  bool (*is_open)(void* pair, Error* error);

  // Memory of the caller's, which stays until the buffer is freed. Bytes that are still to be sent
  // from it or received into it then are not.
  void* (*make_buffer)(void* pair, void* data, size_t bytes, Error* error);
  void (*free_buffer)(void* buffer);
  // Post and return. What is sent on a channel arrives, in the order of the calls, in what is
  // posted on that channel at the other end, in that order; what is posted there has room for it.
  bool (*send)(void* buffer, uint64_t channel, size_t offset, size_t bytes, Error* error);
  bool (*receive)(void* buffer, uint64_t channel, size_t offset, size_t bytes, Error* error);
  // Wait for the next one posted. Sent: the memory may be used again. kFailed comes for those alone
  // that have not begun: whoever waits for one under way is woken by others.
  Waited (*wait_sent)(void* buffer, Error* error);
  Waited (*wait_received)(void* buffer, Error* error);
  // The same for `milliseconds` at most, after which the pair has failed: for its end. Never
  // kWoken.
  Waited (*last_sent)(void* buffer, int64_t milliseconds, Error* error);
  Waited (*last_received)(void* buffer, int64_t milliseconds, Error* error);
  // The wait under way, or else the next one, returns kWoken.
  void (*wake_sender)(void* buffer);
  void (*wake_receiver)(void* buffer);
};

}  // namespace hekla::collectives::carrier

// The only symbol of the library. Never null; the caller looks at `version`.
extern "C" const hekla::collectives::carrier::Table* hekla_carrier_table();
