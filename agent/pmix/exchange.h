// Implements the protocol between the PMIx servers of a job: fences, and requests for the values of
// single ranks. The server of node rank 0 is the hub; each other server is connected only to the
// hub. Uses no clock, threads or I/O.
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

// An action that sends a message to the server of a node.
struct Send {
  uint32_t node_rank = 0;
  pb::PmixMessage message;
};
// An action that ends the fence of OnLocalFence() with that `id`. On success, `data` contains the
// values of all nodes and `failure` is empty. Otherwise `failure` is the reason.
struct EndFence {
  uint64_t id = 0;
  std::string data;
  std::string failure;
};
// An action that ends the request of OnLocalRequest() with that `id`. On success, `data` contains
// the requested values and `failure` is empty. Otherwise `failure` is the reason.
struct EndRequest {
  uint64_t id = 0;
  std::string data;
  std::string failure;
};
// An action that requests the values of a rank of this node from the library, because another node
// has requested them. The result is passed to OnLocalReply().
struct AskLibrary {
  pb::ModexRequest request;
};

}  // namespace pmix_action

using PmixAction = std::variant<pmix_action::Send, pmix_action::EndFence, pmix_action::EndRequest,
                                pmix_action::AskLibrary>;
using PmixActions = std::vector<PmixAction>;

class PmixExchange {
 public:
  // Limit of the total size of all nodes' data of a fence, because a frame is limited to 16 MiB.
  static constexpr size_t kMaxFenceBytes = size_t{15} << 20;
  // Limit of concurrent fences, and of concurrent requests.
  static constexpr size_t kMaxOpen = 65'536;

  // Precondition: CheckPmixJob(job) succeeds.
  explicit PmixExchange(const pb::PmixJob& job);

  // Handles a fence that all participating ranks of this node have entered. `ranks` contains the
  // participating ranks, ascending without duplicates; empty for all ranks of the job. EndFence
  // returns `id`.
  PmixActions OnLocalFence(uint64_t id, std::vector<uint32_t> ranks, std::string data);
  // Handles a request of a rank on this node for the values of `rank`, which is on another node.
  PmixActions OnLocalRequest(uint64_t id, uint32_t rank);
  // Handles the library's answer to AskLibrary, which is sent to the node that requested the
  // values.
  PmixActions OnLocalReply(pb::ModexReply reply);

  // Handles the end of all ranks of a node, or the loss of that node. All fences and requests that
  // need the node fail, current and future ones.
  PmixActions OnNodeGone(uint32_t node_rank);

  // Handles a message of another server. Fails with kBadInput if a server cannot send such a
  // message; the error is a sentence without the node's name.
  Result<PmixActions> OnMessage(uint32_t from_node, pb::PmixMessage message);

 private:
  using FenceKey = std::pair<std::vector<uint32_t>, uint64_t>;
  // A fence in progress, as the hub tracks it.
  struct Gathering {
    std::set<uint32_t> missing;  // nodes that have not sent their data
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
  // Returns the action that sends a message to a node through the hub.
  pmix_action::Send SendTo(uint32_t node_rank, pb::PmixMessage message) const;

  const uint32_t node_rank_;
  std::vector<uint32_t> node_of_;  // node rank of each rank, indexed by rank
  // Number of local fences so far, by set of participating ranks.
  std::map<std::vector<uint32_t>, uint64_t> fences_of_;
  std::map<FenceKey, uint64_t> local_fences_;  // library's id of each open fence of this node
  std::map<FenceKey, Gathering> gatherings_;
  std::set<uint32_t> gone_;   // node ranks of the nodes that have ended
  size_t asked_library_ = 0;  // number of requests that the library has not answered
  uint64_t last_request_ = 0;
  // Id and rank of each local request, by request number.
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> local_requests_;
  // Requests that the hub has forwarded and that have no reply yet, by the requesting node and its
  // number.
  std::map<std::pair<uint32_t, uint64_t>, pb::ModexRequest> forwarded_;
};

// Returns the reply to a request, without `data` and `failure`.
pb::ModexReply ReplyTo(const pb::ModexRequest& request);

// Checks a job from the agent: its nodes must be in the order of their ranks without gaps, and must
// include this node. Fails with kBadInput.
Result<void> CheckPmixJob(const pb::PmixJob& job);

}  // namespace dslaunch
