// OpenPMIx's server library: the ranks of this node are its clients.
#pragma once

#include "agent/pmix/mpi_server.h"

namespace dslaunch {

// Starts the server for the ranks of `job` on this node, once in a process, at job.pmix_listener.
// `job` as CheckPmixJob takes it. Blocks until the library is ready, 20 s at most. kUnavailable,
// with the library's own word.
Result<void> StartPmixLibrary(const pb::PmixJob& job, PmixRequests requests);

// `failure`: empty, or why not, for this process's log.
void EndPmixTicket(uint64_t id, std::string data, const std::string& failure);

// What `request.rank`, which runs here, has put; once it has.
void AskPmixLibrary(const pb::ModexRequest& request);

inline constexpr PmixLibrary kOpenPmix = {&StartPmixLibrary, &EndPmixTicket, &AskPmixLibrary};

}  // namespace dslaunch
