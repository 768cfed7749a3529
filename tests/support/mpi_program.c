// Runs one MPI scenario under mpirun: mpi_program [abort CODE | exit | kill | leave | pairs | ping
// BYTES | wait FILE]. Each rank prints one line with the values that it received from the others.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Sends BYTES back and forth between the first and the last rank, like micro benchmarks.
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

// Exchanges rank numbers between each pair of ranks; aborts the job on a wrong number.
static void Pairs(int rank, int size) {
  for (int other = 0; other < size; ++other) {
    int theirs = other;
    if (other == rank) continue;
    MPI_Sendrecv(&rank, 1, MPI_INT, other, 1, &theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (theirs != other) MPI_Abort(MPI_COMM_WORLD, 4);
  }
}

// Exits without MPI_Finalize, but first sends the goodbye that MPI_Finalize would send to the PMI
// server.
static void Leave(void) {
  char reply[64];
  const char* pmi = getenv("PMI_FD");
  MPI_Barrier(MPI_COMM_WORLD);
  if (pmi && write(atoi(pmi), "cmd=finalize\n", 13) == 13 &&
      read(atoi(pmi), reply, sizeof reply) > 0)
    _exit(0);
  _exit(1);
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
  if (rank == 1 && strcmp(what, "exit") == 0) _exit(0);
  if (strcmp(what, "pairs") == 0) Pairs(rank, size);
  if (strcmp(what, "ping") == 0) Ping(rank, size, atoi(argv[2]));
  if (strcmp(what, "wait") == 0) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", argv[2], rank);
    fclose(fopen(path, "w"));
    sleep(60);
  }
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &left, 1, MPI_INT, (rank + size - 1) % size,
               0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  printf("rank %d of %d, %d on its node: sum %d, left %d\n", rank, size, local_size, sum, left);
  fflush(stdout);
  if (strcmp(what, "leave") == 0) Leave();
  MPI_Finalize();
  return 0;
}
