// Manages a node's connections to its rendezvous and, in an election, to other nodes. Also manages
// the rendezvous that the node hosts.
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

// Does the I/O of AgentCore for the rendezvous and for elections. Used on the loop's thread, except
// for TickServer() and Beat().
class NodeRendezvous {
 public:
  NodeRendezvous(asio::io_context& loop, NodeOutput& out);
  ~NodeRendezvous() { poster_->Close(); }

  // Opens the rendezvous that this node hosts. `last` is the state of the lost rendezvous, if there
  // was one.
  Result<void> Open(const pb::FailoverRequest& last);
  // Returns the endpoints of the rendezvous that this node hosts; empty if it hosts no rendezvous.
  std::vector<std::string> endpoints() const;
  // Begins to send and receive votes over the connections between ranks. `hub` must outlive the
  // connections for votes.
  void OpenVotes(RankLinkHub& hub);
  void CloseVotes() { votes_.reset(); }
  // Creates the link to the rendezvous. Precondition of this function and of all functions below:
  // the job is set.
  void OpenLink();
  // Joins the rendezvous that the last search found, or this node's own rendezvous. Adds the ports
  // of this node to `action`.
  void Join(agent_action::JoinRendezvous& action);
  // Returns the address at which this node reaches the rendezvous; empty if it is in this process.
  const std::string& address() const { return link_->address(); }
  // Returns the round trip of the newest answered heartbeat; 0 before the first answer.
  uint64_t round_trip_us() const { return link_->round_trip_us(); }
  // Updates the content of heartbeats, and refreshes a silent connection. Called at each tick of
  // the loop.
  void Turn(std::vector<pb::Stillness> stillness);
  // Checks the time limits of the rendezvous on this node, if any. Called on the heartbeat thread.
  void TickServer();
  // Sends a heartbeat to the rendezvous. Called on the heartbeat thread.
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
  const std::shared_ptr<LoopPoster> poster_;  // poster for threads that may outlive this object
  const Clock::time_point made_at_ = Clock::now();
  agent_action::FindRendezvous find_;  // request of the last search for a rendezvous
  RendezvousRoute route_;              // channel that the last search for a rendezvous found
  std::unique_ptr<RendezvousLink> link_;
  // Connections for votes; nullptr if other nodes' votes cannot reach this node.
  std::unique_ptr<ElectionLink> votes_;
  Mutex server_mutex_;
  // Rendezvous that this node hosts; nullptr if it hosts none. Only the loop's thread writes this
  // member, with server_mutex_ held, so it reads it without the mutex. The heartbeat thread reads
  // it with the mutex held.
  std::shared_ptr<RendezvousServer> server_;
};

}  // namespace dslaunch
