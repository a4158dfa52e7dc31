// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/flight_records.h"

#include <filesystem>

#include "runtime/base/host.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/process_group/flight/flight_analysis.h"

namespace hekla::launch {

namespace fs = std::filesystem;

FlightRecords::FlightRecords(const std::string& folder, bool is_shared)
    : is_kept_(!folder.empty()) {
  std::error_code error;
  if (is_kept_) {
    // Ranks may change their working directory.
    const fs::path absolute = fs::absolute(folder, error);
    folder_ = error ? folder : absolute.lexically_normal().string();
    process_group::clear_flight(folder_, is_shared);
    return;
  }
  const fs::path place = fs::temp_directory_path(error);
  folder_ = (place / ("hekla-flight-" + random_hex(8))).string();
}

FlightRecords::~FlightRecords() {
  std::error_code ignored;
  if (!is_kept_) fs::remove_all(folder_, ignored);
}

std::string FlightRecords::begin(int64_t attempt) {
  const std::string folder = process_group::flight_folder(folder_, attempt);
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  if (error) {
    say(fmt::format("calls of process groups are not recorded in {}: {}", folder, error.message()));
    return {};
  }
  if (is_new) fs::permissions(folder, fs::perms::owner_all, error);
  return folder;
}

void FlightRecords::explain(int64_t attempt) const {
  const auto found = process_group::explain_attempt(process_group::flight_folder(folder_, attempt));
  if (!found.ok()) return;
  for (const std::string& finding : found->findings) say("flight records: " + finding);
}

}  // namespace hekla::launch
