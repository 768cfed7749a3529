// Whether a program is one for mpirun, which joins its processes into one MPI_COMM_WORLD. Without
// a server (agent/pmix) each rank of such a program would be a world of its own.
#pragma once

#include <string>

#include "agent/host/program.h"

namespace dslaunch {

// What shows that it is: the library of MPI that its executable is linked to ("libmpi.so.40"), or
// "mpi4py", which its Python script imports. Empty: nothing does. Reads the files on this node;
// what cannot be read shows nothing.
std::string MpiUse(const ResolvedProgram& program);

// The folder of OpenPMIx's library, where programs with `environment` would find it; empty: this
// node has none. Looks into LD_LIBRARY_PATH and the system's usual folders.
std::string PmixLibraryFolder(const Environment& environment);

}  // namespace dslaunch
