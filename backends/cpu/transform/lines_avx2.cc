// SPDX-License-Identifier: Apache-2.0
#define HEKLA_LINES avx2_lines
#define HEKLA_LINE_BYTES 32
#include "backends/cpu/transform/lines_body.h"
