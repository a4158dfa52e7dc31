// SPDX-License-Identifier: Apache-2.0
// Arrays in .npy files, numpy's own format (versions 1.0 to 3.0).
//
// Source of the format: the docstring of numpy/lib/format.py. Reads any byte order and C or Fortran
// order into dense row-major arrays; writes version 1.0, little endian, C order (2.0 when the
// header needs it). Types that numpy cannot name (bf16, f8..., i4 ...) are stored as unsigned
// integers of the width of their host form, so reading them takes the true dtype; ml_dtypes' own
// spelling, raw void ("V2"), reads too. tf32 is stored as f32. Malformed input of any kind gives
// INVALID_ARGUMENT with the reason; memory is bounded by the input's size. Pure functions but for
// the files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/host_array.h"

namespace hekla::runtime {

// `as`: the true dtype, where the file may hold it as raw unsigned integers or exactly as named.
// INVALID_ARGUMENT when the file's type is neither.
Result<HostArray> parse_npy(std::string_view bytes, std::optional<DType> as = std::nullopt);
// NOT_FOUND: no such file. Messages name the path.
Result<HostArray> read_npy(const std::string& path, std::optional<DType> as = std::nullopt);

// The whole file. The array's dtype must not be kInvalid.
std::string format_npy(const HostArray& array);
// Written to a temporary file beside it and renamed, so that nobody sees half a file.
Status write_npy(const std::string& path, const HostArray& array);

}  // namespace hekla::runtime
