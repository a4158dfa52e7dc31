// SPDX-License-Identifier: Apache-2.0
// For which vectors the code runs that is compiled once for each level of them.
#pragma once

namespace hekla::lapack {

enum class Level { kPortable, kAvx2, kAvx512 };

// That of OpenBLAS's own code, which OPENBLAS_CORETYPE may choose.
Level level();

}  // namespace hekla::lapack
