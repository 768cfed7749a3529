#include "cli/core/job_state.h"

#include <algorithm>
#include <numeric>

#include "proto/wire/cause.h"
#include "proto/wire/node_set.h"

namespace dslaunch {
namespace {

// Limit of the kept last lines of failed ranks, for all nodes together; each node has an equal
// share.
constexpr size_t kKeptLinesBytes = 64 << 20;

}  // namespace

std::string AttemptEndText(const pb::Restarting& restarting, const std::string& node) {
  const pb::Cause& cause = restarting.cause();
  std::string text = "attempt " + std::to_string(restarting.attempt()) + " ended: ";
  if (cause.kind() != pb::Cause::NONE) text += CauseText(cause, node) + "; ";
  text += restarting.reason();
  if (!cause.evidence().empty()) text += "\n  " + cause.evidence();
  if (!cause.log_path().empty()) text += "\n  its log: " + node + ":" + cause.log_path();
  return text;
}

JobState::JobState(const LaunchPlan& plan, const pb::Policy& policy)
    : restartable_(policy.max_restarts() > 0 || plan.min_nodes < plan.max_nodes),
      most_ranks_(std::accumulate(plan.nodes.begin(), plan.nodes.end(), 0u,
                                  [](uint32_t ranks, const Host& node) {
                                    return ranks + static_cast<uint32_t>(node.slots);
                                  })),
      world_size_(plan.world_size()),
      own_ranks_(plan.nodes.size()) {
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    NodeEnd node;
    node.name = plan.nodes[i].name;
    nodes_.push_back(std::move(node));
    connected_.insert(i);
    part_.insert(i);
  }
}

void JobState::OnAbsent(size_t node) {
  nodes_[node].absent = true;
  connected_.erase(node);
  part_.erase(node);
}

void JobState::OnConnected(size_t node) {
  own_ranks_[node] = {};
  NodeEnd again;
  again.name = nodes_[node].name;
  if (!nodes_[node].absent && !nodes_[node].lost_reason.empty())
    losses_.push_back(LostMessage(nodes_[node]));
  nodes_[node] = std::move(again);
  connected_.insert(node);
  part_.erase(node);
  given_up_.erase(node);
}

std::vector<std::string> JobState::OnEvent(size_t node, const pb::NodeEvent& event) {
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      OnStarted(node, event.started());
      break;
    case pb::NodeEvent::kRestarting:
      return OnRestarting(event.restarting());
    case pb::NodeEvent::kNotice:
      return {event.notice().message()};
    case pb::NodeEvent::kWorkerEnded:
      OnWorkerEnded(node, event.worker_ended());
      break;
    case pb::NodeEvent::kOutcome:
      OnOutcome(node, event.outcome());
      break;
    case pb::NodeEvent::kDone:
      nodes_[node].done = event.done();
      ending_ = ending_ || event.done().completed();
      break;
    default:
      break;
  }
  return {};
}

// Handles the start of a node's ranks. Every node with ranks reports the start; the first report
// counts.
void JobState::OnStarted(size_t node, const pb::Started& started) {
  part_.insert(node);
  OwnRanks& own = own_ranks_[node];
  if (started.attempt() > own.attempt) own = {.attempt = started.attempt()};
  if (started.attempt() == own.attempt && own.count == 0) {
    own.first = started.first_rank();
    own.count = static_cast<uint32_t>(started.pids_size());
  }
  if (started.attempt() <= attempt_) return;
  attempt_ = started.attempt();
  restarts_ = started.restart_count();
  world_size_ = static_cast<int>(std::min(started.world_size(), most_ranks_));
  members_ = IndexesOf(started.members(), nodes_.size());
  part_.insert(members_.begin(), members_.end());
}

// Handles the end of a rank. A rank may end before the last rank of its node has started, so this
// function may be called before OnStarted.
void JobState::OnWorkerEnded(size_t node, const pb::WorkerEnded& ended) {
  OwnRanks& own = own_ranks_[node];
  if (ended.attempt() > own.attempt) own = {.attempt = ended.attempt()};
  if (ended.attempt() == own.attempt) {
    own.exit_codes.emplace(ended.rank(), ended.tolerated()     ? kTolerated
                                         : ended.signal() != 0 ? kBySignal
                                                               : ended.exit_code());
  }

  const auto [kept, is_new] =
      workers_ended_.emplace(std::pair(ended.rank(), ended.attempt()), ended);
  if (!is_new) return;
  size_t& bytes = last_lines_bytes_[static_cast<uint32_t>(node)];
  if (bytes + ended.last_lines().size() > kKeptLinesBytes / nodes_.size())
    kept->second.clear_last_lines();  // the rank's log file still has the lines
  bytes += kept->second.last_lines().size();
  const auto first = workers_ended_.lower_bound({ended.rank(), 0});
  const auto end = workers_ended_.upper_bound({ended.rank(), UINT64_MAX});
  if (static_cast<size_t>(std::distance(first, end)) <= kNewestAttempts) return;
  bytes -= std::min(bytes, first->second.last_lines().size());
  workers_ended_.erase(first);
}

JobState::RankProgress JobState::Progress() const {
  RankProgress progress;
  for (const uint32_t node : members_) {
    const OwnRanks& own = own_ranks_[node];
    if (own.attempt != attempt_) continue;
    for (uint32_t rank = own.first; rank < own.first + own.count; ++rank) {
      const auto ended = own.exit_codes.find(rank);
      if (ended == own.exit_codes.end())
        progress.running.push_back(static_cast<int>(rank));
      else if (ended->second == 0)
        progress.succeeded.push_back(static_cast<int>(rank));
    }
  }
  std::ranges::sort(progress.succeeded);
  std::ranges::sort(progress.running);
  return progress;
}

std::vector<pb::WorkerEnded> JobState::workers_ended() const {
  std::vector<pb::WorkerEnded> ended;
  for (const auto& [place, one] : workers_ended_) ended.push_back(one);
  return ended;
}

std::vector<std::string> JobState::OnRestarting(const pb::Restarting& restarting) {
  const pb::Cause& cause = restarting.cause();
  const uint32_t about = cause.node_index();
  if (restarting.attempt() <= ended_attempt_) return {};
  ended_attempt_ = restarting.attempt();
  // Streams of different nodes are not ordered relative to each other. A node that has already
  // reconnected, or has ranks in a later attempt, is therefore not declared lost again.
  if (cause.kind() == pb::Cause::NODE_LOST && part_.contains(about) && ended_attempt_ >= attempt_)
    given_up_.insert(about);
  return {AttemptEndText(restarting, about < nodes_.size() ? nodes_[about].name : "")};
}

std::string JobState::OnFailedOver(size_t node, const pb::Cause& cause, bool keeps_last) {
  if (!keeps_last) given_up_.insert(rendezvous_);
  rendezvous_ = node;
  ended_attempt_ = std::max(ended_attempt_, attempt_);
  ++restarts_;
  return "attempt " + std::to_string(ended_attempt_) + " ended: " + cause.message() + "; " +
         nodes_[node].name + " hosts the rendezvous from now on";
}

// In a job that can be restarted, a node that is cut off from the others reports its own end as the
// end of the job. So while the rendezvous' host is connected, only its outcome counts. The outcome
// of a reconnected node without ranks never counts, because that node may have found no rendezvous.
void JobState::OnOutcome(size_t node, const pb::Outcome& outcome) {
  if (restartable_ && node != rendezvous_ && !part_.contains(node)) return;
  if (!nodes_[node].outcome) nodes_[node].outcome = outcome.cause();
  if (restartable_ && node != rendezvous_ && connected_.contains(rendezvous_)) return;
  ending_ = true;
  const uint32_t about = outcome.cause().node_index();
  if (outcome.cause().kind() == pb::Cause::NODE_LOST && about < nodes_.size())
    given_up_.insert(about);
}

void JobState::OnDisconnected(size_t node) {
  connected_.erase(node);
  // Without a rendezvous no further attempt can be decided, so the job ends. The exception is a job
  // that can be restarted, whose other nodes wait for a failover.
  ending_ = ending_ || (node == rendezvous_ && !restartable_);
}

void JobState::OnLost(size_t node, const std::string& reason, const std::string& last_output) {
  nodes_[node].lost_reason = reason;
  nodes_[node].last_output = last_output;
}

void JobState::OnLostAtStart(const pb::Cause& cause) {
  ending_ = true;
  given_up_.insert(cause.node_index());
}

void JobState::OnBrokenRules(const pb::Cause& cause) {
  ending_ = true;
  given_up_.insert(cause.node_index());
  if (!broke_rules_) broke_rules_ = cause;
}

void JobState::OnInterrupted(const pb::Cause& cause) {
  if (!ending_) interrupted_ = cause;
  ending_ = true;
}

bool JobState::IsMember(size_t node) const {
  return members_.empty() ? !nodes_[node].absent
                          : std::ranges::binary_search(members_, static_cast<uint32_t>(node));
}

JobInfo JobState::Info() const {
  JobInfo info = {interrupted_, nodes_, members_, losses_, broke_rules_, rendezvous_};
  info.world_size = static_cast<uint32_t>(world_size_);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const OwnRanks& own = own_ranks_[i];
    RankReports& reports = info.nodes[i].ranks;
    reports = {.attempt = own.attempt, .count = own.count};
    for (uint32_t rank = 0; rank < own.count; ++rank) {
      const auto ended = own.exit_codes.find(own.first + rank);
      if (ended == own.exit_codes.end()) continue;
      reports.succeeded += ended->second == 0 ? 1 : 0;
      reports.tolerated += ended->second == kTolerated ? 1 : 0;
      reports.saved += ended->second == ToInt(ExitCode::kPreempted) ? 1 : 0;
    }
  }
  return info;
}

}  // namespace dslaunch
