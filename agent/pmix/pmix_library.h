// Starts and calls OpenPMIx's server library, whose clients are the ranks of this node.
#pragma once

#include "agent/pmix/mpi_server.h"

namespace dslaunch {

// Starts the server for the ranks of `job` on this node, at job.pmix_listener. Blocks until the
// library is ready, for at most 20 s. Fails with kUnavailable and the library's own message, or
// with kTimedOut. Preconditions: CheckPmixJob(job) succeeds; called once per process.
Result<void> StartPmixLibrary(const pb::PmixJob& job, PmixRequests requests);

// Answers the request `id` of the library. `failure` is the reason of a failure, for this process's
// log; empty on success.
void EndPmixTicket(uint64_t id, std::string data, const std::string& failure);

// Requests the values of `request.rank`, which runs on this node. PmixRequests::on_reply receives
// the values once the rank has put them.
void AskPmixLibrary(const pb::ModexRequest& request);

inline constexpr PmixLibrary kOpenPmix = {&StartPmixLibrary, &EndPmixTicket, &AskPmixLibrary};

}  // namespace dslaunch
