// Implements how a node finds its rendezvous and uses the stream to it.
#include <algorithm>
#include <memory>
#include <utility>

#include "agent/core/rendezvous_options.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {

void NodeIncarnation::OpenRendezvous(const pb::FailoverRequest& last,
                                     std::optional<uint32_t> lost_node) {
  CoordinatorOptions options = RendezvousOptions(core_.job().request(), core_.job().nodes(), last);
  if (world_.bug == PlantedBug::kMinority) options.majority = 1;
  world_.rendezvous.push_back(
      std::make_unique<Rendezvous>(world_, *this, std::move(options), lost_node));
  server_ = world_.rendezvous.back().get();
}

void NodeIncarnation::Do(agent_action::FindRendezvous& action) {
  if (!action.endpoints.empty())
    target_ = world_.rendezvous[std::stoul(action.endpoints.front())].get();
  FindRendezvous(Now() + action.limit);
}

void NodeIncarnation::FindRendezvous(Clock::time_point deadline) {
  const uint32_t host = target_->host().node();
  const bool found = target_->is_open() && !world_.network.IsCut(node_, host) &&
                     !world_.network.IsCut(host, node_) && !world_.machines[host].off;
  if (found) {
    return world_.timeline.After(world_.random.Between(5, 200), &loop_, [this, host] {
      Feed([&](Clock::time_point now) {
        core_.membership().OnFound("10.0.0." + std::to_string(host + 1), now);
      });
    });
  }
  if (Now() >= deadline) {
    return Feed([&](Clock::time_point now) {
      core_.membership().OnFound(Error{ExitCode::kTimedOut, "the rendezvous cannot be reached"},
                                 now);
    });
  }
  world_.timeline.After(500, &loop_, [this, deadline] { FindRendezvous(deadline); });
}

void NodeIncarnation::Do(agent_action::JoinRendezvous& action) {
  attended_ = action.in_process ? server_ : target_;
  session_ = attended_->Attend(*this);
  rendezvous_clock_us_ = 0;
  pb::AgentMessage message;
  pb::Join& join = *message.mutable_join();
  join = std::move(action.join);
  join.set_identity("machine" + std::to_string(node_));
  join.set_link_port(1);
  join.set_master_port(static_cast<uint32_t>(world_.random.Between(1'024, 60'000)));
  if (!action.in_process) {
    join.set_reached_at("10.0.0." + std::to_string(attended_->host().node() + 1));
    join.set_address("10.0.0." + std::to_string(node_ + 1));
  }
  Log(std::move(message));
}

void NodeIncarnation::Log(pb::AgentMessage message) {
  message.set_job_id(core_.job().spec().job_id());
  message.set_node_index(node_);
  attended_->Handle(session_, std::move(message));
}

void NodeIncarnation::Do(agent_action::LeaveRendezvous&) {
  if (server_ != nullptr) std::exchange(server_, nullptr)->Close();
  if (attended_ != nullptr) std::exchange(attended_, nullptr)->Leave(session_);
}

void NodeIncarnation::OnRendezvousMessage(const Rendezvous& from, SessionId session,
                                          const pb::RendezvousMessage& message) {
  if (&from != attended_ || session != session_) return;
  Feed([&](Clock::time_point now) { core_.OnRendezvousMessage(message, now, BootNow()); });
}

void NodeIncarnation::OnHeartbeat(const Rendezvous& from, SessionId session,
                                  const pb::Heartbeat& heartbeat) {
  if (&from != attended_ || session != session_) return;
  rendezvous_clock_us_ = heartbeat.rendezvous_clock_us();
  if (!heartbeat.has_majority_age_us()) return;
  core_.majority().OnMajority(BootClock::time_point(ReportedMicroseconds(heartbeat.sent_us())),
                              ReportedMicroseconds(heartbeat.majority_age_us()), BootNow());
}

// --- Votes ---

void NodeIncarnation::Do(agent_action::SendVote& action) {
  WithdrawVote();
  const auto candidate =
      std::find_if(world_.incarnations.rbegin(), world_.incarnations.rend(),
                   [&](const auto& one) { return one->node() == action.candidate; });
  if (candidate == world_.incarnations.rend()) return;
  // A connection needs both directions, so a cut of the reverse direction prevents the vote too.
  if (world_.network.IsCut(action.candidate, node_)) return;
  const int64_t arrival = world_.network.Send(votes_, node_, action.candidate);
  if (arrival > world_.timeline.now() + action.limit.count()) return;
  candidate_ = candidate->get();
  world_.timeline.At(arrival, &candidate_->loop(),
                     [this, there = candidate_, number = vote_, vote = action.vote] {
                       there->OnVote(*this, number, vote);
                     });
}

void NodeIncarnation::WithdrawVote() {
  const uint64_t number = vote_++;
  NodeIncarnation* const there = std::exchange(candidate_, nullptr);
  if (there == nullptr) return;
  const int64_t arrival = world_.network.Send(votes_, node_, there->node());
  world_.timeline.At(arrival, &there->loop(),
                     [this, there, number] { there->OnVoterGone(*this, number); });
}

void NodeIncarnation::OnVote(NodeIncarnation& voter, uint64_t number, const pb::Vote& vote) {
  Note([&] { return "hears a vote of " + voter.name() + ": " + vote.ShortDebugString(); });
  voters_[voter.node()] = {&voter, number};
  Feed([&](Clock::time_point now) { core_.majority().OnVote(voter.node(), vote, now); });
}

void NodeIncarnation::OnVoterGone(const NodeIncarnation& voter, uint64_t number) {
  const auto known = voters_.find(voter.node());
  if (loop_.gone || known == voters_.end() || known->second.number != number) return;
  voters_.erase(known);
  core_.majority().OnVoterGone(voter.node());
}

void NodeIncarnation::Do(agent_action::AnswerVote& action) {
  const auto known = voters_.find(action.voter);
  if (known == voters_.end()) return;
  const auto [voter, number] = known->second;
  voters_.erase(known);
  const int64_t arrival = world_.network.Send(answers_, node_, action.voter);
  world_.timeline.At(arrival, &voter->loop(),
                     [this, there = voter, asked = number, answer = action.answer] {
                       there->OnVoteAnswer(*this, asked, answer);
                     });
}

void NodeIncarnation::OnVoteAnswer(const NodeIncarnation& candidate, uint64_t number,
                                   const pb::VoteAnswer& answer) {
  if (&candidate != candidate_ || number != vote_) return;
  Feed(
      [&](Clock::time_point now) { core_.majority().OnVoteAnswer(candidate.node(), answer, now); });
}

void NodeIncarnation::Do(agent_action::OpenRendezvous& action) {
  Note([&] { return "is elected: " + action.last.ShortDebugString(); });
  OpenRendezvous(action.last, core_.membership().host());
  ++world_.elections;
  const std::string endpoint = std::to_string(world_.rendezvous.size() - 1);
  Feed([&](Clock::time_point) {
    core_.majority().OnRendezvousOpened(std::vector<std::string>{endpoint});
  });
}

void NodeIncarnation::OnRendezvousEnd(const Rendezvous& from, SessionId session) {
  if (&from != attended_ || session != session_) return;
  Feed([&](Clock::time_point now) { core_.membership().OnEnd("the stream ended", now); });
}

}  // namespace dslaunch::sim
