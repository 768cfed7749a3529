// The process that joins a node's MPI ranks into one MPI_COMM_WORLD: of ranks that speak PMI-1
// (MPICH) by itself, of those that speak PMIx (Open MPI) by OpenPMIx's library where it has one.
// It is the program dslaunch-pmix, with the library, or a mode of the agent, which is static,
// without it.
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
  // As PmixExchange::OnLocalFence and OnLocalRequest take them; answered by end_ticket(id, ...).
  // `id` is below kPmiFence.
  std::function<void(uint64_t id, std::vector<uint32_t> ranks, std::string data)> on_fence;
  std::function<void(uint64_t id, uint32_t rank)> on_request;
  // A rank has called MPI_Init or MPI_Finalize, or the like.
  std::function<void(uint32_t rank, bool has_finalized)> on_rank;
  // A rank has called MPI_Abort, or the like.
  std::function<void(uint32_t rank, int status)> on_abort;
  // The answer to ask.
  std::function<void(pb::ModexReply reply)> on_reply;
};

// OpenPMIx's library (pmix_library.h).
struct PmixLibrary {
  Result<void> (*start)(const pb::PmixJob& job, PmixRequests requests);
  void (*end_ticket)(uint64_t id, std::string data, const std::string& failure);
  void (*ask)(const pb::ModexRequest& request);
};

inline constexpr uint64_t kPmiFence = uint64_t{1} << 63;  // no id of the library's is above it

// Serves the ranks of the agent that is connected to stdin, until that connection ends. `library`:
// null where there is none. `process_name`: for ps. Does not return but with a failure.
int RunMpiServer(const PmixLibrary* library, const char* process_name);

}  // namespace dslaunch
