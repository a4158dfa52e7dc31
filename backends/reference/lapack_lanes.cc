// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/lapack_lanes.h"

#include <numeric>
#include <utility>

namespace hekla::reference {
namespace {

using Data = std::vector<Datum>;

// Jacobi's rotations take more operations than LAPACK's reduction to three diagonals: how many
// matrices must share them to make up for it.
int64_t least_eigen_batch(int64_t n, bool complex) {
  if (n <= 4) return 2;
  if (n <= 8) return 3;
  return (n <= 12 ? 5 : 6) + (complex ? 2 : 0);
}

int64_t least_singular_batch(int64_t n, bool complex) {
  if (n <= 8) return n <= 4 ? 1 : 3;
  return (n <= 12 ? 4 : 5) + (complex ? 2 : 0);
}

// Sweeps times rotations times what each turns.
constexpr int64_t kSweeps = 7;

}  // namespace

double lane_work(lapack::Type type, int64_t numbers, int64_t products) {
  const bool complex = type == lapack::Type::kC64 || type == lapack::Type::kC128;
  return 200.0 +
         static_cast<double>(complex ? 16 * numbers + 8 * products : 8 * numbers + 2 * products);
}

bool goes_in_lanes(const LapackCall& call, const lapack::Table& lapack) {
  if (call.batch() == 0 || !fits_lane(call.m, call.n)) return false;
  // Both in rows or both in columns.
  if (call.operands[0].by_columns != call.results[0].by_columns) return false;
  switch (call.routine) {
    case LapackRoutine::kGetrf:
    case LapackRoutine::kGeqrf:
      return true;
    case LapackRoutine::kOrgqr:
      return call.k > 0;
    case LapackRoutine::kSyevd:
      return call.mode == 'V' && std::min<int64_t>(call.batch(), lapack.lanes(call.type)) >=
                                     least_eigen_batch(call.n, is_complex(call.dtype));
    case LapackRoutine::kGesdd:
      return call.mode != 'N' && call.results[2].by_columns == call.operands[0].by_columns &&
             call.results[3].by_columns == call.operands[0].by_columns &&
             std::min<int64_t>(call.batch(), lapack.lanes(call.type)) >=
                 least_singular_batch(std::max(call.m, call.n), is_complex(call.dtype));
    default:
      return false;
  }
}

Result<Data> run_in_lanes(const LapackCall& call, const lapack::Table& lapack, const Data& operands,
                          const LapackRunner& runner) {
  std::vector<HostArray> out;
  std::vector<std::byte*> to;
  for (size_t r = 0; r < call.results.size(); ++r) {
    Dims dims = call.batch_dims;
    dims.insert(dims.end(), call.results[r].dims.begin(), call.results[r].dims.end());
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           runner.result(r, call.results[r].dtype, std::move(dims)));
    to.push_back(array.mutable_data());
    out.push_back(std::move(array));
  }
  const auto from = [&](size_t operand, int64_t first) {
    return operands[operand].array.data() + first * call.operands[operand].bytes();
  };
  const auto at = [&](size_t result, int64_t first) {
    return to[result] + first * call.results[result].bytes();
  };
  const auto whole = [&](size_t result, int64_t first) {
    return reinterpret_cast<int32_t*>(at(result, first));
  };
  const auto m = static_cast<int32_t>(call.m), n = static_cast<int32_t>(call.n),
             k = static_cast<int32_t>(call.k);
  // An array that is said to be in columns is here in rows.
  const bool by_rows = call.operands[0].by_columns;
  const int64_t numbers = call.m * call.n, products = numbers * std::min(call.m, call.n);
  const auto run = [&](int64_t scale, const auto& f) {
    for_lanes(lapack, call.type, call.batch(), lane_work(call.type, numbers, scale * products),
              runner, f);
  };
  switch (call.routine) {
    case LapackRoutine::kGetrf:
      run(1, [&](int64_t first, int64_t count) {
        lapack.getrf_lanes(call.type, by_rows, m, n, count, from(0, first), at(0, first),
                           whole(1, first), whole(out.size() - 1, first));
        if (call.has_permutation) {
          permute_by_pivots(call, whole(1, 0), whole(2, 0), first, first + count);
        }
      });
      break;
    case LapackRoutine::kGeqrf:
      run(2, [&](int64_t first, int64_t count) {
        lapack.geqrf_lanes(call.type, by_rows, m, n, count, from(0, first), at(0, first),
                           at(1, first));
      });
      break;
    case LapackRoutine::kOrgqr:
      run(2, [&](int64_t first, int64_t count) {
        lapack.orgqr_lanes(call.type, by_rows, m, n, k, count, from(0, first), from(1, first),
                           at(0, first));
      });
      break;
    case LapackRoutine::kGesdd:
      // LAPACK destroys this one; nobody reads it.
      std::fill_n(to[0], static_cast<size_t>(out[0].size_bytes()), std::byte{0});
      run(8 * kSweeps, [&](int64_t first, int64_t count) {
        lapack.gesdd_lanes(call.type, call.mode, by_rows, m, n, count, from(0, first), at(1, first),
                           at(2, first), at(3, first), whole(4, first));
      });
      break;
    default:
      run(4 * kSweeps, [&](int64_t first, int64_t count) {
        lapack.syevd_lanes(call.type, call.uplo, by_rows, n, count, from(0, first), at(0, first),
                           at(1, first), whole(2, first));
      });
  }
  Data results;
  for (HostArray& array : out) results.emplace_back(std::move(array));
  return results;
}

void permute_by_pivots(const LapackCall& call, const int32_t* pivots, int32_t* permutation,
                       int64_t begin, int64_t end) {
  const int64_t count = std::min(call.m, call.n);
  for (int64_t b = begin; b < end; ++b) {
    int32_t* const rows = permutation + b * call.m;
    std::iota(rows, rows + call.m, 0);
    for (int64_t i = 0; i < count; ++i) std::swap(rows[i], rows[pivots[b * count + i] - 1]);
  }
}

}  // namespace hekla::reference
