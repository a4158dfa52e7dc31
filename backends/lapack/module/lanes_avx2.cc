// SPDX-License-Identifier: Apache-2.0
#define HEKLA_LANES kAvx2Lanes
#define HEKLA_VECTOR_BYTES 32
#include "backends/lapack/module/lanes_body.h"
