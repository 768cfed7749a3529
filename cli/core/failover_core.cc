#include "cli/core/failover_core.h"

#include <algorithm>
#include <utility>

#include "base/count.h"

namespace dslaunch {

void FailoverCore::OnLost(size_t index, const pb::RendezvousLost& lost, Clock::time_point now) {
  peers_[index].awaits_failover = true;
  peers_[index].was_idle = lost.idle();
  const bool is_first = !rendezvous_lost_;
  // The host's report that the other nodes are lost counts only if none of them reports a loss.
  const bool by_host = index == requests_.host();
  const bool is_better =
      !by_host && !is_first && (reported_by_host_ || lost.attempt() > rendezvous_lost_->attempt());
  if (is_first || is_better) {
    rendezvous_lost_ = lost;
    reported_by_host_ = by_host;
  }
  if (is_first && !IsHostGone(now)) {
    out_.Log(LogLevel::kWarning, lost.cause().message() +
                                     "; continuing without it once it must have ended its ranks (" +
                                     Seconds(options_.job.timeouts().lease_ms()) +
                                     " without contact)");
  }
}

// The host counts as lost during a failover, after its own report, or once its stream has ended. A
// report of another node is not enough, because that node may have lost its own network.
bool FailoverCore::IsHostLost() const {
  const size_t host = requests_.host();
  return failing_over_ || nodes_[host].stream_ended || peers_[host].awaits_failover;
}

bool FailoverCore::IsHostGone(Clock::time_point now) const {
  if (bug_ == PlantedBug::kFailsOverTooEarly) return true;
  const size_t host = requests_.host();
  // A host reports that it gives up the rendezvous only after its ranks have ended, so such a host
  // counts as gone.
  if (nodes_[host].is_empty || peers_[host].awaits_failover) return true;
  return (nodes_[host].stream_ended
              ? contact_.SinceLastSeen(host, now)
              : contact_.SilentFor(host, now)) >= GoneAfter(options_.job.timeouts());
}

std::vector<FailoverView> FailoverCore::Views(Clock::time_point now) const {
  std::vector<FailoverView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const SessionNodes::Node& node = nodes_[i];
    FailoverView& view = views.emplace_back();
    view.connected = node.is_reached && !node.stream_ended;
    view.awaits_failover = peers_[i].awaits_failover;
    view.was_idle = peers_[i].was_idle;
    view.will_join = peers_[i].is_held;
    view.spare = node.planned->spare;
    view.is_part = job_.IsPart(i);
    view.silent = node.is_reached && contact_.IsSilent(i, now);
  }
  return views;
}

void FailoverCore::Check(Clock::time_point now) {
  if (!rendezvous_lost_ || failing_over_ || job_.ending()) return;
  const size_t host = requests_.host();
  std::vector<FailoverView> views = Views(now);
  const bool may_restart = job_.restarts() < options_.job.policy().max_restarts();
  // All other nodes have left the host permanently, so the host is ended at once instead of waiting
  // for its end. This requires a remaining restart, because otherwise the host may have used the
  // last restart to continue without the other nodes.
  if (!IsHostGone(now)) {
    const bool is_heard =
        contact_.SilentFor(host, now) < milliseconds(options_.job.timeouts().dead_ms()) / 2;
    if (is_heard && may_restart && !nodes_[host].goodbye_said && IsHostCutOff(views, host))
      nodes_.Abandon(host);
    return;
  }
  const std::optional<size_t> next = DecideFailover(views, host);
  if (!next) return;
  if (!peers_[host].awaits_failover) nodes_.Abandon(host);
  if (!may_restart) return StopWithout("no restart is left");
  FailOverTo(*next, std::move(views));
}

void FailoverCore::FailOverTo(size_t host, std::vector<FailoverView> views) {
  failing_over_ = true;
  request_ = MakeFailoverRequest(host, {.lost_host = requests_.host(),
                                        .lost = *rendezvous_lost_,
                                        .attempt = std::max(job_.attempt(), begun_attempt_),
                                        .restarts = job_.restarts(),
                                        .max_restarts = options_.job.policy().max_restarts(),
                                        .min_nodes = static_cast<size_t>(options_.plan.min_nodes),
                                        .nodes = std::move(views)});
  begun_attempt_ = request_.attempt() + 1;
  out_.Do(action::Failover{host, request_});
}

// Prepares a node that is reached again. While the rendezvous is lost, the node is held instead,
// because its failed search for the rendezvous would be mistaken for the end of the job.
void FailoverCore::OnReached(size_t index) {
  if (!IsHostLost()) return nodes_.Prepare(index);
  peers_[index].is_held = true;
  out_.Log(LogLevel::kDebug,
           nodes_.names()[index] + " is reached again; it waits for a rendezvous");
}

void FailoverCore::OnAnswered(size_t index, size_t host,
                              const Result<pb::RendezvousOpened>& opened) {
  const bool follows = index != host;
  if (!follows) failing_over_ = false;
  if (!follows && job_.ending()) return;
  if (!opened.ok()) {
    out_.Log(LogLevel::kWarning, opened.error().message);
    if (!follows) peers_[index].awaits_failover = false;
    nodes_.Abandon(index);
  } else if (!follows) {
    OnFailedOver(*opened);
  }
}

void FailoverCore::OnFailedOver(const pb::RendezvousOpened& opened) {
  const pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  const size_t lost = requests_.host();
  requests_.MoveHost(request_.rendezvous_node(), opened);
  if (nodes_[lost].ended) out_.Ask(session_request::Reconnect{lost});
  out_.Log(LogLevel::kWarning, job_.OnFailedOver(requests_.host(), cause,
                                                 /*keeps_last=*/peers_[lost].awaits_failover));
  for (size_t i = 0; i < nodes_.size(); ++i) Move(i);
}

void FailoverCore::Move(size_t index) {
  if (std::exchange(peers_[index].is_held, false)) nodes_.Prepare(index);
  const bool follows = std::exchange(peers_[index].awaits_failover, false);
  if (follows || index == requests_.host()) out_.Ask(session_request::Keep{index});
  if (index == requests_.host()) return;
  if (!follows) {
    // The node still looks for the lost rendezvous, or cannot be informed of the new one, so the
    // node is ended.
    if (nodes_[index].is_reached && !nodes_[index].is_preparing) nodes_.Abandon(index);
    return;
  }
  action::Failover follow{index, request_};
  const std::vector<std::string> endpoints = requests_.EndpointsFor(index);
  *follow.request.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
  out_.Do(std::move(follow));
}

void FailoverCore::StopWithout(const std::string& why) {
  const pb::Cause cause = rendezvous_lost_->cause();
  rendezvous_lost_.reset();
  out_.Log(LogLevel::kWarning, "no restart: " + why);
  out_.Ask(session_request::StopConnecting{});
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (peers_[i].awaits_failover && !nodes_[i].stream_ended)
      out_.Do(action::Stop{i, cause, /*kill_now=*/false});
  }
  out_.Ask(session_request::BoundEnd{});
}

}  // namespace dslaunch
