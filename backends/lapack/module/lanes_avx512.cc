// SPDX-License-Identifier: Apache-2.0
#define HEKLA_LANES kAvx512Lanes
#define HEKLA_VECTOR_BYTES 64
#include "backends/lapack/module/lanes_body.h"
