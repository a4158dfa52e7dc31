// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/lapack_calls.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backends/lapack/library.h"
#include "backends/reference/lapack_call.h"
#include "backends/reference/lapack_lanes.h"
#include "backends/reference/lapack_runner.h"
#include "backends/reference/matrix_order.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using lapack::Parallel;
using lapack::Table;
using Data = std::vector<Datum>;

// Whether the real numbers of one triangle, or of all, are finite.
template <typename R>
bool all_finite(const R* values, int64_t count) {
  R sums[8] = {};  // of zeros, or NaN
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 8; ++k) sums[k] += values[i + k] * R(0);
  }
  for (; i < count; ++i) sums[0] += values[i] * R(0);
  R total = 0;
  for (const R sum : sums) total += sum;
  return total == 0;
}

bool is_finite(const LapackCall& call, const void* a, int64_t rows, int64_t columns, char uplo) {
  const int64_t parts = is_complex(call.dtype) ? 2 : 1;
  const auto range = [&](int64_t begin, int64_t count) {
    if (real_type(call.dtype) == DType::kF32) {
      return all_finite(static_cast<const float*>(a) + begin * parts, count * parts);
    }
    return all_finite(static_cast<const double*>(a) + begin * parts, count * parts);
  };
  if (uplo == 'A') return range(0, rows * columns);
  for (int64_t j = 0; j < columns; ++j) {
    if (!(uplo == 'L' ? range(j * rows + j, rows - j) : range(j * rows, j + 1))) return false;
  }
  return true;
}

// jaxlib's info for a matrix that is not looked at further.
constexpr int32_t kNotFinite = -4;

// The arrays of one matrix of the batch, as LAPACK takes them.
struct Arrays {
  const std::vector<const std::byte*>& operands;
  const std::vector<std::byte*>& results;
};

int32_t run_one(const LapackCall& call, const Table& lapack, const Parallel* parallel,
                const Arrays& arrays) {
  const auto& in = arrays.operands;
  const auto& out = arrays.results;
  const auto m = static_cast<int32_t>(call.m), n = static_cast<int32_t>(call.n),
             k = static_cast<int32_t>(call.k);
  const auto finite = [&](char uplo) { return is_finite(call, out[0], call.m, call.n, uplo); };
  switch (call.routine) {
    case LapackRoutine::kPotrf:
      return lapack.potrf(parallel, call.type, call.uplo, n, out[0]);
    case LapackRoutine::kTrsm:
      return lapack.trsm(parallel, call.type, call.side, call.uplo, call.trans, call.diag, m, n,
                         in[0], out[0]);
    case LapackRoutine::kGetrf:
      return lapack.getrf(parallel, call.type, m, n, out[0], reinterpret_cast<int32_t*>(out[1]));
    case LapackRoutine::kGeqrf:
      return lapack.geqrf(parallel, call.type, m, n, out[0], out[1]);
    case LapackRoutine::kGeqp3:
      return lapack.geqp3(parallel, call.type, m, n, out[0], reinterpret_cast<int32_t*>(out[1]),
                          out[2]);
    case LapackRoutine::kOrgqr:
      return lapack.orgqr(parallel, call.type, m, n, k, out[0], in[1]);
    case LapackRoutine::kOrmqr:
      return lapack.ormqr(parallel, call.type, call.side, call.trans, m, n, k, in[0], in[1],
                          out[0]);
    case LapackRoutine::kSyevd:
      if (!finite(call.uplo)) return kNotFinite;
      return lapack.syevd(parallel, call.type, call.mode, call.uplo, n, out[0], out[1]);
    case LapackRoutine::kGesdd:
    case LapackRoutine::kGesvd:
      if (!finite('A')) return kNotFinite;
      return (call.routine == LapackRoutine::kGesdd ? lapack.gesdd : lapack.gesvd)(
          parallel, call.type, call.mode, m, n, out[0], out[1], out[2], out[3]);
    case LapackRoutine::kGehrd:
      return lapack.gehrd(parallel, call.type, n, static_cast<int32_t>(call.low),
                          static_cast<int32_t>(call.high), out[0], out[1]);
    case LapackRoutine::kSytrd:
      return lapack.sytrd(parallel, call.type, call.uplo, n, out[0], out[1], out[2], out[3]);
    case LapackRoutine::kGees: {
      if (!finite('A')) return kNotFinite;
      const bool real = !is_complex(call.dtype);
      return lapack.gees(parallel, call.type, call.mode, n, out[0], out[2], real ? out[3] : nullptr,
                         out[1]);
    }
    case LapackRoutine::kGtsv: {
      // lower[0] and upper[m - 1] are outside of the matrix.
      const int64_t skipped = m > 0 ? dtype_bytes(call.dtype) : 0;
      return lapack.gtsv(call.type, m, n, out[0] + skipped, out[1], out[2], out[3]);
    }
    case LapackRoutine::kGeev:
      break;  // has no result in the place of its operand
  }
  return 0;
}

// geev destroys its operand, which is no result: a copy for each matrix.
int32_t run_geev(const LapackCall& call, const Table& lapack, const Parallel* parallel,
                 const Arrays& arrays, const LapackRunner& runner) {
  const auto n = static_cast<int32_t>(call.n);
  if (!is_finite(call, arrays.operands[0], n, n, 'A')) return kNotFinite;
  Result<HostArray> copy = runner.temporary(call.dtype, {call.n, call.n});
  if (!copy.ok()) return lapack::kNoMemory;
  HostArray matrix = std::move(*copy);
  std::memcpy(matrix.mutable_data(), arrays.operands[0], static_cast<size_t>(matrix.size_bytes()));
  const bool real = !is_complex(call.dtype);
  const size_t left = real ? 2 : 1;
  return lapack.geev(parallel, call.type, call.mode, call.second_mode, n, matrix.mutable_data(),
                     arrays.results[0], real ? arrays.results[1] : nullptr, arrays.results[left],
                     arrays.results[left + 1]);
}

// The operand whose memory a result begins as; -1: zeros.
int operand_of_result(const LapackCall& call, size_t result) {
  switch (call.routine) {
    case LapackRoutine::kTrsm:
      return 1;
    case LapackRoutine::kOrmqr:
      return 2;
    case LapackRoutine::kGeev:
      return -1;
    case LapackRoutine::kGeqp3:
      return result < 2 ? static_cast<int>(result) : -1;
    case LapackRoutine::kGtsv:
      return result < 4 ? static_cast<int>(result) : -1;
    default:
      return result == 0 ? 0 : -1;
  }
}

bool has_info(LapackRoutine routine) {
  switch (routine) {
    case LapackRoutine::kTrsm:
    case LapackRoutine::kGeqrf:
    case LapackRoutine::kGeqp3:
    case LapackRoutine::kOrgqr:
    case LapackRoutine::kOrmqr:
      return false;
    default:
      return true;
  }
}

Dims with_batch(const LapackCall& call, Dims dims, bool by_columns) {
  if (by_columns) std::swap(dims[0], dims[1]);
  dims.insert(dims.begin(), call.batch_dims.begin(), call.batch_dims.end());
  return dims;
}

bool is_square(const LapackArray& shape) {
  return shape.dims.size() == 2 && shape.dims[0] == shape.dims[1];
}

// `from` in rows to `to` in the memory order of `shape`.
void to_memory_order(const LapackCall& call, const LapackArray& shape, const HostArray& from,
                     HostArray& to, const LapackRunner& runner) {
  if (shape.by_columns) {
    transpose_matrices(dtype_bytes(shape.dtype), call.batch(), shape.dims[0], shape.dims[1],
                       from.data(), to.mutable_data(), runner.for_each());
  } else {
    copy_by_tasks(to.mutable_data(), from.data(), from.size_bytes(), runner.for_each());
  }
}

// The result with the number `index` where LAPACK computes it: where it stays, but for matrices in
// columns that no transposition in place brings into rows.
Result<HostArray> make_result(const LapackCall& call, size_t index, const LapackRunner& runner) {
  const LapackArray& shape = call.results[index];
  Dims dims = with_batch(call, shape.dims, shape.by_columns);
  if (shape.by_columns && !is_square(shape)) return runner.temporary(shape.dtype, std::move(dims));
  return runner.result(index, shape.dtype, std::move(dims));
}

Result<HostArray> finish_result(const LapackCall& call, size_t index, HostArray array,
                                const LapackRunner& runner) {
  const LapackArray& shape = call.results[index];
  if (!shape.by_columns) return array;
  const int64_t width = dtype_bytes(shape.dtype);
  if (is_square(shape)) {
    transpose_squares(width, call.batch(), shape.dims[0], array.mutable_data(), runner.for_each());
    return array;
  }
  HEKLA_ASSIGN_OR_RETURN(
      HostArray rows,
      runner.result(index, shape.dtype, with_batch(call, shape.dims, /*by_columns=*/false)));
  transpose_matrices(width, call.batch(), shape.dims[1], shape.dims[0], array.data(),
                     rows.mutable_data(), runner.for_each());
  return rows;
}

Result<Data> run_call(const LapackCall& call, const Data& operands, std::string_view target,
                      const EvaluateOptions& options) {
  const Table* lapack = lapack::table();
  if (lapack == nullptr) return unimplemented("{}: {}", target, lapack::why_missing());
  const LapackRunner runner(options);
  if (goes_in_lanes(call, *lapack)) return run_in_lanes(call, *lapack, operands, runner);
  std::vector<HostArray> in, out;
  for (size_t i = 0; i < call.operands.size(); ++i) in.push_back(operands[i].array);
  std::vector<bool> is_copied(in.size());
  for (size_t i = 0; i < call.results.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, make_result(call, i, runner));
    const int source = operand_of_result(call, i);
    if (source >= 0) {
      const auto operand = static_cast<size_t>(source);
      // As LAPACK takes it: in the order of the result.
      const LapackArray shape{call.operands[operand].dtype, call.operands[operand].dims,
                              call.results[i].by_columns};
      to_memory_order(call, shape, in[operand], array, runner);
      is_copied[operand] = true;
    } else if (array.size_bytes() > 0) {
      std::memset(array.mutable_data(), 0, static_cast<size_t>(array.size_bytes()));
    }
    out.push_back(std::move(array));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const LapackArray& shape = call.operands[i];
    if (is_copied[i] || !shape.by_columns) continue;
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           runner.temporary(shape.dtype, with_batch(call, shape.dims, true)));
    to_memory_order(call, shape, in[i], array, runner);
    in[i] = std::move(array);
  }
  std::vector<const std::byte*> in_data;
  std::vector<std::byte*> out_data;
  for (const HostArray& array : in) in_data.push_back(array.data());
  for (HostArray& array : out) out_data.push_back(array.mutable_data());

  const int32_t error =
      for_matrices(call.batch(), call.m, call.n, runner, [&](int64_t i, const Parallel* parallel) {
        std::vector<const std::byte*> from(in_data);
        std::vector<std::byte*> to(out_data);
        for (size_t o = 0; o < from.size(); ++o) {
          if (from[o] != nullptr) from[o] += i * call.operands[o].bytes();
        }
        for (size_t r = 0; r < to.size(); ++r) to[r] += i * call.results[r].bytes();
        const Arrays arrays{from, to};
        const int32_t info = call.routine == LapackRoutine::kGeev
                                 ? run_geev(call, *lapack, parallel, arrays, runner)
                                 : run_one(call, *lapack, parallel, arrays);
        if (has_info(call.routine)) std::memcpy(to.back(), &info, sizeof(info));
        return info;
      });
  if (error != 0) return check_info(error, target);
  if (call.has_permutation) {
    permute_by_pivots(call, out[1].as<int32_t>(), out[2].mutable_as<int32_t>(), 0, call.batch());
  }
  Data results;
  for (size_t i = 0; i < call.results.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, finish_result(call, i, std::move(out[i]), runner));
    results.emplace_back(std::move(array));
  }
  return results;
}

}  // namespace

bool is_lapack_call(std::string_view target) {
  if (target == kEigh) return true;
  LapackCall call;
  return read_target(target, call);
}

bool is_lapack_type(DType dtype) { return lapack_type(dtype).has_value(); }

Status check_lapack_call(const ir::Operation& op) {
  const Result<LapackCall> call = read_call(op);
  if (!call.ok()) return call.status();
  if (lapack::table() == nullptr) {
    return unimplemented("custom call {}: there is no LAPACK here ({})",
                         ir::text_value(op, "call_target_name"), lapack::why_missing());
  }
  return ok_status();
}

Result<Data> execute_lapack_call(const ir::Operation& op, const Data& operands,
                                 const EvaluateOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(const LapackCall call, read_call(op));
  const std::string target = ir::text_value(op, "call_target_name");
  HEKLA_ASSIGN_OR_RETURN(Data results, run_call(call, operands, target, options));
  if (target != kEigh) return results;
  // What fails is NaN.
  const int32_t* infos = results[2].array.as<int32_t>();
  for (int64_t i = 0; i < call.batch(); ++i) {
    if (infos[i] == 0) continue;
    for (size_t r = 0; r < 2; ++r) {
      std::byte* begin = results[r].array.mutable_data() + i * call.results[r].bytes();
      fill_nan(call.results[r].dtype, begin, begin + call.results[r].bytes());
    }
  }
  results.pop_back();
  return results;
}

}  // namespace hekla::reference
