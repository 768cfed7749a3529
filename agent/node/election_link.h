// Carries votes between ElectionCore and the agents of other nodes. Uses the connections between
// ranks (rank_link_hub.h), on which each end has proved which node it is.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/core/agent_action.h"
#include "agent/node/rank_link_hub.h"
#include "base/unique_fd.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/framed_socket.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {

// Sends and receives votes and their answers. Used on the loop's thread. `hub` must outlive the
// object.
class ElectionLink {
 public:
  struct Handlers {
    std::function<void(uint32_t voter, const pb::Vote& vote)> on_vote;
    // Called when a voter's connection ends, even if the voter received its answer.
    std::function<void(uint32_t voter)> on_voter_gone;
    std::function<void(uint32_t candidate, const pb::VoteAnswer& answer)> on_answer;
    std::function<void(const std::string& line)> on_line;  // writes a line to the agent's log
  };

  ElectionLink(asio::io_context& loop, RankLinkHub& hub, const PeerLimits& limits,
               Handlers handlers);
  ~ElectionLink();

  void SendVote(const agent_action::SendVote& action);
  void WithdrawVote();
  void AnswerVote(const agent_action::AnswerVote& action);

 private:
  void OnVoter(uint32_t voter, UniqueFd plain);
  void OnVote(uint32_t voter, std::string_view bytes);
  void OnVoterGone(uint32_t voter);
  void OnConnected(const agent_action::SendVote& action, Result<UniqueFd> plain);
  void OnAnswer(uint32_t candidate, std::string_view bytes);

  asio::io_context& loop_;
  RankLinkHub& hub_;
  const PeerLimits limits_;
  const Handlers handlers_;
  // Number of the newest vote that was sent.
  std::shared_ptr<uint64_t> newest_vote_ = std::make_shared<uint64_t>(0);
  std::unique_ptr<FramedSocket> candidate_;
  // Open connections of voters, by node index.
  std::map<uint32_t, std::unique_ptr<FramedSocket>> voters_;
};

}  // namespace dslaunch
