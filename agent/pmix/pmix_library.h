// OpenPMIx's server library: the ranks of this node are its clients.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

// What the library asks its host. Called on a thread of the library, which they must not block.
struct PmixRequests {
  // As PmixExchange::OnLocalFence and OnLocalRequest take them; answered by EndTicket(id, ...).
  std::function<void(uint64_t id, std::vector<uint32_t> ranks, std::string data)> on_fence;
  std::function<void(uint64_t id, uint32_t rank)> on_request;
  // A rank has called MPI_Abort, or the like.
  std::function<void(uint32_t rank, int status)> on_abort;
  // The answer to AskFor.
  std::function<void(pb::ModexReply reply)> on_reply;
};

// Starts the server for the ranks of `job` on this node, once in a process, and returns what each
// of them needs in its environment, by local rank. `job` as CheckPmixJob takes it. Blocks until the
// library is ready, 20 s at most. kUnavailable, with the library's own word.
Result<pb::PmixClients> StartPmixLibrary(const pb::PmixJob& job, PmixRequests requests);

// `failure`: empty, or why not, for this process's log.
void EndPmixTicket(uint64_t id, std::string data, const std::string& failure);

// What `request.rank`, which runs here, has put; once it has.
void AskPmixLibrary(const pb::ModexRequest& request);

}  // namespace dslaunch
