#include "cli/session/job_story.h"

#include <algorithm>
#include <numeric>

#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch {

JobStory::JobStory(const LaunchPlan& plan, const pb::Policy& policy)
    : restartable_(policy.max_restarts() > 0 || plan.min_nodes < plan.max_nodes),
      most_ranks_(std::accumulate(plan.nodes.begin(), plan.nodes.end(), 0u,
                                  [](uint32_t ranks, const PlannedNode& node) {
                                    return ranks + static_cast<uint32_t>(node.slots);
                                  })),
      world_size_(plan.world_size) {
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    NodeEnd node;
    node.name = plan.nodes[i].name;
    nodes_.push_back(std::move(node));
    connected_.insert(i);
    part_.insert(i);
  }
}

void JobStory::OnAbsent(size_t node) {
  nodes_[node].absent = true;
  connected_.erase(node);
  part_.erase(node);
}

void JobStory::OnConnected(size_t node) {
  NodeEnd again;
  again.name = nodes_[node].name;
  if (!nodes_[node].absent && !nodes_[node].lost_reason.empty())
    losses_.push_back(LostMessage(nodes_[node]));
  nodes_[node] = std::move(again);
  connected_.insert(node);
  part_.erase(node);
  given_up_.erase(node);
}

std::vector<std::string> JobStory::OnEvent(size_t node, const pb::NodeEvent& event) {
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      OnStarted(node, event.started());
      break;
    case pb::NodeEvent::kRestarting:
      return OnRestarting(event.restarting());
    case pb::NodeEvent::kNotice:
      return {event.notice().message()};
    case pb::NodeEvent::kWorkerEnded:
      workers_ended_.push_back(event.worker_ended());
      break;
    case pb::NodeEvent::kOutcome:
      OnOutcome(node, event.outcome());
      break;
    case pb::NodeEvent::kDone:
      nodes_[node].done = event.done();
      ending_ = ending_ || event.done().closed();
      break;
    default:
      break;
  }
  return {};
}

// Every node with ranks says it; the first counts.
void JobStory::OnStarted(size_t node, const pb::Started& started) {
  part_.insert(node);
  if (started.epoch() <= epoch_) return;
  epoch_ = started.epoch();
  restarts_ = started.restart_count();
  world_size_ = static_cast<int>(std::min(started.world_size(), most_ranks_));
  members_ = IndexesOf(started.members(), nodes_.size());
  part_.insert(members_.begin(), members_.end());
}

std::vector<std::string> JobStory::OnRestarting(const pb::Restarting& restarting) {
  const pb::Cause& cause = restarting.cause();
  const uint32_t about = cause.node_index();
  if (restarting.epoch() <= ended_epoch_) return {};
  ended_epoch_ = restarting.epoch();
  if (cause.kind() == pb::Cause::NODE_LOST && about < nodes_.size()) given_up_.insert(about);
  std::string line = "epoch " + std::to_string(ended_epoch_) + " ended: ";
  if (cause.kind() != pb::Cause::NONE)
    line += CauseText(cause, about < nodes_.size() ? nodes_[about].name : "") + "; ";
  return {line + restarting.reason()};
}

std::string JobStory::OnMoved(size_t node, const pb::Cause& cause) {
  given_up_.insert(rendezvous_);
  rendezvous_ = node;
  ended_epoch_ = std::max(ended_epoch_, epoch_);
  ++restarts_;
  return "epoch " + std::to_string(ended_epoch_) + " ended: " + cause.message() + "; " +
         nodes_[node].name + " decides from now on";
}

// In a job that can be restarted a node may be cut off from the others, and then takes for the end
// what is only its own. What counts is what the node says whose agent decides, while it is there.
void JobStory::OnOutcome(size_t node, const pb::Outcome& outcome) {
  if (!nodes_[node].outcome) nodes_[node].outcome = outcome.cause();
  if (restartable_ && node != rendezvous_ && connected_.contains(rendezvous_)) return;
  ending_ = true;
  const uint32_t about = outcome.cause().node_index();
  if (outcome.cause().kind() == pb::Cause::NODE_LOST && about < nodes_.size())
    given_up_.insert(about);
}

void JobStory::OnDisconnected(size_t node) {
  connected_.erase(node);
  // Nobody can decide on another epoch, unless the other nodes wait for another rendezvous.
  ending_ = ending_ || (node == rendezvous_ && !restartable_);
}

void JobStory::OnLost(size_t node, const std::string& reason, const std::string& last_words) {
  nodes_[node].lost_reason = reason;
  nodes_[node].last_words = last_words;
}

void JobStory::OnLostAtStart(const pb::Cause& cause) {
  ending_ = true;
  given_up_.insert(cause.node_index());
}

void JobStory::OnInterrupted(const pb::Cause& cause) {
  if (!ending_) interrupted_ = cause;
  ending_ = true;
}

bool JobStory::IsMember(size_t node) const {
  return members_.empty() ? !nodes_[node].absent
                          : std::ranges::count(members_, static_cast<uint32_t>(node)) > 0;
}

JobFacts JobStory::Facts() const { return {interrupted_, nodes_, members_, losses_}; }

}  // namespace dslaunch
