#include "rendezvous/coordinator.h"

#include <utility>

#include "rendezvous/cause.h"

namespace dslaunch {
Coordinator::Coordinator(CoordinatorOptions options, Clock::time_point now)
    : options_(std::move(options)) {
  last_tick_ = now;
  quorum_options_.nodes = options_.nodes;
  quorum_options_.one_machine = options_.one_machine;
  quorum_options_.join_deadline = now + milliseconds(options_.timeouts.join_ms());
}

std::vector<Outgoing> Coordinator::OnMessage(SessionId session, const pb::AgentMessage& message,
                                             Clock::time_point now) {
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) {
    Join(session, message, now);
  } else {
    Attendee& attendee = attendees_.at(known->second);
    attendee.last_heard = now;
    Handle(attendee, message, now);
  }
  return std::exchange(out_, {});
}

void Coordinator::Join(SessionId session, const pb::AgentMessage& message, Clock::time_point now) {
  const uint32_t index = message.node_index();
  const auto refuse = [&](const std::string& why) {
    Refuse(session, MakeCause(pb::Cause::START_FAILED, index, ExitCode::kInternal,
                              "the rendezvous refused " + why));
  };
  if (message.job_id() != options_.job_id) return refuse("an agent of another job");
  if (!message.has_join()) return refuse("an agent that did not join first");
  if (index >= options_.nodes.size())
    return refuse("node " + std::to_string(index) + ", which the job does not have");
  if (message.join().slots() != options_.nodes[index].slots())
    return refuse(NodeName(index) + ": its slots differ");
  if (attendees_.contains(index)) return refuse(NodeName(index) + ": it has joined already");
  if (phase_ != Phase::kJoining) {
    return Refuse(session, cause_ && cause_->kind() != pb::Cause::NONE
                               ? *cause_
                               : MakeCause(pb::Cause::START_FAILED, index, ExitCode::kTimedOut,
                                           NodeName(index) + " came too late to join"));
  }
  Attendee attendee;
  attendee.member = {index, message.join().slots(), message.join().identity(),
                     message.join().reached_at(), message.join().master_port()};
  attendee.session = session;
  attendee.last_heard = now;
  attendees_.emplace(index, std::move(attendee));
  sessions_.emplace(session, index);
  TryToForm(now);
}

void Coordinator::TryToForm(Clock::time_point now) {
  std::vector<Member> members;
  for (const auto& [index, attendee] : attendees_) members.push_back(attendee.member);
  const QuorumDecision decision = DecideQuorum(now, members, quorum_options_);
  if (decision.verdict == QuorumDecision::Verdict::kFail) Stop(decision.cause, now);
  if (decision.verdict == QuorumDecision::Verdict::kForm) Form(now);
}

void Coordinator::Form(Clock::time_point now) {
  ++epoch_;
  phase_ = Phase::kStarting;
  barrier_deadline_ = now + milliseconds(options_.timeouts.ready_ms());
  std::vector<Member> members;
  for (const auto& [index, attendee] : attendees_) members.push_back(attendee.member);
  const RankAssignment ranks = AssignRanks(members);
  for (const RankBlock& block : ranks.blocks) {
    pb::RendezvousMessage message;
    pb::Assignment& assignment = *message.mutable_assignment();
    assignment.set_first_rank(block.first_rank);
    assignment.set_world_size(ranks.world_size);
    assignment.set_node_rank(block.node_rank);
    assignment.set_num_nodes(static_cast<uint32_t>(ranks.blocks.size()));
    assignment.set_master_addr(ranks.master_addr);
    assignment.set_master_port(ranks.master_port);
    Send(attendees_.at(block.node_index).session, std::move(message));
  }
}

void Coordinator::Handle(Attendee& attendee, const pb::AgentMessage& message,
                         Clock::time_point now) {
  if (message.has_heartbeat()) {
    pb::RendezvousMessage reply;
    reply.mutable_heartbeat();
    return Send(attendee.session, std::move(reply));
  }
  // Before ranks are assigned an agent may only give up; what it says of an older epoch is void.
  const bool current = message.epoch() == epoch_ || message.has_stop() || message.has_torn_down();
  if (!current || attendee.lost) return;
  switch (message.message_case()) {
    case pb::AgentMessage::kReady:
      attendee.ready = true;
      break;
    case pb::AgentMessage::kFinished:
      attendee.ready = attendee.finished = true;
      break;
    case pb::AgentMessage::kWorkerFailed:
      return Stop(message.worker_failed().cause(), now);
    case pb::AgentMessage::kStop:
      return Stop(message.stop().cause(), now);
    case pb::AgentMessage::kTornDown:
      attendee.torn_down = true;
      return CloseIfTornDown(now);
    default:
      return;
  }
  if (phase_ == Phase::kStarting && All([](const Attendee& a) { return a.ready; })) {
    phase_ = Phase::kRunning;
    pb::RendezvousMessage all_ready;
    all_ready.mutable_all_ready();
    Broadcast(all_ready);
  }
  if (phase_ == Phase::kRunning && All([](const Attendee& a) { return a.finished; }))
    Stop(pb::Cause(), now);
}

std::vector<Outgoing> Coordinator::OnDisconnect(SessionId session, Clock::time_point now) {
  const auto known = sessions_.find(session);
  if (known != sessions_.end()) {
    Lose(attendees_.at(known->second), "its agent vanished", now);
    sessions_.erase(session);
  }
  return std::exchange(out_, {});
}

void Coordinator::Lose(Attendee& attendee, const std::string& why, Clock::time_point now) {
  if (attendee.lost || phase_ == Phase::kClosed) return;
  attendee.lost = true;
  if (!attendee.torn_down) {
    const uint32_t index = attendee.member.node_index;
    pb::Cause lost = MakeCause(pb::Cause::NODE_LOST, index, ExitCode::kUnavailable,
                               NodeName(index) + " was lost: " + why);
    // All its ranks had ended well, but nobody can say that it is empty.
    if (phase_ == Phase::kStopping && cause_->kind() == pb::Cause::NONE) cause_ = lost;
    Stop(lost, now);
  }
  CloseIfTornDown(now);
}

void Coordinator::Stop(const pb::Cause& cause, Clock::time_point now) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kClosed) return;
  phase_ = Phase::kStopping;
  cause_ = cause;
  // A little later than the nodes themselves give up, so that they can say what is left.
  barrier_deadline_ =
      now + milliseconds(options_.timeouts.grace_ms() + options_.timeouts.teardown_ms() +
                         options_.timeouts.dead_ms());
  pb::RendezvousMessage message;
  *message.mutable_stop()->mutable_cause() = cause;
  Broadcast(message);
  CloseIfTornDown(now);
}

void Coordinator::CloseIfTornDown(Clock::time_point now) {
  if (phase_ != Phase::kStopping) return;
  const bool waiting = !All([](const Attendee& a) { return a.torn_down || a.lost; });
  if (waiting && now < barrier_deadline_) return;
  phase_ = Phase::kClosed;
  pb::RendezvousMessage message;
  pb::Closed& closed = *message.mutable_closed();
  *closed.mutable_cause() = *cause_;
  for (const auto& [index, attendee] : attendees_) {
    if (!attendee.torn_down) closed.add_missing_nodes(index);
  }
  closed.set_complete(closed.missing_nodes_size() == 0);
  for (const auto& [index, attendee] : attendees_) {
    if (!attendee.lost) Send(attendee.session, message, /*end_session=*/true);
  }
}

std::vector<Outgoing> Coordinator::OnTick(Clock::time_point now) {
  const milliseconds dead(options_.timeouts.dead_ms());
  // A tick this late means that this machine stood still: what the agents said meanwhile still
  // waits to be read.
  const bool stood_still = now - std::exchange(last_tick_, now) >= dead / 2;
  for (auto& [index, attendee] : attendees_) {
    if (stood_still) attendee.last_heard = now;
    if (now - attendee.last_heard >= dead) {
      Lose(attendee, "it was silent for " + std::to_string(dead.count() / 1000) + " s", now);
    }
  }
  CheckBarrierTimes(now);
  return std::exchange(out_, {});
}

void Coordinator::CheckBarrierTimes(Clock::time_point now) {
  if (phase_ == Phase::kJoining) TryToForm(now);
  if (phase_ == Phase::kStopping) CloseIfTornDown(now);
  if (phase_ != Phase::kStarting || now < barrier_deadline_) return;
  std::string late;
  uint32_t first_late = 0;
  for (const auto& [index, attendee] : attendees_) {
    if (attendee.ready) continue;
    if (late.empty()) first_late = index;
    late += (late.empty() ? "" : ", ") + NodeName(index);
  }
  Stop(MakeCause(pb::Cause::TIMED_OUT, first_late, ExitCode::kTimedOut,
                 late + " did not start all workers in time"),
       now);
}

void Coordinator::Refuse(SessionId session, const pb::Cause& cause) {
  pb::RendezvousMessage message;
  *message.mutable_refused()->mutable_cause() = cause;
  Send(session, std::move(message), /*end_session=*/true);
}

void Coordinator::Send(SessionId session, pb::RendezvousMessage message, bool end_session) {
  message.set_epoch(epoch_);
  out_.push_back({session, std::move(message), end_session});
}

void Coordinator::Broadcast(const pb::RendezvousMessage& message) {
  for (const auto& [index, attendee] : attendees_) {
    if (!attendee.lost) Send(attendee.session, message);
  }
}

template <class Predicate>
bool Coordinator::All(Predicate predicate) const {
  for (const auto& [index, attendee] : attendees_) {
    if (!predicate(attendee)) return false;
  }
  return true;
}

std::string Coordinator::NodeName(uint32_t node_index) const {
  return options_.nodes[node_index].name();
}

}  // namespace dslaunch
