// Runs the process that connects a node's MPI ranks into one MPI_COMM_WORLD. The process itself
// serves ranks that use PMI-1 (MPICH). With OpenPMIx's library, it is the program dslaunch-pmix and
// also serves ranks that use PMIx (Open MPI). Without the library, it is a mode of the agent, which
// is linked statically.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

// Callbacks for requests of OpenPMIx's library to its host. They are called on a thread of the
// library, which they must not block.
struct PmixRequests {
  // Called when all participating ranks of this node have entered a fence
  // (PmixExchange::OnLocalFence). PmixLibrary::end_ticket(id, ...) answers. `id` is below
  // kPmiFence.
  std::function<void(uint64_t id, std::vector<uint32_t> ranks, std::string data)> on_fence;
  // Called when a rank of this node requests the values of `rank` on another node
  // (PmixExchange::OnLocalRequest). PmixLibrary::end_ticket(id, ...) answers. `id` is below
  // kPmiFence.
  std::function<void(uint64_t id, uint32_t rank)> on_request;
  // Called when a rank has called MPI_Init or MPI_Finalize, or an equivalent function.
  std::function<void(uint32_t rank, bool has_finalized)> on_rank;
  // Called when a rank has called MPI_Abort, or an equivalent function.
  std::function<void(uint32_t rank, int status)> on_abort;
  // Called with the answer to PmixLibrary::ask.
  std::function<void(pb::ModexReply reply)> on_reply;
};

// The functions that call OpenPMIx's library (pmix_library.h).
struct PmixLibrary {
  Result<void> (*start)(const pb::PmixJob& job, PmixRequests requests);
  void (*end_ticket)(uint64_t id, std::string data, const std::string& failure);
  void (*ask)(const pb::ModexRequest& request);
};

// Id of the fence of PMI-1; ids of the library are smaller.
inline constexpr uint64_t kPmiFence = uint64_t{1} << 63;

// Serves the ranks of the agent that is connected to stdin. Ends the process when that connection
// ends. `library` is nullptr without OpenPMIx. `process_name` is the name that ps shows. Returns an
// exit code, only on failure.
int RunMpiServer(const PmixLibrary* library, const char* process_name);

}  // namespace dslaunch
