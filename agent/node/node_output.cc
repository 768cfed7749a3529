#include "agent/node/node_output.h"

namespace dslaunch {

void NodeOutput::Notify(std::string text) {
  Log(text);
  pb::NodeEvent event;
  event.mutable_notice()->set_message(std::move(text));
  events_.Emit(std::move(event));
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
