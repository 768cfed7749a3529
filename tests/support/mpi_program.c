// A program for mpirun: mpi_program [abort CODE | kill | leave | ping BYTES]. Prints one line a
// rank, which says what it got from the others.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The first and the last rank send BYTES to and fro, as micro benchmarks do.
static void Ping(int rank, int size, int bytes) {
  const int kTimes = 100;
  const int last = size - 1;
  char* buffer = malloc(bytes);
  for (int i = 0; i < kTimes; ++i) {
    if (rank == 0) {
      memset(buffer, i, bytes);
      MPI_Send(buffer, bytes, MPI_CHAR, last, i, MPI_COMM_WORLD);
      MPI_Recv(buffer, bytes, MPI_CHAR, last, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (buffer[bytes - 1] != (char)(i + 1)) MPI_Abort(MPI_COMM_WORLD, 3);
    } else if (rank == last) {
      MPI_Recv(buffer, bytes, MPI_CHAR, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      memset(buffer, i + 1, bytes);
      MPI_Send(buffer, bytes, MPI_CHAR, 0, i, MPI_COMM_WORLD);
    }
  }
  free(buffer);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  int rank, size, sum, left, local_size;
  MPI_Comm node;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &local_size);
  if (rank == 1 && strcmp(what, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, atoi(argv[2]));
  if (rank == 1 && strcmp(what, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(what, "ping") == 0) Ping(rank, size, atoi(argv[2]));
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &left, 1, MPI_INT, (rank + size - 1) % size,
               0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  printf("rank %d of %d, %d on its node: sum %d, left %d\n", rank, size, local_size, sum, left);
  fflush(stdout);
  if (strcmp(what, "leave") == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    _exit(0);
  }
  MPI_Finalize();
  return 0;
}
