// SPDX-License-Identifier: Apache-2.0
#define HEKLA_TRIANGLES kAvx512Triangles
#define HEKLA_VECTOR_BYTES 64
#include "backends/lapack/module/triangle_body.h"
