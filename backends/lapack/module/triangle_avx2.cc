// SPDX-License-Identifier: Apache-2.0
#define HEKLA_TRIANGLES kAvx2Triangles
#define HEKLA_VECTOR_BYTES 32
#include "backends/lapack/module/triangle_body.h"
