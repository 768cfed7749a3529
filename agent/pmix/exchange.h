// The protocol between the PMIx servers of a job: fences, and requests for the values of single
// ranks. The server of node rank 0 is the hub; each other server is connected only to it. Pure: no
// clock, threads or I/O.
//
// A fence has no deadline, because ranks may enter MPI_Finalize hours apart. It ends with its ranks
// or with the job, which the agents ensure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

namespace pmix_action {

// Sends a message to the server of a node.
struct Send {
  uint32_t node_rank = 0;
  pb::PmixMessage message;
};
// Ends the fence of OnLocalFence(). `failure` is empty or the reason of a failure.
struct EndFence {
  uint64_t id = 0;
  std::string data;
  std::string failure;
};
// Ends the request of OnLocalRequest(). `failure` is empty or the reason of a failure.
struct EndRequest {
  uint64_t id = 0;
  std::string data;
  std::string failure;
};
// Asks the library for the values of a rank of this node, which another node requests. The answer
// is OnLocalReply().
struct AskLibrary {
  pb::ModexRequest request;
};

}  // namespace pmix_action

using PmixAction = std::variant<pmix_action::Send, pmix_action::EndFence, pmix_action::EndRequest,
                                pmix_action::AskLibrary>;
using PmixActions = std::vector<PmixAction>;

class PmixExchange {
 public:
  static constexpr size_t kMaxFenceBytes =
      size_t{15} << 20;  // limit of all nodes' data; a frame is limited to 16 MiB
  static constexpr size_t kMaxOpen = 65'536;  // limit of concurrent fences, and of requests

  // Precondition: CheckPmixJob(job) succeeds.
  explicit PmixExchange(const pb::PmixJob& job);

  // Handles a fence that all participating ranks of this node have entered. `ranks` is ascending
  // without duplicates; empty: all ranks of the job. `id` is for EndFence.
  PmixActions OnLocalFence(uint64_t id, std::vector<uint32_t> ranks, std::string data);
  // Handles a request of a rank on this node for the values of `rank`, which is on another node.
  PmixActions OnLocalRequest(uint64_t id, uint32_t rank);
  PmixActions OnLocalReply(pb::ModexReply reply);

  // Handles the end of all ranks of a node, or the loss of that node: everything that needs it
  // fails, now and later.
  PmixActions OnNodeGone(uint32_t node_rank);

  // Handles a message of another server. Fails with kBadInput, with a sentence without the node's
  // name, if no server sends such a message.
  Result<PmixActions> OnMessage(uint32_t from_node, pb::PmixMessage message);

 private:
  using FenceKey = std::pair<std::vector<uint32_t>, uint64_t>;
  // A fence in progress at the hub.
  struct Gathering {
    std::set<uint32_t> missing;  // nodes that have not sent their part
    std::vector<uint32_t> nodes;
    std::string data;
    std::string failure;
  };

  bool is_hub() const { return node_rank_ == 0; }
  uint32_t world_size() const { return static_cast<uint32_t>(node_of_.size()); }
  std::vector<uint32_t> NodesOf(const std::vector<uint32_t>& ranks) const;
  Result<FenceKey> CheckFence(const pb::Fence& fence) const;
  Result<void> OnPart(uint32_t from_node, pb::FencePart part, PmixActions& actions);
  bool IsOver(const Gathering& gathering) const;
  void EndGathering(const FenceKey& key, Gathering gathering, PmixActions& actions);
  Result<void> OnEnd(pb::FenceEnd end, PmixActions& actions);
  Result<void> OnRequest(uint32_t from_node, pb::ModexRequest request, PmixActions& actions);
  void Refuse(const pb::ModexRequest& request, PmixActions& actions) const;
  Result<void> OnReply(uint32_t from_node, pb::ModexReply reply, PmixActions& actions);
  // Sends through the hub.
  pmix_action::Send SendTo(uint32_t node_rank, pb::PmixMessage message) const;

  const uint32_t node_rank_;
  std::vector<uint32_t> node_of_;  // the node rank of each rank
  std::map<std::vector<uint32_t>, uint64_t>
      fences_of_;  // number of local fences so far, keyed by set of ranks
  std::map<FenceKey, uint64_t> local_fences_;  // the library's id of each fence
  std::map<FenceKey, Gathering> gatherings_;
  std::set<uint32_t> gone_;   // nodes that have ended
  size_t asked_library_ = 0;  // requests that the library has not answered yet
  uint64_t last_request_ = 0;
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> local_requests_;  // id and rank, by number
  // At the hub: forwarded requests without a reply, by the asking node and its number.
  std::map<std::pair<uint32_t, uint64_t>, pb::ModexRequest> forwarded_;
};

// Returns the reply to a request, without `data` and `failure`.
pb::ModexReply ReplyTo(const pb::ModexRequest& request);

// Checks a job from the agent: the nodes must be in order of their ranks without gaps, and include
// this one. Fails with kBadInput.
Result<void> CheckPmixJob(const pb::PmixJob& job);

}  // namespace dslaunch
