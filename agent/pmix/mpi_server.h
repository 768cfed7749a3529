// Runs the process that connects a node's MPI ranks into one MPI_COMM_WORLD. It serves ranks that
// use PMI-1 (MPICH) itself, and ranks that use PMIx (Open MPI) through OpenPMIx's library if it has
// that. With the library, it is the program dslaunch-pmix. Without, it is a mode of the agent,
// which is linked statically.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

// The library's requests to its host. They are called on a thread of the library, which they must
// not block.
struct PmixRequests {
  // Called for a fence and for a request; see PmixExchange::OnLocalFence and OnLocalRequest. The
  // answer is end_ticket(id, ...). `id` is below kPmiFence.
  std::function<void(uint64_t id, std::vector<uint32_t> ranks, std::string data)> on_fence;
  std::function<void(uint64_t id, uint32_t rank)> on_request;
  // Called when a rank has called MPI_Init or MPI_Finalize, or an equivalent function.
  std::function<void(uint32_t rank, bool has_finalized)> on_rank;
  // Called when a rank has called MPI_Abort, or an equivalent function.
  std::function<void(uint32_t rank, int status)> on_abort;
  // Called with the answer to `ask`.
  std::function<void(pb::ModexReply reply)> on_reply;
};

// The functions of OpenPMIx's library; see pmix_library.h.
struct PmixLibrary {
  Result<void> (*start)(const pb::PmixJob& job, PmixRequests requests);
  void (*end_ticket)(uint64_t id, std::string data, const std::string& failure);
  void (*ask)(const pb::ModexRequest& request);
};

// Id of PMI-1's fence; the library's ids are smaller.
inline constexpr uint64_t kPmiFence = uint64_t{1} << 63;

// Serves the ranks of the agent that is connected to stdin. Ends the process when that connection
// ends. `library`: nullptr without OpenPMIx. `process_name`: the name that ps shows. Returns only
// on failure.
int RunMpiServer(const PmixLibrary* library, const char* process_name);

}  // namespace dslaunch
