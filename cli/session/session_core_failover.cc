// Failover: when the node that hosts the rendezvous is lost, the session names another host.
//
// Only the front end may: the nodes cannot tell a dead node from a cut network, and two halves that
// both continue would write over each other. It sees both sides, and waits until the lost node has
// surely ended its ranks: its supervisor has ended, or the node has been silent for as long as its
// own lease and the teardown after it take. A closed link proves nothing: a cut network closes our
// side of it, while the node's side stays open.
#include <algorithm>
#include <utility>

#include "base/count.h"
#include "cli/session/session_core.h"

namespace dslaunch {

void SessionCore::OnRendezvousLost(size_t index, const pb::RendezvousLost& lost,
                                   Clock::time_point now) {
  nodes_[index].awaits_failover = true;
  nodes_[index].was_idle = lost.idle();
  const bool is_first = !rendezvous_lost_;
  // The host reports that the others are lost, which holds only where none of them reports.
  const bool by_host = index == prepare_.rendezvous_node();
  const bool is_better =
      !by_host && !is_first && (lost_said_by_host_ || lost.attempt() > rendezvous_lost_->attempt());
  if (is_first || is_better) {
    rendezvous_lost_ = lost;
    lost_said_by_host_ = by_host;
  }
  if (is_first && !IsHostGone(now)) {
    Log(LogLevel::kWarning, lost.cause().message() +
                                "; continuing without it once it must have ended its ranks (" +
                                Seconds(options_.job.timeouts().lease_ms()) + " without contact)");
  }
}

// A node that is reached now has no rendezvous to join. The report of one node does not count: that
// node may have lost its own network.
bool SessionCore::IsHostLost() const {
  const NodeState& host = nodes_[prepare_.rendezvous_node()];
  return failing_over_ || host.stream_ended || host.awaits_failover;
}

bool SessionCore::IsHostGone(Clock::time_point now) const {
  if (bug_ == PlantedBug::kFailsOverTooEarly) return true;
  const NodeState& host = nodes_[prepare_.rendezvous_node()];
  // A host that gave the rendezvous up says so when its ranks have ended.
  if (host.is_empty || host.awaits_failover) return true;
  return (host.stream_ended ? host.silence.SinceLastSeen(now) : host.silence.SilentFor(now)) >=
         GoneAfter(options_.job.timeouts());
}

std::vector<FailoverView> SessionCore::FailoverViews(Clock::time_point now) const {
  std::vector<FailoverView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeState& node = nodes_[i];
    FailoverView& view = views.emplace_back();
    view.connected = node.is_reached && !node.stream_ended;
    view.awaits_failover = node.awaits_failover;
    view.was_idle = node.was_idle;
    view.will_join = node.is_held;
    view.spare = node.planned->spare;
    view.is_part = job_state_.IsPart(i);
    view.silent = node.is_reached && IsSilent(i, now);
  }
  return views;
}

// Only OnWatchTimer asks: it knows when this process could not run, so that silence means nothing.
void SessionCore::FailOverIfHostIsGone(Clock::time_point now) {
  if (!rendezvous_lost_ || failing_over_ || job_state_.ending()) return;
  const size_t host = prepare_.rendezvous_node();
  const std::vector<FailoverView> views = FailoverViews(now);
  const bool may_restart = job_state_.restarts() < options_.job.policy().max_restarts();
  // The others have left it for good, so its end is hastened rather than waited for. It may have
  // used the last restart to continue without them.
  if (!IsHostGone(now)) {
    const bool is_heard = nodes_[host].silence.SilentFor(now) < dead_after() / 2;
    if (is_heard && may_restart && !nodes_[host].goodbye_said && IsHostCutOff(views, host))
      Abandon(host);
    return;
  }
  const std::optional<size_t> next = DecideFailover(views, host);
  if (!next) return;
  if (!nodes_[host].awaits_failover) Abandon(host);
  if (!may_restart) return StopWithout("no restart is left", now);
  FailOverTo(*next, now);
}

void SessionCore::FailOverTo(size_t host, Clock::time_point now) {
  failing_over_ = true;
  failover_ = MakeFailoverRequest(host, {.lost_host = prepare_.rendezvous_node(),
                                         .lost = *rendezvous_lost_,
                                         .attempt = std::max(job_state_.attempt(), begun_attempt_),
                                         .restarts = job_state_.restarts(),
                                         .max_restarts = options_.job.policy().max_restarts(),
                                         .min_nodes = static_cast<size_t>(options_.plan.min_nodes),
                                         .nodes = FailoverViews(now)});
  begun_attempt_ = failover_.attempt() + 1;
  Do(action::Failover{host, failover_});
}

SessionCore::Actions SessionCore::OnFailoverAnswered(size_t index, size_t host,
                                                     const Result<pb::RendezvousOpened>& opened) {
  if (finished_) return {};
  const bool follows = index != host;
  if (!follows) failing_over_ = false;
  if (!follows && job_state_.ending()) return {};
  if (!opened.ok()) {
    Log(LogLevel::kWarning, opened.error().message);
    if (!follows) nodes_[index].awaits_failover = false;
    Abandon(index);
  } else if (!follows) {
    *run_.mutable_rendezvous_endpoints() = opened->rendezvous_endpoints();
    OnFailedOver();
  }
  return Take();
}

void SessionCore::OnFailedOver() {
  const pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  const size_t lost = prepare_.rendezvous_node();
  const size_t host = failover_.rendezvous_node();
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host));
  if (nodes_[lost].ended) Reconnect(lost);
  Log(LogLevel::kWarning,
      job_state_.OnFailedOver(host, cause, /*keeps_last=*/nodes_[lost].awaits_failover));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (std::exchange(nodes_[i].is_held, false)) Prepare(i);
    const bool follows = std::exchange(nodes_[i].awaits_failover, false);
    if (follows || i == host) {
      job_state_.OnKept(i);
      nodes_[i].given_up_at.reset();
    }
    if (i == host) continue;
    if (!follows) {
      // It looks for the lost rendezvous, or cannot be told of the new one.
      if (nodes_[i].is_reached && !nodes_[i].is_preparing) Abandon(i);
      continue;
    }
    action::Failover follow{i, failover_};
    const std::vector<std::string> endpoints = EndpointsFor(i);
    *follow.request.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
    Do(std::move(follow));
  }
}

void SessionCore::StopWithout(const std::string& why, Clock::time_point now) {
  const pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  Log(LogLevel::kWarning, "no restart: " + why);
  StopConnecting();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].awaits_failover && !nodes_[i].stream_ended) StopNode(i, cause);
  }
  ArmTeardownTimer(now);
}

}  // namespace dslaunch
