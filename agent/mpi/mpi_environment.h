// What the ranks of a node need in their environment to find their MPI server (agent/pmix).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "proto/pmix.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Returns the job as the server of one member takes it. Names of nodes that PMIx cannot take, or
// that are not different, are replaced. Error kInternal: the assignment does not fit the nodes.
// Pure.
Result<pb::PmixJob> MakePmixJob(const std::string& job_id, uint64_t attempt,
                                const pb::Assignment& assignment,
                                const std::vector<pb::Node>& members);

// Returns the address of the PMIx server of `job` at `port` of loopback, as ranks read it. Pure.
std::string PmixUri(const pb::PmixJob& job, int port);

// Returns NAME=VALUE entries for a rank of this node, besides PMI_FD. Those of PMIx are among them
// if job.uri is set. `of_programs`: the user's values in it are kept. Pure.
std::vector<std::string> MpiEnvironment(const pb::PmixJob& job, uint32_t local_rank,
                                        const Environment& of_programs);

// Returns whether `entry` (NAME=VALUE) tells a process of the MPI server of another launcher, which
// started this one. The user's own settings (PMIX_MCA_...) do not. Pure.
bool IsOfAnotherMpiServer(const std::string& entry);

// Returns the folder of OpenPMIx's library, where programs with `environment` would find it; empty
// if this node has none. Looks into LD_LIBRARY_PATH and the system's usual folders.
std::string PmixLibraryFolder(const Environment& environment);

}  // namespace dslaunch
