// dslaunch-pmix: the server of a node's MPI ranks (mpi_server.h) with OpenPMIx's library, in a
// program of its own because the library is shared and the agent is static. Started by the agent,
// with a connection to it as stdin; ends with that connection.
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
