// The process that connects a node's MPI ranks into one MPI_COMM_WORLD. It serves ranks that use
// PMI-1 (MPICH) itself, and those that use PMIx (Open MPI) by OpenPMIx's library if it has that. It
// is the program dslaunch-pmix, with the library, or a mode of the agent, which is static, without
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

// The library's requests to its host. Called on a thread of the library, which they must not block.
struct PmixRequests {
  // Called for what PmixExchange::OnLocalFence and OnLocalRequest handle. The answer is
  // end_ticket(id, ...). `id` is below kPmiFence.
  std::function<void(uint64_t id, std::vector<uint32_t> ranks, std::string data)> on_fence;
  std::function<void(uint64_t id, uint32_t rank)> on_request;
  // Called when a rank has called MPI_Init or MPI_Finalize, or an equivalent.
  std::function<void(uint32_t rank, bool has_finalized)> on_rank;
  // Called when a rank has called MPI_Abort, or an equivalent.
  std::function<void(uint32_t rank, int status)> on_abort;
  // Called with the answer to `ask`.
  std::function<void(pb::ModexReply reply)> on_reply;
};

// The functions of OpenPMIx's library (pmix_library.h).
struct PmixLibrary {
  Result<void> (*start)(const pb::PmixJob& job, PmixRequests requests);
  void (*end_ticket)(uint64_t id, std::string data, const std::string& failure);
  void (*ask)(const pb::ModexRequest& request);
};

inline constexpr uint64_t kPmiFence = uint64_t{1} << 63;  // greater than every id of the library

// Serves the ranks of the agent that is connected to stdin, until that connection ends. `library`
// may be null. `process_name` is shown by ps. Returns only on failure.
int RunMpiServer(const PmixLibrary* library, const char* process_name);

}  // namespace dslaunch
