// SPDX-License-Identifier: Apache-2.0
#define HEKLA_TRIANGLES kPortableTriangles
#define HEKLA_VECTOR_BYTES 16
#include "backends/lapack/module/triangle_body.h"
