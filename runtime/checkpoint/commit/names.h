// SPDX-License-Identifier: Apache-2.0
// Names within the root folder of a run, and what each of them means. Pure functions.
//
//   ROOT.json                      what this folder is; written once
//   step-000000001000              a step, if its COMMIT is valid
//   .tmp-000000001500-<nonce>      a save under way, or the rest of one
//   .owner-<nonce>                 lease of the process that coordinates that save
//   .old-000000001000-<nonce>      a step while that save takes its place
//   .trash-<nonce>                 on its way to deletion
//   .bad-step-...-<nonce>          a step without a valid COMMIT, put aside
//   LATEST                         the newest step, a hint
//   LOCK                           of the manager that may delete
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hekla::checkpoint {

inline constexpr std::string_view kRootFile = "ROOT.json";
inline constexpr std::string_view kCommitFile = "COMMIT";
inline constexpr std::string_view kPinFile = "PIN";
inline constexpr std::string_view kLatestFile = "LATEST";
inline constexpr std::string_view kLockFile = "LOCK";
inline constexpr std::string_view kAbortedFile = "ABORTED.txt";
inline constexpr std::string_view kDataFolder = "data";
inline constexpr std::string_view kExtraFolder = "extra";
inline constexpr std::string_view kTrashPrefix = ".trash-";
inline constexpr std::string_view kOwnerPrefix = ".owner-";
inline constexpr std::string_view kBadPrefix = ".bad-";
// Twelve digits: the order of names is the order of steps.
inline constexpr int64_t kMaxStep = 999'999'999'999;

struct StepAndNonce {
  int64_t step = 0;
  std::string nonce;
};

std::string step_name(int64_t step);
std::string temporary_name(int64_t step, std::string_view nonce);
std::string old_name(int64_t step, std::string_view nonce);
std::string owner_name(std::string_view nonce);
std::string trash_name();                     // a new one with each call
std::string bad_name(std::string_view name);  // likewise

// nullopt when the name is of another kind.
std::optional<int64_t> parse_step_name(std::string_view name);
std::optional<StepAndNonce> parse_temporary_name(std::string_view name);
std::optional<StepAndNonce> parse_old_name(std::string_view name);

}  // namespace hekla::checkpoint
