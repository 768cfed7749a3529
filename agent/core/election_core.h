// Elects the node that hosts the rendezvous of a detached job after its host was lost. No front end
// could choose it, so the agents elect it. Uses no clock, threads or I/O; MajorityCore drives it,
// and through MajorityCore the simulator.
//
//   following -> fenced -> voting, term after term -> following, or elected
//
// Each term has one candidate: the voters in node order, one after the other. A node enters its
// first term once its ranks have ended and the fence is over: the time after which no lease of the
// lost rendezvous is valid (rendezvous/majority.h). Then it connects to the candidate, and its vote
// counts as long as the connection lasts. A candidate with the votes of a majority of all voters,
// dead voters included, opens the rendezvous for the next attempt. A node that receives a newer
// term enters that term, so voters that began at different times meet. A term has one candidate, so
// a node cannot vote twice in it. The leases of the new rendezvous, not the votes, prevent both
// sides of a network partition from continuing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/agent_action.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

namespace election_action {

// An action that joins the elected rendezvous.
struct Follow {
  pb::FailoverRequest next;
};

// An action that ends the election without a rendezvous; `why` is the reason for the user.
struct GiveUp {
  std::string why;
};

}  // namespace election_action

// An action of an election, which MajorityCore or NodeAgent carries out.
using ElectionAction =
    std::variant<agent_action::SendVote, agent_action::WithdrawVote, agent_action::AnswerVote,
                 agent_action::OpenRendezvous, election_action::Follow, election_action::GiveUp>;
using ElectionActions = std::vector<ElectionAction>;

class ElectionCore {
 public:
  struct Options {
    uint32_t own = 0;              // index of the node that this object runs on
    std::vector<uint32_t> voters;  // indices of the voters, ascending
    size_t majority = 0;           // number of votes that form a majority
    uint32_t num_nodes = 0;        // number of nodes of the job, including nodes without a vote
    uint32_t min_nodes = 1;        // minimum number of nodes with ranks in an attempt
    uint32_t max_restarts = 0;
    milliseconds fence{0};
    milliseconds term{0};
    // Limit of the voting after the fence, in addition to one term for each voter.
    milliseconds patience{0};
  };

  // The state of this node at the time when it lost its rendezvous.
  struct Standing {
    uint32_t host = 0;      // index of the node that hosted the lost rendezvous
    uint64_t attempt = 0;   // newest attempt that this node received
    uint32_t restarts = 0;  // number of restarts that the job had used
    bool was_idle = false;  // whether this node had no ranks
    pb::Cause cause = {};   // reason why the rendezvous was lost
  };

  explicit ElectionCore(Options options) : options_(std::move(options)) {}

  void OnPeers(const pb::Peers& peers);
  // Returns whether this node has endpoints of other nodes, so that another node can be elected.
  bool has_peers() const { return peers_.size() > 1; }

  // Begins the election, because the rendezvous is lost and this node has left it.
  void OnLost(Standing standing, Clock::time_point now);
  void OnRanksEnded() { ranks_ended_ = true; }
  // Continues the election and returns the actions that follow. Precondition: called at least every
  // half heartbeat, from OnLost() until Follow or GiveUp is returned.
  ElectionActions OnTick(Clock::time_point now);

  // Handles a vote that node `voter` has sent to this node.
  ElectionActions OnVote(uint32_t voter, const pb::Vote& vote, Clock::time_point now);
  // Handles the end of the voter's connection before its vote was answered; the vote is withdrawn.
  void OnVoterGone(uint32_t voter) { votes_.erase(voter); }
  // Handles the answer of node `candidate` to SendVote.
  ElectionActions OnAnswer(uint32_t candidate, const pb::VoteAnswer& answer, Clock::time_point now);
  // Handles the result of OpenRendezvous: the endpoints of this node's rendezvous, or an error.
  ElectionActions OnOpened(const Result<std::vector<std::string>>& endpoints);

  uint64_t term() const { return term_; }

 private:
  enum class State { kFollowing, kFenced, kVoting, kOpening, kElected };

  uint32_t CandidateOf(uint64_t term) const;
  uint64_t NextTerm() const;
  void EnterTerm(uint64_t term, Clock::time_point now);
  void OpenIfElected(Clock::time_point now);
  void Answer(uint32_t voter);
  ElectionActions Take() { return std::exchange(out_, {}); }

  const Options options_;
  std::map<uint32_t, std::string> peers_;  // endpoints of the nodes' agents, by node index
  State state_ = State::kFollowing;
  Standing standing_;
  bool ranks_ended_ = false;
  Clock::time_point fence_until_;
  Clock::time_point give_up_at_;
  uint64_t term_ = 0;
  Clock::time_point term_ends_;
  std::map<uint32_t, pb::Vote> votes_;  // votes that were not answered yet, by voter
  pb::FailoverRequest next_;            // request to follow this node if it is elected
  std::vector<std::string> endpoints_;  // endpoints of the rendezvous on this node
  ElectionActions out_;
};

}  // namespace dslaunch
