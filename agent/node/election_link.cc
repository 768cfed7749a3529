#include "agent/node/election_link.h"

#include <string_view>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kMaxMessageBytes = 16 << 10;

// Parses a message from `bytes`. Returns false if the bytes are not a valid message.
template <class Message>
bool Parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

ElectionLink::ElectionLink(asio::io_context& loop, RankLinkHub& hub, const PeerLimits& limits,
                           Handlers handlers)
    : loop_(loop), hub_(hub), limits_(limits), handlers_(std::move(handlers)) {
  hub_.SetOnVoter([this](uint32_t node, UniqueFd plain) { OnVoter(node, std::move(plain)); });
}

ElectionLink::~ElectionLink() {
  hub_.SetOnVoter(nullptr);
  ++*newest_vote_;
}

void ElectionLink::SendVote(const agent_action::SendVote& action) {
  WithdrawVote();
  hub_.DialToVote(action.endpoint, action.candidate, action.limit,
                  [this, action, number = *newest_vote_,
                   newest = std::weak_ptr<uint64_t>(newest_vote_)](Result<UniqueFd> plain) {
                    const auto current = newest.lock();
                    if (current && *current == number) OnConnected(action, std::move(plain));
                  });
}

void ElectionLink::WithdrawVote() {
  ++*newest_vote_;
  candidate_.reset();
}

void ElectionLink::OnConnected(const agent_action::SendVote& action, Result<UniqueFd> plain) {
  if (!plain.ok()) return handlers_.on_line("votes: " + plain.error().message);
  candidate_ = std::make_unique<FramedSocket>(
      loop_, *std::move(plain),
      [this, candidate = action.candidate](std::string_view bytes) { OnAnswer(candidate, bytes); },
      [this](const std::string&) { candidate_.reset(); }, kMaxMessageBytes);
  candidate_->Send(action.vote);
}

void ElectionLink::OnAnswer(uint32_t candidate, std::string_view bytes) {
  pb::VoteAnswer answer;
  const bool parsed = Parse(bytes, answer);
  const Result<void> checked = CheckVoteAnswer(answer);
  candidate_.reset();
  if (parsed && checked.ok()) return handlers_.on_answer(candidate, answer);
  handlers_.on_line("votes: node " + std::to_string(candidate) + " sent " +
                    (parsed ? checked.error().message : "no answer to a vote"));
}

void ElectionLink::OnVoter(uint32_t voter, UniqueFd plain) {
  voters_[voter] = std::make_unique<FramedSocket>(
      loop_, std::move(plain), [this, voter](std::string_view bytes) { OnVote(voter, bytes); },
      [this, voter](const std::string&) { OnVoterGone(voter); }, kMaxMessageBytes);
}

void ElectionLink::OnVote(uint32_t voter, std::string_view bytes) {
  pb::Vote vote;
  const bool parsed = Parse(bytes, vote);
  const Result<void> checked = CheckVote(vote, limits_);
  if (parsed && checked.ok()) return handlers_.on_vote(voter, vote);
  handlers_.on_line("votes: node " + std::to_string(voter) + " sent " +
                    (parsed ? checked.error().message : "no vote"));
  OnVoterGone(voter);
}

void ElectionLink::OnVoterGone(uint32_t voter) {
  voters_.erase(voter);
  handlers_.on_voter_gone(voter);
}

void ElectionLink::AnswerVote(const agent_action::AnswerVote& action) {
  const auto voter = voters_.find(action.voter);
  if (voter != voters_.end()) voter->second->Send(action.answer);
}

}  // namespace dslaunch
