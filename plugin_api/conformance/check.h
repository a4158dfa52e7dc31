// SPDX-License-Identifier: Apache-2.0
// A check of the conformance suite and the groups that make it up. Internal to this folder.
#pragma once

#include <span>
#include <string>

namespace hekla::conformance {

class Session;

struct Check {
  const char* name;
  const char* promise;
  // Returns when the promise holds; throws Failure or NotOffered (session.h).
  void (*run)(Session& session);
};

struct Group {
  const char* name;
  const char* sections;  // of the PJRT plugin guide, the handbook that the promises come from
  std::span<const Check> checks;
};

std::span<const Check> table_checks();
std::span<const Check> size_checks();
std::span<const Check> error_checks();
std::span<const Check> client_checks();
std::span<const Check> topology_checks();
std::span<const Check> device_checks();
std::span<const Check> memory_checks();
std::span<const Check> event_checks();
std::span<const Check> dtype_checks();
std::span<const Check> upload_checks();
std::span<const Check> buffer_creation_checks();
std::span<const Check> stream_transfer_checks();
std::span<const Check> buffer_checks();
std::span<const Check> download_checks();
std::span<const Check> copy_checks();
std::span<const Check> compile_checks();
std::span<const Check> executable_checks();
std::span<const Check> execute_checks();
std::span<const Check> donation_checks();
std::span<const Check> flight_checks();
std::span<const Check> gang_checks();
std::span<const Check> callback_checks();
std::span<const Check> ffi_checks();
std::span<const Check> extension_checks();
std::span<const Check> lifetime_checks();

// Checks that another check runs in a second process; not listed.
std::span<const Check> hidden_checks();

// Runs a hidden check in a second process of the same kind, started with this process's own command
// line and one more environment variable. Returns when it passed; throws what it threw.
void run_in_another_process(Session& session, const char* hidden_check, const char* variable,
                            const std::string& value);

// All groups in the order in which they run.
std::span<const Group> groups();

}  // namespace hekla::conformance
