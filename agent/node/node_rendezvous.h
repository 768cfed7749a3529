// A node's connections to its rendezvous and, in an election, to other nodes; and the rendezvous
// that the node hosts.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/node/election_link.h"
#include "agent/node/node_output.h"
#include "agent/node/rank_link_hub.h"
#include "agent/node/rendezvous_link.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/mutex.h"
#include "net/loop_poster.h"
#include "rendezvous/server.h"

namespace dslaunch {

// Used on the loop's thread, except for Beat.
class NodeRendezvous {
 public:
  NodeRendezvous(asio::io_context& loop, NodeOutput& out);
  ~NodeRendezvous() { poster_->Close(); }

  // Opens the rendezvous that this node hosts. `last` is the state of the earlier rendezvous.
  Result<void> Open(const pb::FailoverRequest& last);
  // Returns the endpoints of the rendezvous here; empty if there is none.
  std::vector<std::string> endpoints() const;
  // Opens the connections for votes over the connections between ranks. `hub` must outlive them.
  void OpenVotes(RankLinkHub& hub);
  void CloseVotes() { votes_.reset(); }
  // Precondition of all functions below except Beat: the job is set.
  void OpenLink();
  // `action` has the ports of this node.
  void Join(agent_action::JoinRendezvous& action);
  // See RendezvousLink.
  const std::string& address() const { return link_->address(); }
  uint64_t round_trip_us() const { return link_->round_trip_us(); }
  // Called when the loop has turned.
  void Turn(std::vector<pb::Stillness> stillness);
  // Advances the time of a rendezvous on this node, and sends a heartbeat. Called on the heartbeat
  // thread.
  void TickServer();
  void Beat() { link_->Beat(); }

  void Do(agent_action::SendToRendezvous& action);
  void Do(agent_action::FindRendezvous& action);
  void Do(agent_action::LeaveRendezvous&);
  void Do(agent_action::SendVote& action);
  void Do(agent_action::WithdrawVote&);
  void Do(agent_action::AnswerVote& action);
  void Do(agent_action::OpenRendezvous& action);

 private:
  PeerLimits Limits() const;
  // Looks for the rendezvous on a thread of its own, and calls `then` on the loop's thread.
  void Dial(const agent_action::FindRendezvous& action,
            std::function<void(Result<RendezvousRoute>)> then);

  asio::io_context& loop_;
  NodeOutput& out_;
  AgentCore& core_;
  const std::shared_ptr<LoopPoster> poster_;  // shared with threads that may outlive this
  const Clock::time_point made_at_ = Clock::now();
  agent_action::FindRendezvous find_;  // last request
  RendezvousRoute route_;              // result of the search
  std::unique_ptr<RendezvousLink> link_;
  std::unique_ptr<ElectionLink> votes_;  // null if voters have no connection here
  Mutex server_mutex_;
  // Written by the loop's thread only, with server_mutex_ held, so this thread reads it without the
  // mutex; the heartbeat thread holds the mutex.
  std::shared_ptr<RendezvousServer> server_;
};

}  // namespace dslaunch
