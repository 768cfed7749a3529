#include "cli/core/contact_core.h"

#include <algorithm>
#include <utility>

#include "base/count.h"
#include "cli/core/call_times.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLongestWatch(500);     // longest time between two checks for silent nodes
constexpr milliseconds kNotYetDecided(2'000);  // silence after which a warning is printed

}  // namespace

void ContactCore::OnReached(size_t index) {
  peers_[index].silence = {};
  peers_[index].last_seen_us.reset();
}

// --- Leases of the nodes ---

// Renewals are sent at the interval of the nodes' own heartbeats, because the session counts
// answers to renewals as signs of life too.
void ContactCore::SetRenewTimer(Clock::time_point now) {
  const pb::Timeouts& timeouts = options_.job.timeouts();
  milliseconds every = kRenewEvery;
  if (timeouts.heartbeat_ms() > 0) every = std::min(every, milliseconds(timeouts.heartbeat_ms()));
  if (timeouts.lease_ms() > 0) every = std::min(every, milliseconds(timeouts.lease_ms()) / 4);
  out_.Do(action::SetTimer{SessionTimer::kRenew, now + every});
}

// A node ends when its lease expires, so nodes that are preparing get renewals too. A slow disk may
// delay an agent's preparation, but not its answer to a renewal.
void ContactCore::OnRenewTimer(Clock::time_point now) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const SessionNodes::Node& node = nodes_[i];
    if (!node.is_reached || node.goodbye_said) continue;
    // A silent node may still receive messages. The session waits only for a limited time for the
    // node's end, so the node gets no renewal that would extend its lease.
    if (!node.is_preparing && IsSilent(i, now)) continue;
    out_.Do(
        action::Renew{i, peers_[i].last_seen_us, node.is_preparing ? dead_after() : kCallTimeout});
  }
  SetRenewTimer(now);
}

void ContactCore::OnRenewed(size_t index, std::optional<uint64_t> clock_us, Clock::time_point now) {
  Peer& peer = peers_[index];
  if (clock_us) {
    peer.last_seen_us = std::max(peer.last_seen_us, clock_us);
    peer.silence.ResetDeadline(now);
    NoteContact(now);
  } else if (nodes_[index].is_preparing) {
    nodes_.Abort(index, "no heartbeat from the node");
  }
}

// --- Silent nodes ---

milliseconds ContactCore::watch_every() const { return std::min(dead_after() / 4, kLongestWatch); }

void ContactCore::SetWatchTimer(Clock::time_point now) {
  watch_due_ = now + watch_every();
  out_.Do(action::SetTimer{SessionTimer::kWatch, *watch_due_});
}

void ContactCore::OnWatchTimer(Clock::time_point now) {
  // This process read no messages while it could not run, so the silence of the nodes is counted
  // from now.
  if (watch_due_ && now - *watch_due_ > dead_after() / 4) {
    for (Peer& peer : peers_) peer.silence.ResetDeadline(now);
    newest_contact_ = now;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].is_seen() && IsSilent(i, now))
      out_.Ask(
          session_request::LoseAtStart{i, "no heartbeat for " + Seconds(PatienceWith(i).count())});
  }
}

void ContactCore::OnListening(size_t index, Clock::time_point now) {
  peers_[index].silence.Listen(now);
  NoteContact(now);
}

// Records a message from a node at `now`. While this machine is cut off, TCP doubles its
// retransmission timer with each attempt (RFC 6298, 5.5) and sends again only when the timer
// expires. So a connection may stay silent after the cut for as long again as the cut lasted.
void ContactCore::NoteContact(Clock::time_point now) {
  const Clock::duration silence = now - newest_contact_;
  if (newest_contact_ != Clock::time_point{} && silence >= dead_after() / 2) {
    all_silent_until_ = now;
    all_back_by_ = now + silence;
  }
  newest_contact_ = now;
}

// Returns the silence after which a node counts as lost. The limit is `dead_s` if another node sent
// a message long after this node, because then only this node is silent. Otherwise this machine may
// be cut off while the nodes continue, so the limit is at least the lease. After an interrupt the
// limit is `dead_s`, so that the user does not wait for the lease.
milliseconds ContactCore::PatienceWith(size_t index) const {
  const Clock::time_point last_seen = peers_[index].silence.last_seen();
  const Clock::time_point awaited_since = last_seen < all_silent_until_ ? all_back_by_ : last_seen;
  const bool others_were_heard = newest_contact_ - awaited_since >= dead_after() / 2;
  if (others_were_heard || end_.was_interrupted()) return dead_after();
  return std::max(dead_after(), milliseconds(options_.job.timeouts().lease_ms()));
}

bool ContactCore::IsSilent(size_t index, Clock::time_point now) const {
  return peers_[index].silence.SilentFor(now) >= PatienceWith(index);
}

// Warns of silent nodes and decides whether to stop waiting for them. As long as one node sends
// heartbeats, the nodes decide instead, because a silent node may be cut off from this machine
// only.
void ContactCore::WatchSilence(Clock::time_point now) {
  bool any_seen = false;
  bool any_silent = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    const bool silent = IsSilent(i, now);
    (silent ? any_silent : any_seen) = true;
    WarnOfSilence(i, now);
    // The job has continued without this node, so the session does not wait for it.
    if (silent && job_.attempt() > 0 && !job_.IsMember(i)) nodes_.Abandon(i);
  }
  WarnIfAllAreSilent(now);
  if (any_seen || !any_silent) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    job_.OnLost(i, "no heartbeat from it for " + Seconds(PatienceWith(i).count()), "");
  }
  out_.Ask(session_request::GiveUpWaiting{});
}

void ContactCore::WarnOfSilence(size_t index, Clock::time_point now) {
  Peer& peer = peers_[index];
  const bool silent = IsSilent(index, now);
  const bool say = silent && peer.silence.SilentFor(now) >= dead_after() + kNotYetDecided;
  if (say && !peer.silence_warned) {
    out_.Log(LogLevel::kWarning, "no heartbeat from " + nodes_.names()[index] + " for " +
                                     Seconds(dead_after().count()) +
                                     "; the other nodes decide whether it is lost");
  } else if (!silent && peer.silence_warned && !nodes_[index].stream_ended) {
    out_.Log(LogLevel::kWarning, nodes_.names()[index] + " sends heartbeats again");
  }
  peer.silence_warned = silent && (say || peer.silence_warned);
}

void ContactCore::WarnIfAllAreSilent(Clock::time_point now) {
  bool is_any_heard = false;
  for (size_t i = 0; i < nodes_.size(); ++i)
    is_any_heard |= nodes_[i].is_seen() && SilentFor(i, now) < dead_after();
  if (is_any_heard) {
    if (std::exchange(all_silent_warned_, false))
      out_.Log(LogLevel::kWarning, "heartbeats arrive again");
    return;
  }
  const milliseconds lease(options_.job.timeouts().lease_ms());
  const bool none_is_seen = std::ranges::none_of(nodes_.all(), &SessionNodes::Node::is_seen);
  if (none_is_seen || job_.ending() || lease <= dead_after()) return;
  if (std::exchange(all_silent_warned_, true)) return;
  out_.Log(LogLevel::kWarning, "no heartbeat from any node for " + Seconds(dead_after().count()) +
                                   "; the job continues on the nodes, and ends if this lasts for " +
                                   Seconds(lease.count()) + " (--lease_s)");
}

}  // namespace dslaunch
