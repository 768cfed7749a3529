// Implements the I/O of RankLinkCore: opens the Unix socket for this node's ranks and the port for
// the agents of other nodes.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/node/attach_socket.h"
#include "agent/node/rank_link_core.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "net/acceptor.h"
#include "net/loop_poster.h"
#include "net/node_dialer.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Provides the ranks of this node with connections to other ranks. Used on the loop's thread.
class RankLinkHub {
 public:
  // Opens the Unix socket, in `job_folder` or else in a folder of SocketFolders(), and the port.
  // `num_nodes` is the number of nodes of the job; a job with one node needs no port. `on_line`
  // receives lines for the agent's log.
  static Result<std::unique_ptr<RankLinkHub>> Open(asio::io_context& loop,
                                                   const pb::PrepareRequest& prepare,
                                                   uint32_t num_nodes,
                                                   const std::string& job_folder,
                                                   std::function<void(const std::string&)> on_line);
  ~RankLinkHub();
  RankLinkHub(const RankLinkHub&) = delete;
  RankLinkHub& operator=(const RankLinkHub&) = delete;

  // Returns whether a process is connected that is a rank of this node, or that has not identified
  // itself yet.
  bool has_ranks() const { return sessions_.size() > core_.service_sessions(); }
  // Returns the path of the socket, which this node's ranks get as DSLAUNCH_RANK_SOCKET.
  const std::string& socket_path() const { return socket_->path(); }
  // Returns the port to which the agents of other nodes connect; 0 if no port is open.
  int port() const { return acceptor_ ? acceptor_->port() : 0; }

  // Receives the data that another node sends for a vote (agent/node/election_link.h), after the
  // first message. Such connections arrive at the same port. If there is no OnVoter, they are
  // closed.
  using OnVoter = std::function<void(uint32_t node, UniqueFd plain)>;
  void SetOnVoter(OnVoter on_voter) { on_voter_ = std::move(on_voter); }
  // Connects to the agent of `node` within `limit`, to send a vote over the connection. Calls
  // `then` on the loop's thread with the connection or an error. Never calls `then` if no port is
  // open.
  void DialToVote(const std::string& endpoint, uint32_t node, milliseconds limit,
                  std::function<void(Result<UniqueFd> plain)> then);

  void BeginAttempt(RankLinkPlan plan) { CarryOut(core_.OnAttempt(std::move(plan))); }

 private:
  class Session;
  class Arrival;

  RankLinkHub(asio::io_context& loop, const pb::PrepareRequest& prepare,
              std::function<void(const std::string&)> on_line);
  Result<void> OpenSocket(const pb::PrepareRequest& prepare, const std::string& job_folder);
  Result<void> OpenPort(const pb::PrepareRequest& prepare, uint32_t num_nodes);
  void OnRank(UniqueFd connection);
  void OnMessage(uint64_t session, const std::string& bytes);
  void OnSessionEnd(uint64_t session, const std::string& why);
  void OnNode(uint32_t node, UniqueFd plain);
  void OnFirstMessage(uint64_t arrival, uint32_t node, const std::string& bytes, UniqueFd plain);
  std::string EndpointsOn(const std::string& interfaces) const;

  void CarryOut(RankLinkActions actions);
  void Do(rank_link_action::Send& action);
  void Do(rank_link_action::ConnectHere& action);
  void Do(rank_link_action::ConnectTo& action);
  void Do(rank_link_action::Close& action);
  void Do(rank_link_action::LogRefusal& action);

  asio::io_context& loop_;
  const std::shared_ptr<LoopPoster> poster_;
  const uint32_t node_;
  const bool is_local_;
  const std::string network_interface_;  // interface that was chosen for the job; empty if none was
  const std::function<void(const std::string&)> on_line_;
  RankLinkCore core_;
  OnVoter on_voter_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;
  std::map<uint64_t, std::shared_ptr<Arrival>> arrivals_;
  std::unique_ptr<AttachSocket> socket_;
  // The threads of these two objects only post to the loop.
  std::unique_ptr<NodeDialer> dialer_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace dslaunch
