// SPDX-License-Identifier: Apache-2.0
#define HEKLA_LINES portable_lines
#define HEKLA_LINE_BYTES 16
#include "backends/cpu/transform/lines_body.h"
