// SPDX-License-Identifier: Apache-2.0
// A rank of collectives.py, started by mpirun: MPI.
#define OMPI_SKIP_MPICXX 1  // bindings that C++ programs do not need and link against
#include <mpi.h>

#include "benchmarks/collectives_sides.h"

int main(int count, char** words) {
  using namespace hekla::benchmarks;
  if (count < 6) return 2;
  MPI_Init(&count, &words);
  Arguments arguments = arguments_of(words);
  MPI_Comm_rank(MPI_COMM_WORLD, &arguments.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &arguments.size);
  const std::string& op = arguments.operation;
  const int size = arguments.size, rank = arguments.rank;
  const Call call = [&](float* out, const float* in, int64_t elements) {
    const int all = static_cast<int>(elements), part = all / size;
    if (op == "all_reduce") {
      MPI_Allreduce(in, out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (op == "all_gather") {
      MPI_Allgather(in + rank * part, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
    } else if (op == "reduce_scatter") {
      MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (op == "broadcast") {
      MPI_Bcast(out, all, MPI_FLOAT, 0, MPI_COMM_WORLD);
    } else {
      MPI_Barrier(MPI_COMM_WORLD);
    }
  };
  measure(arguments, call, [](int64_t own) {
    MPI_Bcast(&own, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    return own;
  });
  MPI_Finalize();
  return 0;
}
