// A node and its rendezvous: the way there and the stream.
#include <memory>
#include <utility>

#include "agent/node/rendezvous_options.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/rendezvous.h"

namespace dslaunch::sim {

void NodeIncarnation::OpenRendezvous(const pb::FailoverRequest& last,
                                     std::optional<uint32_t> lost_node) {
  world_.rendezvous.push_back(std::make_unique<Rendezvous>(
      world_, *this, RendezvousOptions(core_.prepare(), core_.nodes(), last), lost_node));
  server_ = world_.rendezvous.back().get();
}

void NodeIncarnation::Do(agent_action::FindRendezvous& action) {
  FindRendezvous(Now() + action.limit);
}

void NodeIncarnation::FindRendezvous(Clock::time_point deadline) {
  const uint32_t host = target_->host().node();
  const bool found = target_->is_open() && !world_.network.IsCut(node_, host) &&
                     !world_.network.IsCut(host, node_) && !world_.machines[host].off;
  if (found) {
    return world_.timeline.After(world_.random.Between(5, 200), &loop_, [this, host] {
      Feed([&](Clock::time_point now) {
        return core_.OnRendezvousFound("10.0.0." + std::to_string(host + 1), now);
      });
    });
  }
  if (Now() >= deadline) {
    return Feed([&](Clock::time_point now) {
      return core_.OnRendezvousFound(Error{ExitCode::kTimedOut, "the rendezvous cannot be reached"},
                                     now);
    });
  }
  world_.timeline.After(500, &loop_, [this, deadline] { FindRendezvous(deadline); });
}

void NodeIncarnation::Do(agent_action::JoinRendezvous& action) {
  attended_ = action.in_process ? server_ : target_;
  session_ = attended_->Attend(*this);
  pb::AgentMessage message;
  pb::Join& join = *message.mutable_join();
  join = std::move(action.join);
  join.set_identity("machine" + std::to_string(node_));
  join.set_master_port(static_cast<uint32_t>(world_.random.Between(1'024, 60'000)));
  if (!action.in_process) {
    join.set_reached_at("10.0.0." + std::to_string(attended_->host().node() + 1));
    join.set_address("10.0.0." + std::to_string(node_ + 1));
  }
  Log(std::move(message));
}

void NodeIncarnation::Log(pb::AgentMessage message) {
  message.set_job_id("job");
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
  Feed([&](Clock::time_point now) { return core_.OnRendezvousMessage(message, now); });
}

void NodeIncarnation::OnRendezvousEnd(const Rendezvous& from, SessionId session) {
  if (&from != attended_ || session != session_) return;
  Feed([&](Clock::time_point now) { return core_.OnRendezvousEnd("the stream ended", now); });
}

}  // namespace dslaunch::sim
