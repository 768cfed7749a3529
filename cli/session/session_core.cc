#include "cli/session/session_core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/count.h"
#include "base/text/rank_list.h"
#include "base/text/signal_name.h"
#include "cli/session/call_times.h"
#include "cli/session/event_text.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kLongestWatch(500);     // between two looks at the nodes' silence
constexpr milliseconds kNotYetDecided(2'000);  // after which a silence is worth a word
constexpr milliseconds kSameInterrupt(100);
constexpr milliseconds kUnevenEnd(60'000);  // from the newest success to the line about the others

}  // namespace

SessionCore::SessionCore(const SessionOptions& options, Clock::time_point now, PlantedBug bug)
    : options_(options),
      bug_(bug),
      started_at_(now),
      job_state_(options.plan, options.job.policy()) {
  for (const Host& planned : options_.plan.nodes) {
    nodes_.emplace_back().planned = &planned;
    names_.push_back(planned.name);
    most_slots_ = std::max(most_slots_, static_cast<size_t>(planned.slots));
  }
}

std::string SessionCore::SinceStart(Clock::time_point now) const {
  return Seconds(std::chrono::duration_cast<milliseconds>(now - started_at_).count());
}

std::string SessionCore::JobFolderOf(size_t index) const {
  return nodes_[index].info ? nodes_[index].info->job_dir() : "";
}

milliseconds SessionCore::teardown_limit() const {
  constexpr milliseconds kSlack(5'000);  // beyond what a node allows itself
  return milliseconds(options_.job.timeouts().grace_ms()) +
         milliseconds(options_.job.timeouts().teardown_ms()) + kSlack;
}

// As often as the nodes' own heartbeats: the answers are what tells the front end that they live.
milliseconds SessionCore::renew_every() const {
  const pb::Timeouts& timeouts = options_.job.timeouts();
  milliseconds every = kRenewEvery;
  if (timeouts.heartbeat_ms() > 0) every = std::min(every, milliseconds(timeouts.heartbeat_ms()));
  if (timeouts.lease_ms() > 0) every = std::min(every, milliseconds(timeouts.lease_ms()) / 4);
  return every;
}

milliseconds SessionCore::watch_every() const { return std::min(dead_after() / 4, kLongestWatch); }

// --- What the nodes say ---

SessionCore::Actions SessionCore::OnEvent(size_t index, const pb::NodeEvent& event,
                                          Clock::time_point now) {
  if (finished_) return {};
  if (ShouldLog(LogLevel::kDebug)) {
    if (const std::string text = EventText(NameOf(index), event); !text.empty())
      Log(LogLevel::kDebug, text);
  }
  for (const std::string& line : job_state_.OnEvent(index, event)) Log(LogLevel::kWarning, line);
  if (event.has_started()) {
    const auto slots = static_cast<size_t>(event.started().pids_size());
    most_slots_ = std::max(most_slots_, slots);
    Do(action::ShowRanks{
        options_.shown.CountRanks(event.started().world_size(), nodes_.size(), most_slots_)});
    nodes_[index].attempts = 0;
  }
  if (event.has_restarting()) newest_success_.reset();
  if (event.has_worker_ended() && event.worker_ended().exit_code() == 0 &&
      event.worker_ended().signal() == 0)
    newest_success_ = now;
  if (event.has_rendezvous_lost()) OnRendezvousLost(index, event.rendezvous_lost(), now);
  if (event.has_running() && options_.job.detachable() && !job_state_.ending()) {
    DetachAll();
  } else if (job_state_.ending()) {
    StopConnecting();
    ArmTeardownTimer(now);
  } else if (event.has_restarting() || event.has_started()) {
    AbandonGivenUp(now);
  }
  return Take();
}

SessionCore::Actions SessionCore::OnStreamEnd(size_t index, Clock::time_point now) {
  if (finished_ || detaching_) return {};
  NodeState& node = nodes_[index];
  node.silence.Hold();
  node.stream_ended = true;
  node.awaits_failover = false;
  if (!job_state_.IsDone(index)) StopIfLostAtStart(index, "the connection to its agent broke", now);
  job_state_.OnDisconnected(index);
  if (job_state_.IsDone(index)) {
    EndLink(index, /*is_empty=*/true, /*last_output=*/"", now);
    return Take();
  }
  // The supervisor outlives its agent until the node is empty: its end is what to wait for. A job
  // that cannot do without the node is about to end.
  if (!job_state_.restartable() || job_state_.ending()) ArmTeardownTimer(now);
  SayGoodbye(index);
  Do(action::AwaitEnd{index, teardown_limit()});
  return Take();
}

SessionCore::Actions SessionCore::OnBrokenRules(size_t index, const std::string& what,
                                                Clock::time_point now) {
  if (finished_ || detached_) return {};
  detaching_ = false;
  const std::string why = "its agent sent " + what;
  const pb::Cause cause = MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(index),
                                    ExitCode::kUnavailable, NameOf(index) + " was lost: " + why);
  job_state_.OnBrokenRules(cause);
  job_state_.OnLost(index, why, /*last_output=*/"");
  Record(action::Record::Kind::kLost, index, cause.message());
  StopConnecting();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != index && nodes_[i].is_seen()) StopNode(i, cause);
  }
  Abort(index, why);
  ArmTeardownTimer(now);
  return Take();
}

SessionCore::Actions SessionCore::OnLinkEnded(size_t index, bool supervisor_ended,
                                              const std::string& last_output,
                                              Clock::time_point now) {
  if (finished_) return {};
  EndLink(index, supervisor_ended, last_output, now);
  return Take();
}

void SessionCore::EndLink(size_t index, bool is_empty, const std::string& last_output,
                          Clock::time_point now) {
  NodeState& node = nodes_[index];
  node.ended = true;
  node.is_empty = is_empty;
  if (!job_state_.IsDone(index) && job_state_.node(index).lost_reason.empty()) {
    job_state_.OnLost(index, "the connection to it broke", last_output);
    Record(action::Record::Kind::kLost, index, LostMessage(job_state_.node(index)));
  }
  Reconnect(index);
  EndIfAllEnded(now);
}

// --- Nodes that are not there ---

// The others have lost it and go on without it: whatever it still does, it ends now.
void SessionCore::Abandon(size_t index) {
  const NodeState& node = nodes_[index];
  if (node.ended || node.stream_ended) return;
  Abort(index, "the other nodes lost it");
}

// A host that is not heard by the others sees them leave one after the other, and reports the first
// as lost. Where that node is heard here, the others get the time to report that it is the host
// which is cut off.
void SessionCore::AbandonGivenUp(Clock::time_point now) {
  const bool is_host_ending = IsHostLost() || nodes_[prepare_.rendezvous_node()].goodbye_said;
  for (const size_t index : job_state_.given_up()) {
    NodeState& node = nodes_[index];
    if (!node.given_up_at) node.given_up_at = now;
    if (!IsSilent(index, now) && now - *node.given_up_at < dead_after()) continue;
    if (is_host_ending && node.awaits_failover) continue;
    if (!node.goodbye_said) Abandon(index);
  }
}

void SessionCore::Reconnect(size_t index) {
  if (!job_state_.restartable() || job_state_.ending() || connecting_stopped_) return;
  // Its new agent would open a rendezvous that knows nothing: it comes back once another decides.
  if (index == prepare_.rendezvous_node()) return;
  NodeState& node = nodes_[index];
  if (std::exchange(node.is_tried, true)) return;
  Log(LogLevel::kDebug, NameOf(index) + " is retried until it is reachable");
  Do(action::Connect{index, ++node.attempts});
}

void SessionCore::StopConnecting() {
  if (!std::exchange(connecting_stopped_, true)) Do(action::StopConnecting{});
}

SessionCore::Actions SessionCore::OnConnected(size_t index, Result<NodeAddresses> addresses,
                                              Clock::time_point now) {
  if (finished_) return {};
  running_ ? OnConnectedAgain(index, std::move(addresses))
           : OnFirstConnected(index, std::move(addresses), now);
  return Take();
}

void SessionCore::OnConnectedAgain(size_t index, Result<NodeAddresses> addresses) {
  NodeState& node = nodes_[index];
  if (connecting_stopped_) {
    if (addresses.ok()) Do(action::Abort{index, "the job has ended"});
    return;
  }
  if (!addresses.ok()) return Do(action::Connect{index, ++node.attempts});
  node.is_tried = false;
  // It may decide only since it is tried: its last words came after its connection had ended.
  if (index == prepare_.rendezvous_node())
    return Do(action::Abort{index, "it is not needed before another node hosts the rendezvous"});
  node.is_reached = true;
  node.addresses = *std::move(addresses);
  node.silence = {};
  node.last_seen_us.reset();
  node.goodbye_said = false;
  // A rendezvous that is lost would not be found, and its end be taken for the job's.
  if (IsHostLost()) {
    node.is_held = true;
    return Log(LogLevel::kDebug, NameOf(index) + " is reached again; it waits for a rendezvous");
  }
  Prepare(index);
}

SessionCore::Actions SessionCore::OnPrepared(size_t index, Result<pb::PreparedNode> info,
                                             Clock::time_point now) {
  if (finished_) return {};
  nodes_[index].is_preparing = false;
  running_ ? OnPreparedAgain(index, std::move(info)) : OnFirstPrepared(index, std::move(info), now);
  return Take();
}

void SessionCore::OnPreparedAgain(size_t index, Result<pb::PreparedNode> info) {
  NodeState& node = nodes_[index];
  if (job_state_.ending()) return SayGoodbye(index);
  if (!info.ok()) {
    Record(action::Record::Kind::kFailed, index, info.error().message);
    SayGoodbye(index);
    return Reconnect(index);
  }
  if (run_.use_cuda() && std::cmp_less(info->gpus(), node.planned->slots)) {
    SayGoodbye(index);
    return Log(LogLevel::kWarning, NameOf(index) + " stays out: it has " +
                                       Count(info->gpus(), "GPU") + " for " +
                                       Count(static_cast<size_t>(node.planned->slots), "slot"));
  }
  if (IsHostLost() || node.prepared_for != prepare_.rendezvous_node()) {
    SayGoodbye(index);  // its agent knows another host of the rendezvous
    return Reconnect(index);
  }
  const bool first_time = !node.info;
  node.info = *std::move(info);
  node.stream_ended = node.ended = node.is_empty = false;
  node.silence_warned = node.awaits_failover = false;
  node.given_up_at.reset();
  Record(action::Record::Kind::kConnected, index, node.info->job_dir());
  job_state_.OnConnected(index);
  Log(LogLevel::kInfo, NameOf(index) + (first_time ? " is connected now" : " is connected again"));
  Run(index);
}

// --- Leases ---

// A node ends what its front end has left. An agent may be slow to prepare, for its disk may be;
// this call asks nothing of it and is answered at once as long as the node lives.
SessionCore::Actions SessionCore::OnRenewTimer(Clock::time_point now) {
  if (finished_) return {};
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeState& node = nodes_[i];
    if (!node.is_reached || node.goodbye_said) continue;
    // A silent node may still receive our messages: its lease must not outlast our wait for its
    // end.
    if (!node.is_preparing && IsSilent(i, now)) continue;
    Do(action::Renew{i, node.last_seen_us, node.is_preparing ? dead_after() : kCallTimeout});
  }
  Do(action::SetTimer{SessionTimer::kRenew, now + renew_every()});
  return Take();
}

SessionCore::Actions SessionCore::OnRenewed(size_t index, std::optional<uint64_t> clock_us,
                                            Clock::time_point now) {
  if (finished_) return {};
  NodeState& node = nodes_[index];
  if (clock_us) {
    node.last_seen_us = std::max(node.last_seen_us, clock_us);
    node.silence.ResetDeadline(now);
    NoteContact(now);
  } else if (node.is_preparing) {
    Abort(index, "no heartbeat from the node");
  }
  return Take();
}

// --- Silence ---

SessionCore::Actions SessionCore::OnWatchTimer(Clock::time_point now) {
  if (finished_) return {};
  // When this process could not run, the messages of the nodes are still unread.
  if (watch_due_ && now - *watch_due_ > dead_after() / 4) {
    for (NodeState& node : nodes_) node.silence.ResetDeadline(now);
    newest_contact_ = now;
  }
  WatchSilence(now);
  WatchUnevenEnd(now);
  if (finished_) return Take();
  FailOverIfHostIsGone(now);
  if (!job_state_.ending()) AbandonGivenUp(now);
  watch_due_ = now + watch_every();
  Do(action::SetTimer{SessionTimer::kWatch, *watch_due_});
  return Take();
}

void SessionCore::WatchUnevenEnd(Clock::time_point now) {
  if (job_state_.ending() || !newest_success_ || now - *newest_success_ < kUnevenEnd) return;
  newest_success_.reset();
  const JobState::RankProgress ranks = job_state_.Progress();
  if (ranks.succeeded.empty() || ranks.running.empty()) return;
  const auto name = [](const std::vector<int>& list) {
    return (list.size() == 1 ? "rank " : "ranks ") + RankRanges(list, ", ");
  };
  Log(LogLevel::kWarning,
      name(ranks.succeeded) + " ended with exit code 0 over a minute ago, and " +
          name(ranks.running) + (ranks.running.size() == 1 ? " still runs" : " still run") +
          "; if they wait for a rank that has ended, the job does not end by itself: stop it with "
          "Ctrl-C");
}

void SessionCore::OnListening(size_t index, Clock::time_point now) {
  nodes_[index].silence.Listen(now);
  NoteContact(now);
}

// After a cut of this machine TCP sends again when its timer ends, which it has doubled each time
// (RFC 6298, 5.5): a connection may stay silent for as long again as the cut lasted.
void SessionCore::NoteContact(Clock::time_point now) {
  const Clock::duration silence = now - newest_contact_;
  if (newest_contact_ != Clock::time_point{} && silence >= dead_after() / 2) {
    all_silent_until_ = now;
    all_back_by_ = now + silence;
  }
  newest_contact_ = now;
}

// How long a node may be silent. Where another was heard long after it, the node is silent. Where
// none was, it may be this machine that is cut off: the nodes work on as long as they hold its
// lease. Who has asked for the end does not want to wait for that.
milliseconds SessionCore::PatienceWith(size_t index) const {
  const Clock::time_point last_seen = nodes_[index].silence.last_seen();
  const Clock::time_point awaited_since = last_seen < all_silent_until_ ? all_back_by_ : last_seen;
  const bool others_were_heard = newest_contact_ - awaited_since >= dead_after() / 2;
  if (others_were_heard || was_interrupted_) return dead_after();
  return std::max(dead_after(), milliseconds(options_.job.timeouts().lease_ms()));
}

bool SessionCore::IsSilent(size_t index, Clock::time_point now) const {
  return nodes_[index].silence.SilentFor(now) >= PatienceWith(index);
}

// The other nodes know more about a node that is silent to us: they decide, as long as any of them
// sends heartbeats.
void SessionCore::WatchSilence(Clock::time_point now) {
  bool any_seen = false;
  bool any_silent = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    const bool silent = IsSilent(i, now);
    (silent ? any_silent : any_seen) = true;
    if (silent) StopIfLostAtStart(i, "no heartbeat for " + Seconds(PatienceWith(i).count()), now);
    WarnOfSilence(i, now);
    // A job that has gone on without it need not wait for it.
    if (silent && job_state_.attempt() > 0 && !job_state_.IsMember(i)) Abandon(i);
  }
  WarnIfAllAreSilent(now);
  if (any_seen || !any_silent) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    job_state_.OnLost(i, "no heartbeat from it for " + Seconds(PatienceWith(i).count()), "");
  }
  GiveUpWaiting();
}

void SessionCore::WarnOfSilence(size_t index, Clock::time_point now) {
  NodeState& node = nodes_[index];
  const bool silent = IsSilent(index, now);
  const bool say = silent && node.silence.SilentFor(now) >= dead_after() + kNotYetDecided;
  if (say && !node.silence_warned) {
    Log(LogLevel::kWarning, "no heartbeat from " + NameOf(index) + " for " +
                                Seconds(dead_after().count()) +
                                "; the other nodes decide whether it is lost");
  } else if (!silent && node.silence_warned && !node.stream_ended) {
    Log(LogLevel::kWarning, NameOf(index) + " sends heartbeats again");
  }
  node.silence_warned = silent && (say || node.silence_warned);
}

void SessionCore::WarnIfAllAreSilent(Clock::time_point now) {
  const auto is_heard = [&](const NodeState& node) {
    return node.is_seen() && node.silence.SilentFor(now) < dead_after();
  };
  if (std::ranges::any_of(nodes_, is_heard)) {
    if (std::exchange(all_silent_warned_, false))
      Log(LogLevel::kWarning, "heartbeats arrive again");
    return;
  }
  const milliseconds lease(options_.job.timeouts().lease_ms());
  const bool none_is_seen = std::ranges::none_of(nodes_, &NodeState::is_seen);
  if (none_is_seen || job_state_.ending() || lease <= dead_after()) return;
  if (std::exchange(all_silent_warned_, true)) return;
  Log(LogLevel::kWarning, "no heartbeat from any node for " + Seconds(dead_after().count()) +
                              "; the job continues on the nodes, and ends if this lasts for " +
                              Seconds(lease.count()) + " (--lease_s)");
}

// Before the first ranks run only the front end knows all nodes: the rendezvous would wait for one
// that has not joined yet, and its own node may be the one that is lost.
void SessionCore::StopIfLostAtStart(size_t index, const std::string& why, Clock::time_point now) {
  const bool decides = index == prepare_.rendezvous_node();
  if (job_state_.attempt() > 0 || job_state_.ending() || (job_state_.restartable() && !decides))
    return;
  const pb::Cause cause = MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(index),
                                    ExitCode::kUnavailable, NameOf(index) + " was lost: " + why);
  job_state_.OnLostAtStart(cause);
  StopConnecting();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != index && nodes_[i].is_seen()) StopNode(i, cause);
  }
  ArmTeardownTimer(now);
}

// --- The user ---

SessionCore::Actions SessionCore::OnSignal(int signal_number, Clock::time_point now) {
  if (finished_) return {};
  if (signal_number == SIGTSTP) {
    Log(LogLevel::kError,
        "cannot be suspended, because the ranks on the nodes would continue; Ctrl-C ends the job");
  } else if (signal_number == SIGUSR1 || signal_number == SIGUSR2) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (running_ && nodes_[i].is_seen()) Do(action::Signal{i, signal_number});
    }
  } else {
    Interrupt(signal_number, now);
  }
  return Take();
}

void SessionCore::Interrupt(int signal_number, Clock::time_point now) {
  // timeout(1) and some job systems signal the process and its group: that is one wish, not two.
  const std::optional<Clock::time_point> before = std::exchange(interrupted_at_, now);
  if (before && now - *before < kSameInterrupt) return;
  if (detaching_) return;  // a moment, and the job is no longer ours to end
  const bool again = std::exchange(was_interrupted_, true);
  const std::string name = SignalName(signal_number);
  pb::Cause cause =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by " + name);
  cause.set_exit_code(ExitCodeForSignal(signal_number));
  cause.set_signal(signal_number);
  Record(action::Record::Kind::kInterrupted, 0, name);
  job_state_.OnInterrupted(cause);
  if (!running_) return Finish();
  Log(LogLevel::kWarning, again ? name + " again: killing every rank now"
                                : name + ": stopping every rank (again to kill them at once)");
  StopConnecting();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].is_seen()) StopNode(i, cause, /*kill_now=*/again);
  }
  ArmTeardownTimer(now);
}

void SessionCore::SayGoodbye(size_t index) {
  nodes_[index].goodbye_said = true;
  Do(action::Goodbye{index});
}

void SessionCore::Abort(size_t index, const std::string& why) {
  nodes_[index].goodbye_said = true;
  Do(action::Abort{index, why});
}

}  // namespace dslaunch
