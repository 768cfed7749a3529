#include "agent/node/node_output.h"

#include "base/deadline.h"

namespace dslaunch {
namespace {

constexpr size_t kMostAttemptEvents = 64;  // limit of the events in NodeDone.attempts

}  // namespace

void NodeOutput::Notify(std::string text) {
  Log(text);
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::move(text));
  events_.Emit(std::move(event));
}

void NodeOutput::AddAttempts(pb::NodeDone& done) const {
  done.mutable_attempts()->Assign(attempts_.begin(), attempts_.end());
}

void NodeOutput::Do(agent_action::EmitEvent& action) {
  const pb::NodeEvent& event = action.event;
  if (event.has_started() || event.has_restarting()) {
    pb::AttemptEvent& kept = attempts_.emplace_back();
    kept.set_unix_ms(UnixMs());
    if (event.has_started()) *kept.mutable_started() = event.started();
    if (event.has_restarting()) *kept.mutable_restarting() = event.restarting();
    if (attempts_.size() > kMostAttemptEvents) attempts_.pop_front();
  }
  events_.Emit(std::move(action.event));
}

void NodeOutput::Do(agent_action::FollowRank& action) {
  events_.FollowRank(action.attempt, action.rank, action.local_rank, action.folder);
  if (filtered_log_) filtered_log_->FollowRank(action.rank, action.local_rank, action.folder);
}

void NodeOutput::Do(agent_action::EndRankOutput& action) {
  if (action.others_follow) events_.EndAttempt();
  if (filtered_log_) filtered_log_->EndAttempt();
}

}  // namespace dslaunch
