// SPDX-License-Identifier: Apache-2.0
#include "backends/lapack/module/level.h"

#include <string_view>

#include "backends/lapack/module/fortran.h"

namespace hekla::lapack {

Level level() {
  static const Level chosen = [] {
#ifdef HEKLA_X86_LEVELS
    const std::string_view core = openblas_get_corename();
    for (const char* name : {"SkylakeX", "Cooperlake", "SapphireRapids"}) {
      if (core == name) return Level::kAvx512;
    }
    for (const char* name : {"Haswell", "Zen"}) {
      if (core == name) return Level::kAvx2;
    }
#endif
    return Level::kPortable;
  }();
  return chosen;
}

}  // namespace hekla::lapack
