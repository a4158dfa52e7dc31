// SPDX-License-Identifier: Apache-2.0
// The array kernels of the reference evaluator, all of them: what other folders include.
//
// A kernel takes HostArrays, a plain config struct whose fields carry StableHLO's attribute names,
// and a ScalarFunction for each region. It borrows all of them for the call, keeps no state and may
// run on any thread. It fails with INVALID_ARGUMENT for arguments that do not fit together, with
// RESOURCE_EXHAUSTED or OUT_OF_RANGE for a result that is too large, and with the region's Status.
#pragma once

#include "backends/reference/kernels/batch_norm.h"
#include "backends/reference/kernels/contraction.h"
#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/fft.h"
#include "backends/reference/kernels/gather_scatter.h"
#include "backends/reference/kernels/linear_algebra.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/reduction.h"
#include "backends/reference/kernels/rng.h"
#include "backends/reference/kernels/sorting.h"
