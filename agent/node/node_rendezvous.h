// Manages a node's connections to its rendezvous and, in an election, to other nodes, and the
// rendezvous that the node hosts.
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

// Does the I/O for the rendezvous and for elections. Used on the loop's thread, except for
// TickServer and Beat.
class NodeRendezvous {
 public:
  NodeRendezvous(asio::io_context& loop, NodeOutput& out);
  ~NodeRendezvous() { poster_->Close(); }

  // Opens the rendezvous that this node hosts. `last`: the state of the earlier rendezvous.
  Result<void> Open(const pb::FailoverRequest& last);
  // Returns the endpoints of the rendezvous that this node hosts; empty if it hosts no rendezvous.
  std::vector<std::string> endpoints() const;
  // Opens the connections for votes over the connections between ranks. `hub` must outlive the
  // connections for votes.
  void OpenVotes(RankLinkHub& hub);
  void CloseVotes() { votes_.reset(); }
  // Creates the link to the rendezvous. Precondition of this function and of all below: the job is
  // set.
  void OpenLink();
  // Joins the rendezvous that was found last, or this node's own. `action` contains the ports of
  // this node.
  void Join(agent_action::JoinRendezvous& action);
  // These functions call those of RendezvousLink.
  const std::string& address() const { return link_->address(); }
  uint64_t round_trip_us() const { return link_->round_trip_us(); }
  // Called when the loop has turned. Updates the content of heartbeats, and refreshes a silent
  // connection.
  void Turn(std::vector<pb::Stillness> stillness);
  // TickServer advances the time of a rendezvous on this node; Beat sends a heartbeat. The
  // heartbeat thread calls both.
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
  // Looks for the rendezvous on a separate thread, and calls `then` on the loop's thread.
  void Dial(const agent_action::FindRendezvous& action,
            std::function<void(Result<RendezvousRoute>)> then);

  asio::io_context& loop_;
  NodeOutput& out_;
  AgentCore& core_;
  const std::shared_ptr<LoopPoster> poster_;  // shared with threads that may outlive this object
  const Clock::time_point made_at_ = Clock::now();
  agent_action::FindRendezvous find_;  // request of the last search
  RendezvousRoute route_;              // result of the last search
  std::unique_ptr<RendezvousLink> link_;
  std::unique_ptr<ElectionLink> votes_;  // null if other nodes' votes cannot reach this node
  Mutex server_mutex_;
  // Written by the loop's thread only, with server_mutex_ held, so the loop's thread reads it
  // without the mutex. The heartbeat thread reads it with the mutex held.
  std::shared_ptr<RendezvousServer> server_;
};

}  // namespace dslaunch
