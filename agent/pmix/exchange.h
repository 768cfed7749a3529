// What the PMIx servers of a job tell each other: fences and what single ranks have put. The server
// of node rank 0 is the hub, and each other one is connected to it alone. Pure: no clock, no
// threads, no I/O.
//
// A fence has no deadline: ranks may enter MPI_Finalize hours apart. It ends with its ranks or with
// the job, of which the agents make sure.
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

// To the server of that node.
struct Send {
  uint32_t node_rank = 0;
  pb::PmixMessage message;
};
// The fence that OnLocalFence was called for has ended. `failure`: empty, or why not.
struct EndFence {
  uint64_t id = 0;
  std::string data;
  std::string failure;
};
// The same of OnLocalRequest.
struct EndRequest {
  uint64_t id = 0;
  std::string data;
  std::string failure;
};
// Another node asks for what a rank of this node has put. Answer: OnLocalReply.
struct AskLibrary {
  pb::ModexRequest request;
};

}  // namespace pmix_action

using PmixAction = std::variant<pmix_action::Send, pmix_action::EndFence, pmix_action::EndRequest,
                                pmix_action::AskLibrary>;
using PmixActions = std::vector<PmixAction>;

class PmixExchange {
 public:
  static constexpr size_t kMaxFenceBytes = size_t{15} << 20;  // of all nodes; a frame takes 16 MiB
  static constexpr size_t kMaxOpen = 65'536;                  // fences, and requests, at a time

  // `job` as CheckPmixJob takes it.
  explicit PmixExchange(const pb::PmixJob& job);

  // All ranks of this node that take part have entered a fence. `ranks`: ascending, without
  // repetition; empty: all of the job. `id`: for EndFence.
  PmixActions OnLocalFence(uint64_t id, std::vector<uint32_t> ranks, std::string data);
  // A rank of this node wants what `rank`, of another node, has put.
  PmixActions OnLocalRequest(uint64_t id, uint32_t rank);
  PmixActions OnLocalReply(pb::ModexReply reply);

  // All ranks of that node have ended, or it is lost: what needs it fails, now and later.
  PmixActions OnNodeGone(uint32_t node_rank);

  // Error kBadInput, a sentence without a name: no server sends this.
  Result<PmixActions> OnMessage(uint32_t from_node, pb::PmixMessage message);

 private:
  using FenceKey = std::pair<std::vector<uint32_t>, uint64_t>;
  // At the hub.
  struct Gathering {
    std::set<uint32_t> missing;  // nodes
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
  // Through the hub.
  pmix_action::Send SendTo(uint32_t node_rank, pb::PmixMessage message) const;

  const uint32_t node_rank_;
  std::vector<uint32_t> node_of_;                        // by rank
  std::map<std::vector<uint32_t>, uint64_t> fences_of_;  // how many, by their ranks
  std::map<FenceKey, uint64_t> local_fences_;            // the library's id of each
  std::map<FenceKey, Gathering> gatherings_;
  std::set<uint32_t> gone_;   // nodes
  size_t asked_library_ = 0;  // what the library has not replied to
  uint64_t last_request_ = 0;
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> local_requests_;  // id and rank, by number
  // At the hub: what it has passed on and has no reply to, by the asking node and its number.
  std::map<std::pair<uint32_t, uint64_t>, pb::ModexRequest> forwarded_;
};

// The reply to a request, but for `data` or `failure`.
pb::ModexReply ReplyTo(const pb::ModexRequest& request);

// What a server takes from its agent: nodes in order of their ranks, without a gap, and this one
// among them. kBadInput.
Result<void> CheckPmixJob(const pb::PmixJob& job);

}  // namespace dslaunch
