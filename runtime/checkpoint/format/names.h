// SPDX-License-Identifier: Apache-2.0
// What a tensor of a checkpoint may be called and what it may look like. Checked before a save
// plans anything, and again on what is read. Pure functions.
#pragma once

#include <span>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

inline constexpr int kMaxRank = 32;            // of HDF5
inline constexpr size_t kMaxNameBytes = 4096;  // of a whole name
inline constexpr size_t kMaxNameParts = 128;

bool is_utf8(std::string_view text);

// INVALID_ARGUMENT unless `name` is UTF-8 of at most kMaxNameBytes without control characters,
// with parts between '/' that are neither empty nor "." or "..". Dots within a part, spaces and
// any other character are fine.
Status check_name(std::string_view name);

// check_name for all; also: no name twice, no name that is a group of another one ("a" beside
// "a/b": one file cannot hold both a dataset and a group there), a known dtype, rank at most
// kMaxRank, sizes that fit.
Status check_tensors(std::span<const TensorInfo> tensors);

// Whether `path` is a relative path of plain parts: what a step may list as its file.
Status check_path(std::string_view path);

}  // namespace hekla::checkpoint
