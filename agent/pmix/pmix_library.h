// OpenPMIx's server library. The ranks of this node are its clients.
#pragma once

#include "agent/pmix/mpi_server.h"

namespace dslaunch {

// Starts the server for the ranks of `job` on this node at job.pmix_listener. Blocks until the
// library is ready, for at most 20 s. Fails with kUnavailable and the library's own message.
// Preconditions: CheckPmixJob(job) succeeds; called once per process.
Result<void> StartPmixLibrary(const pb::PmixJob& job, PmixRequests requests);

// Answers a request. `failure` is empty or the reason of a failure, for this process's log.
void EndPmixTicket(uint64_t id, std::string data, const std::string& failure);

// Requests the values of `request.rank`, which runs on this node. The answer follows once the rank
// has put them.
void AskPmixLibrary(const pb::ModexRequest& request);

inline constexpr PmixLibrary kOpenPmix = {&StartPmixLibrary, &EndPmixTicket, &AskPmixLibrary};

}  // namespace dslaunch
