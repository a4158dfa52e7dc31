// SPDX-License-Identifier: Apache-2.0
// What a custom call of LAPACK's kind says: routine, letters, sizes, and the arrays that follow
// from them. Internal to lapack_calls.h. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/lapack/library.h"
#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

enum class LapackRoutine {
  kPotrf,
  kTrsm,
  kGetrf,
  kGeqrf,
  kGeqp3,
  kOrgqr,
  kOrmqr,
  kSyevd,
  kGesdd,
  kGesvd,
  kGeev,
  kGees,
  kGehrd,
  kSytrd,
  kGtsv
};

// nullopt for types that LAPACK does not have.
std::optional<lapack::Type> lapack_type(DType dtype);
// Of the real and imaginary parts; a real type is its own.
DType real_type(DType dtype);

// An array of the call: its dtype, what follows the batch, and whether matrices are column-major.
struct LapackArray {
  DType dtype = DType::kInvalid;
  Dims dims;  // without the batch
  bool by_columns = false;

  int64_t size() const { return element_count(dims); }
  int64_t bytes() const { return size() * dtype_bytes(dtype); }
};

// A call as its operation describes it.
struct LapackCall {
  LapackRoutine routine = LapackRoutine::kPotrf;
  DType dtype = DType::kInvalid;
  lapack::Type type = lapack::Type::kF32;
  Dims batch_dims;
  int64_t m = 0, n = 0, k = 0;
  char mode = 'N', second_mode = 'N';  // gees, geev ...
  char uplo = 'L', side = 'L', trans = 'N', diag = 'N';
  int64_t low = 1, high = 1;
  // Of getrf: which rows its factors are of, from 0, as the result before `info`. jaxlib's has
  // none.
  bool has_permutation = false;
  std::vector<LapackArray> operands, results;

  int64_t batch() const { return element_count(batch_dims); }
};

// XLA's own call for all eigenvalues and vectors of Hermitian matrices. Read as a syevd whose info,
// the last of `results`, is no result of the operation.
inline constexpr std::string_view kEigh = "Eigh";

// "lapack_" type letter, routine, "_ffi"; false for other names.
bool read_target(std::string_view target, LapackCall& call);
// UNIMPLEMENTED: what check_lapack_call refuses but for a missing library.
Result<LapackCall> read_call(const ir::Operation& op);

}  // namespace hekla::reference
