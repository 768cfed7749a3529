// Composes the environment variables by which a node's ranks find their MPI server (agent/pmix).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "proto/pmix.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Returns the job in the form that the server of one member expects. Node names that PMIx does not
// accept, or that are not unique, are replaced. Fails with kInternal if the assignment does not
// match the nodes. Pure.
Result<pb::PmixJob> MakePmixJob(const std::string& job_id, uint64_t attempt,
                                const pb::Assignment& assignment,
                                const std::vector<pb::Node>& members);

// Returns the address of the PMIx server of `job`, which listens at a loopback port, in the form
// that ranks read. Pure.
std::string PmixUri(const pb::PmixJob& job, int port);

// Returns the variables of a rank of this node as NAME=VALUE, except PMI_FD. Includes the variables
// of PMIx if job.uri is set. Omits folders of shared memory that the user has set in `of_programs`.
// Pure.
std::vector<std::string> MpiEnvironment(const pb::PmixJob& job, uint32_t local_rank,
                                        const Environment& of_programs);

// Returns whether `entry` (NAME=VALUE) points to the MPI server of another launcher, which started
// this launcher. Returns false for the user's own settings (PMIX_MCA_...). Pure.
bool IsOfAnotherMpiServer(const std::string& entry);

// Returns the folder in which programs with `environment` would find OpenPMIx's library; empty if
// this node does not have the library. Searches LD_LIBRARY_PATH and the usual system folders.
std::string PmixLibraryFolder(const Environment& environment);

}  // namespace dslaunch
