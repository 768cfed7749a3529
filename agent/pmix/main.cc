// Implements dslaunch-pmix, the server of a node's MPI ranks (mpi_server.h) with OpenPMIx's
// library. The library is shared and the agent is static, so this is a separate program. The agent
// starts it with a connection to the agent as stdin. The program exits when that connection ends.
#include <cstdio>
#include <cstring>

#include "agent/pmix/mpi_server.h"
#include "agent/pmix/pmix_library.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("dslaunch-pmix %s\n", DSLAUNCH_VERSION);
    return 0;
  }
  return dslaunch::RunMpiServer(&dslaunch::kOpenPmix, "dslaunch-pmix");
}
