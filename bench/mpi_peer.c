/* All-reduce in Open MPI, in place: mpirun -n RANKS mpi_peer. Lines as those of bench_collectives. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  const int sizes[] = {4, 1024, 25600}, steps[] = {2000, 300, 40};
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int size = 0; size < 3; ++size) {
    const int count = sizes[size] * 256;
    float* x = calloc((size_t)count, sizeof(float));
    double times[2000];
    for (int i = -5; i < steps[size]; ++i) {
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (i >= 0) times[i] = (MPI_Wtime() - start) * 1e6;
    }
    qsort(times, (size_t)steps[size], sizeof(double), ascending);
    if (rank == 0)
      printf("{\"system\": \"openmpi\", \"bench\": \"allreduce_us\", \"value\": %.2f, \"unit\": \"us\", \"kib\": %d, \"ranks\": %d}\n",
             times[steps[size] / 2], sizes[size], ranks);
    fflush(stdout);
    free(x);
  }
  MPI_Finalize();
  return 0;
}
