// SPDX-License-Identifier: Apache-2.0
#define HEKLA_LINES avx512_lines
#define HEKLA_LINE_BYTES 64
#include "backends/cpu/transform/lines_body.h"
