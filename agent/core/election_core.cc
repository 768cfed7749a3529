#include "agent/core/election_core.h"

#include <algorithm>
#include <utility>

#include "proto/wire/peer_check.h"
#include "rendezvous/unseen_attempts.h"

namespace dslaunch {

void ElectionCore::OnPeers(const pb::Peers& peers) {
  peers_.clear();
  for (const pb::Peer& peer : peers.peers()) peers_[peer.node_index()] = peer.endpoint();
}

void ElectionCore::OnLost(Standing standing, Clock::time_point now) {
  state_ = State::kFenced;
  standing_ = std::move(standing);
  ranks_ended_ = false;
  fence_until_ = now + options_.fence;
  give_up_at_ = fence_until_ + options_.patience +
                options_.term * static_cast<int64_t>(options_.voters.size());
}

uint32_t ElectionCore::CandidateOf(uint64_t term) const {
  return options_.voters[term % options_.voters.size()];
}

// Returns the next term whose candidate has a known endpoint and is not the lost node.
uint64_t ElectionCore::NextTerm() const {
  uint64_t term = term_ + 1;
  for (size_t i = 0; i < options_.voters.size(); ++i, ++term) {
    const uint32_t candidate = CandidateOf(term);
    if (candidate != standing_.host && peers_.contains(candidate)) break;
  }
  return term;
}

ElectionActions ElectionCore::OnTick(Clock::time_point now) {
  if (state_ == State::kFenced) {
    if (!ranks_ended_ || now < fence_until_) return {};
    uint64_t term = NextTerm();
    for (const auto& [voter, vote] : votes_) term = std::max(term, vote.term());
    EnterTerm(term, now);
  } else if (state_ != State::kVoting) {
    return {};
  } else if (now < term_ends_) {
    if (CandidateOf(term_) == options_.own) OpenIfElected(now);
  } else if (now < give_up_at_ && term_ < kMaxTerms) {
    EnterTerm(NextTerm(), now);
  } else {
    state_ = State::kFollowing;
    out_.emplace_back(election_action::GiveUp{"no majority of the nodes is within reach"});
  }
  return Take();
}

void ElectionCore::EnterTerm(uint64_t term, Clock::time_point now) {
  state_ = State::kVoting;
  term_ = term;
  term_ends_ = now + options_.term;
  out_.emplace_back(agent_action::WithdrawVote{});
  for (auto vote = votes_.begin(); vote != votes_.end();) {
    const uint32_t voter = vote->first;
    const bool is_over = vote->second.term() < term_;
    ++vote;
    if (is_over) Answer(voter);
  }
  const uint32_t candidate = CandidateOf(term_);
  if (candidate == options_.own) return OpenIfElected(now);
  const auto peer = peers_.find(candidate);
  if (peer == peers_.end()) return;
  agent_action::SendVote send;
  send.candidate = candidate;
  send.endpoint = peer->second;
  send.limit = options_.term * 3 / 4;  // leaves time to report a failure within the term
  send.vote.set_term(term_);
  send.vote.set_attempt(standing_.attempt);
  send.vote.set_restarts(standing_.restarts);
  send.vote.set_idle(standing_.was_idle);
  out_.emplace_back(std::move(send));
}

ElectionActions ElectionCore::OnVote(uint32_t voter, const pb::Vote& vote, Clock::time_point now) {
  votes_[voter] = vote;
  if (state_ == State::kElected || CandidateOf(vote.term()) != options_.own) {
    Answer(voter);
  } else if (state_ == State::kVoting) {
    if (vote.term() < term_)
      Answer(voter);
    else if (vote.term() > term_)
      EnterTerm(vote.term(), now);
    else
      OpenIfElected(now);
  }
  return Take();
}

void ElectionCore::Answer(uint32_t voter) {
  votes_.erase(voter);
  agent_action::AnswerVote answer;
  answer.voter = voter;
  answer.answer.set_term(term_);
  if (state_ == State::kElected)
    *answer.answer.mutable_rendezvous_endpoints() = {endpoints_.begin(), endpoints_.end()};
  out_.emplace_back(std::move(answer));
}

// Opens the rendezvous if this node has the votes of a majority. Waits half a term for the
// remaining nodes, so that the attempt gets all nodes that are present.
void ElectionCore::OpenIfElected(Clock::time_point now) {
  size_t votes = 1;
  // Number of nodes that are known to have had ranks when the rendezvous was lost.
  size_t busy = standing_.was_idle ? 0 : 1;
  uint64_t attempt = standing_.attempt;
  uint32_t restarts = standing_.restarts;
  for (const auto& [voter, vote] : votes_) {
    if (vote.term() != term_) continue;
    if (std::ranges::binary_search(options_.voters, voter)) ++votes;
    if (!vote.idle()) ++busy;
    attempt = std::max(attempt, vote.attempt());
    restarts = std::max(restarts, vote.restarts());
  }
  const bool is_host_back = votes_.contains(standing_.host);
  const bool are_all_here = votes + (is_host_back ? 0 : 1) >= options_.voters.size();
  if (votes < options_.majority || (!are_all_here && now < term_ends_ - options_.term / 2)) return;
  if (restarts >= options_.max_restarts) {
    state_ = State::kFollowing;
    out_.emplace_back(election_action::GiveUp{"no restart is left (--max_restarts)"});
    return;
  }
  state_ = State::kOpening;
  next_.Clear();
  next_.set_rendezvous_node(options_.own);
  next_.set_attempt(attempt +
                    UnseenAttempts(options_.num_nodes - busy,
                                   std::max<size_t>(options_.min_nodes, options_.majority),
                                   restarts, options_.max_restarts));
  next_.set_restarts(restarts + 1);
  *next_.mutable_cause() = standing_.cause;
  for (uint32_t node = 0; node < options_.num_nodes; ++node) {
    if (node != options_.own && !votes_.contains(node)) next_.add_absent_nodes(node);
  }
  out_.emplace_back(agent_action::OpenRendezvous{next_});
}

ElectionActions ElectionCore::OnOpened(const Result<std::vector<std::string>>& endpoints) {
  if (state_ != State::kOpening) return {};
  if (!endpoints.ok()) {
    state_ = State::kVoting;  // another node will be the candidate of the next term
    term_ends_ = {};
    return {};
  }
  state_ = State::kElected;
  endpoints_ = *endpoints;
  while (!votes_.empty()) Answer(votes_.begin()->first);
  out_.emplace_back(election_action::Follow{next_});
  return Take();
}

ElectionActions ElectionCore::OnAnswer(uint32_t candidate, const pb::VoteAnswer& answer,
                                       Clock::time_point now) {
  if (state_ != State::kVoting || candidate != CandidateOf(term_)) return {};
  if (answer.rendezvous_endpoints_size() > 0) {
    state_ = State::kFollowing;
    term_ = std::max(term_, answer.term());
    pb::FailoverRequest next;
    next.set_rendezvous_node(candidate);
    *next.mutable_rendezvous_endpoints() = answer.rendezvous_endpoints();
    out_.emplace_back(election_action::Follow{std::move(next)});
  } else if (answer.term() > term_) {
    EnterTerm(answer.term(), now);
  }
  return Take();
}

}  // namespace dslaunch
