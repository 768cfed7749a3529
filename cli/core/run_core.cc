#include "cli/core/run_core.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "base/count.h"
#include "base/text/rank_list.h"
#include "cli/core/call_times.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

// Time from a rank's newest success to the warning about ranks that still run.
constexpr milliseconds kUnevenEnd(60'000);

}  // namespace

RunCore::RunCore(const SessionOptions& options, const NodeRequests& requests, SessionNodes& nodes,
                 JobState& job, const EndCore& end, const ContactCore& contact,
                 const FailoverCore& failover, SessionOutbox& out)
    : options_(options),
      requests_(requests),
      nodes_(nodes),
      job_(job),
      end_(end),
      contact_(contact),
      failover_(failover),
      out_(out),
      peers_(nodes.size()) {
  for (const Host& planned : options_.plan.nodes)
    most_slots_ = std::max(most_slots_, static_cast<size_t>(planned.slots));
}

void RunCore::OnEvent(size_t index, const pb::NodeEvent& event, Clock::time_point now) {
  if (event.has_started()) {
    const auto slots = static_cast<size_t>(event.started().pids_size());
    most_slots_ = std::max(most_slots_, slots);
    out_.Do(action::ShowRanks{
        options_.shown.CountRanks(event.started().world_size(), nodes_.size(), most_slots_)});
    peers_[index].attempts = 0;
  }
  if (event.has_restarting()) newest_success_.reset();
  if (event.has_worker_ended() && event.worker_ended().exit_code() == 0 &&
      event.worker_ended().signal() == 0)
    newest_success_ = now;
}

void RunCore::WatchUnevenEnd(Clock::time_point now) {
  if (job_.ending() || !newest_success_ || now - *newest_success_ < kUnevenEnd) return;
  newest_success_.reset();
  const JobState::RankProgress ranks = job_.Progress();
  if (ranks.succeeded.empty() || ranks.running.empty()) return;
  const auto name = [](const std::vector<int>& list) {
    return (list.size() == 1 ? "rank " : "ranks ") + RankRanges(list, ", ");
  };
  out_.Log(
      LogLevel::kWarning,
      name(ranks.succeeded) + " ended with exit code 0 over a minute ago, and " +
          name(ranks.running) + (ranks.running.size() == 1 ? " still runs" : " still run") +
          "; if they wait for a rank that has ended, the job does not end by itself: stop it with "
          "Ctrl-C");
}

// --- Lost nodes ---

bool RunCore::OnStreamEnd(size_t index) {
  if (!job_.node(index).done) LoseAtStart(index, "the connection to its agent broke");
  job_.OnDisconnected(index);
  if (job_.node(index).done) {
    // The agent stays until the session ends the connection, so that the node's own command cannot
    // start another agent earlier in the per-node style.
    if (!job_.ending()) nodes_.SayGoodbye(index);
    OnLinkEnded(index, /*is_empty=*/true, /*last_output=*/"");
    return true;
  }
  // The supervisor outlives its agent until the node is empty, so the session waits for the
  // supervisor. A job that cannot continue without the node is about to end, so the time limit
  // starts.
  if (!job_.restartable() || job_.ending()) out_.Ask(session_request::BoundEnd{});
  nodes_.SayGoodbye(index);
  out_.Do(action::AwaitEnd{index, TeardownLimit(options_.job.timeouts())});
  return false;
}

void RunCore::OnLinkEnded(size_t index, bool is_empty, const std::string& last_output) {
  nodes_.OnEnded(index, is_empty);
  if (!job_.node(index).done && job_.node(index).lost_reason.empty()) {
    job_.OnLost(index, "the connection to it broke", last_output);
    out_.Record(action::Record::Kind::kLost, index, LostMessage(job_.node(index)));
  }
  Reconnect(index);
}

pb::Cause RunCore::LossOf(size_t index, const std::string& why) const {
  return MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(index), ExitCode::kUnavailable,
                   nodes_.names()[index] + " was lost: " + why);
}

void RunCore::OnBrokenRules(size_t index, const std::string& what) {
  const std::string why = "its agent sent " + what;
  const pb::Cause cause = LossOf(index, why);
  job_.OnBrokenRules(cause);
  job_.OnLost(index, why, /*last_output=*/"");
  out_.Record(action::Record::Kind::kLost, index, cause.message());
  out_.Ask(session_request::StopJob{cause, /*except=*/index});
  nodes_.Abort(index, why);
}

// Stops the job if it cannot start without the node. Before the first ranks run, only the front end
// is connected to all nodes, so it must decide about a loss. The rendezvous would wait for a node
// that has not joined yet, and the lost node may be the one that hosts the rendezvous.
void RunCore::LoseAtStart(size_t index, const std::string& why) {
  const bool is_host = index == requests_.host();
  if (job_.attempt() > 0 || job_.ending() || (job_.restartable() && !is_host)) return;
  const pb::Cause cause = LossOf(index, why);
  job_.OnLostAtStart(cause);
  out_.Ask(session_request::StopJob{cause, /*except=*/index});
}

// If the host's messages do not reach the other nodes, the host sees them disconnect one after the
// other and reports the first of them as lost. If that node still sends heartbeats to the front
// end, the node is kept for some time, so that the other nodes can report that the host is cut off.
void RunCore::AbandonGivenUp(Clock::time_point now) {
  const milliseconds dead_after(options_.job.timeouts().dead_ms());
  const bool is_host_ending = failover_.IsHostLost() || nodes_[requests_.host()].goodbye_said;
  for (const size_t index : job_.given_up()) {
    const Clock::time_point since = given_up_at_.try_emplace(index, now).first->second;
    if (!contact_.IsSilent(index, now) && now - since < dead_after) continue;
    if (is_host_ending && failover_.AwaitsFailover(index)) continue;
    if (!nodes_[index].goodbye_said) nodes_.Abandon(index);
  }
}

void RunCore::OnKept(size_t index) {
  job_.OnKept(index);
  given_up_at_.erase(index);
}

// --- Nodes that reconnect ---

void RunCore::Reconnect(size_t index) {
  if (!job_.restartable() || job_.ending() || end_.connecting_stopped()) return;
  // The new agent of the host would open an empty rendezvous, so the session reconnects only once
  // another node hosts the rendezvous.
  if (index == requests_.host() || std::exchange(peers_[index].is_tried, true)) return;
  out_.Log(LogLevel::kDebug, nodes_.names()[index] + " is retried until it is reachable");
  Connect(index);
}

void RunCore::Connect(size_t index) { out_.Do(action::Connect{index, ++peers_[index].attempts}); }

bool RunCore::OnConnected(size_t index, Result<NodeAddresses> addresses) {
  if (end_.connecting_stopped()) {
    if (addresses.ok()) out_.Do(action::Abort{index, "the job has ended"});
    return false;
  }
  if (!addresses.ok()) {
    Connect(index);
    return false;
  }
  peers_[index].is_tried = false;
  // The node's last messages arrived after its connection had ended, so the node may have become
  // the host after this attempt to reach it began.
  if (index == requests_.host()) {
    out_.Do(action::Abort{index, "it is not needed before another node hosts the rendezvous"});
    return false;
  }
  nodes_.OnReached(index, *std::move(addresses));
  return true;
}

bool RunCore::OnPrepared(size_t index, Result<pb::PreparedNode> info) {
  const SessionNodes::Node& node = nodes_[index];
  const std::string& name = nodes_.names()[index];
  if (job_.ending()) {
    nodes_.SayGoodbye(index);
    return false;
  }
  if (!info.ok()) {
    out_.Record(action::Record::Kind::kFailed, index, info.error().message);
    nodes_.SayGoodbye(index);
    Reconnect(index);
    return false;
  }
  const uint32_t devices = info->device() == requests_.device() ? info->gpus() : 0;
  if (requests_.device() != pb::DEVICE_CPU && std::cmp_less(devices, node.planned->slots)) {
    nodes_.SayGoodbye(index);
    out_.Log(LogLevel::kWarning, name + " stays out: it has " +
                                     Count(devices, std::string(RowOf(requests_.device()).noun)) +
                                     " for " +
                                     Count(static_cast<size_t>(node.planned->slots), "slot"));
    return false;
  }
  if (failover_.IsHostLost() || node.prepared_for != requests_.host()) {
    nodes_.SayGoodbye(index);  // the agent was prepared for another host
    Reconnect(index);
    return false;
  }
  const bool first_time = !node.info;
  given_up_at_.erase(index);
  nodes_.OnPrepared(index, *std::move(info));
  job_.OnConnected(index);
  out_.Log(LogLevel::kInfo, name + (first_time ? " is connected now" : " is connected again"));
  nodes_.Run(index);
  return true;
}

}  // namespace dslaunch
