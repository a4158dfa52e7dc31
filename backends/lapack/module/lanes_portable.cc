// SPDX-License-Identifier: Apache-2.0
#define HEKLA_LANES kPortableLanes
#define HEKLA_VECTOR_BYTES 16
#include "backends/lapack/module/lanes_body.h"
