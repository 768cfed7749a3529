#include "cli/session/session.h"

#include <signal.h>

#include <algorithm>
#include <asio/post.hpp>
#include <utility>

#include "base/count.h"
#include "base/signal_name.h"
#include "cli/session/event_text.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kTeardownSlack(5'000);  // beyond what a node allows itself
constexpr milliseconds kLongestWatch(500);     // between two looks at the nodes' silence
constexpr milliseconds kNotYetDecided(2'000);  // after which a silence is worth a word
constexpr milliseconds kSameInterrupt(100);

}  // namespace

LaunchSession::LaunchSession(SessionOptions options, Transport& transport, Terminal& terminal)
    : options_(std::move(options)),
      connector_(loop_, transport, options_.connect_timeout, options_.retry_wait),
      output_(loop_, terminal, options_.tags),
      events_(options_.events_folder,
              [this](const std::string& text) { Say(LogLevel::kWarning, text); }),
      story_(options_.plan, options_.policy),
      signals_(loop_),
      connect_timer_(loop_),
      watch_timer_(loop_),
      teardown_timer_(loop_) {
  for (const PlannedNode& planned : options_.plan.nodes) {
    NodeState& node = nodes_.emplace_back();
    node.planned = &planned;
    node.target = {planned.name, planned.host, planned.port, planned.user};
    names_.push_back(planned.name);
    most_slots_ = std::max(most_slots_, static_cast<size_t>(planned.slots));
  }
}

int LaunchSession::Run() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP})
    signals_.add(signal_number);
  const std::function<void()> wait_for_signal = [&] {
    signals_.async_wait([&](const asio::error_code& error, int signal_number) {
      if (error) return;
      OnSignal(signal_number);
      wait_for_signal();
    });
  };
  wait_for_signal();
  events_.Planned(options_.job_id, options_.plan, options_.program);
  ConnectAll();
  loop_.run();
  const int exit_code = detached_          ? ReportDetached()
                        : failed_to_start_ ? ReportStartFailure()
                                           : ReportEnd();
  // It ended well before it could be left alone: whoever wants its id gets it all the same.
  if (options_.detach && !detached_ && exit_code == 0) output_.Print(options_.job_id);
  signals_.clear();  // whoever does not want to wait for a slow terminal can interrupt that
  output_.Drain();
  return exit_code;
}

void LaunchSession::Tell(const std::string& text) {
  asio::post(loop_, [this, text] { Say(LogLevel::kInfo, text); });
}

std::string LaunchSession::SinceStart() const {
  return Seconds(std::chrono::duration_cast<milliseconds>(Clock::now() - started_at_).count());
}

// --- What the nodes say ---

void LaunchSession::OnEvent(size_t index, const pb::NodeEvent& event) {
  if (event.has_status()) {
    if (Says(LogLevel::kInfo)) output_.Progress(event.status());
    return;
  }
  events_.Told(names_, index, event);
  if (const std::string text = EventText(NameOf(index), event); !text.empty())
    Say(LogLevel::kDebug, text);
  for (const std::string& line : story_.OnEvent(index, event)) Say(LogLevel::kWarning, line);
  if (event.has_started()) {
    const auto slots = static_cast<size_t>(event.started().pids_size());
    most_slots_ = std::max(most_slots_, slots);
    output_.SetShownRanks(
        options_.shown.CountRanks(event.started().world_size(), nodes_.size(), most_slots_));
  }
  if (event.has_started()) connector_.Forget(index);
  if (event.has_rendezvous_lost()) OnRendezvousLost(index, event.rendezvous_lost());
  if (event.has_running() && options_.detach && !story_.ending()) return DetachAll();
  if (story_.ending()) {
    connector_.Stop();
    ArmTeardownTimer();
  } else if (event.has_restarting() || event.has_started()) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (story_.IsGivenUp(i)) Abandon(i);
    }
  }
}

void LaunchSession::OnStreamEnd(size_t index) {
  NodeState& node = nodes_[index];
  if (detaching_) return;
  node.stream_ended = true;
  node.awaits_move = false;
  if (!story_.IsDone(index)) StopIfLostAtStart(index, "its agent broke off");
  story_.OnDisconnected(index);
  if (story_.IsDone(index)) return OnLinkEnded(index, /*is_empty=*/true);
  // The keeper outlives its agent until the node is empty: its end is what to wait for. A job that
  // cannot do without the node is about to end.
  if (!story_.restartable() || story_.ending()) ArmTeardownTimer();
  node.client->SayGoodbye();
  node.client->AwaitEnd(
      Deadline::After(milliseconds(options_.timeouts.grace_ms()) +
                      milliseconds(options_.timeouts.teardown_ms()) + kTeardownSlack),
      [this, index](bool keeper_ended) { OnLinkEnded(index, keeper_ended); });
}

void LaunchSession::OnLinkEnded(size_t index, bool is_empty) {
  NodeState& node = nodes_[index];
  node.ended = true;
  node.is_empty = is_empty;
  if (!story_.IsDone(index)) {
    story_.OnLost(index, "the connection to it broke off", node.client->LastWords());
    events_.Lost(NameOf(index), LostMessage(story_.node(index)));
  }
  TryAgain(index);
  EndIfAllEnded();
}

// --- Nodes that are not there ---

// The others have lost it and go on without it: whatever it still does, it ends now.
void LaunchSession::Abandon(size_t index) {
  NodeState& node = nodes_[index];
  if (node.ended || node.stream_ended) return;
  node.client->Abort("the other nodes lost it");
}

void LaunchSession::TryAgain(size_t index) {
  if (!story_.restartable() || story_.ending()) return;
  // Its new agent would open a rendezvous that knows nothing: it comes back once another decides.
  if (index == prepare_.rendezvous_node()) return;
  Say(LogLevel::kDebug, NameOf(index) + " is tried until it is there");
  connector_.KeepTrying(index, nodes_[index].target, [this, index](std::unique_ptr<NodeLink> link) {
    OnReachedAgain(index, std::move(link));
  });
}

void LaunchSession::OnReachedAgain(size_t index, std::unique_ptr<NodeLink> link) {
  // It may decide only since it is tried: its last words came after its connection had ended.
  if (index == prepare_.rendezvous_node()) return;
  NodeState& node = nodes_[index];
  if (node.client) past_.push_back(std::move(node.client));
  node.client = std::make_unique<NodeClient>(loop_, NameOf(index), std::move(link));
  Result<pb::PrepareRequest> request = PrepareRequestFor(index);
  if (!request.ok()) return Say(LogLevel::kWarning, request.error().message);
  node.client->Prepare(*std::move(request), [this, index](Result<pb::NodeFacts> facts) {
    NodeState& again = nodes_[index];
    if (story_.ending()) return again.client->SayGoodbye();
    if (!facts.ok()) {
      events_.Failed(NameOf(index), facts.error().message);
      again.client->SayGoodbye();
      return TryAgain(index);
    }
    if (run_.use_cuda() && std::cmp_less(facts->gpus(), again.planned->slots)) {
      again.client->SayGoodbye();
      return Say(LogLevel::kWarning, NameOf(index) + " stays out: it has " +
                                         Count(facts->gpus(), "GPU") + " for " +
                                         Count(static_cast<size_t>(again.planned->slots), "slot"));
    }
    const bool first_time = !again.facts;
    again.facts = *std::move(facts);
    again.stream_ended = again.ended = again.is_empty = false;
    again.silence_said = again.awaits_move = false;
    events_.Connected(NameOf(index), again.facts->job_dir());
    story_.OnConnected(index);
    Say(LogLevel::kInfo, NameOf(index) + (first_time ? " is here now" : " is back"));
    RunNode(index);
  });
}

// --- Silence ---

void LaunchSession::Watch() {
  const Clock::time_point now = Clock::now();
  // When this process stood still, what the nodes said meanwhile is yet to be read.
  if (watch_timer_.expiry() != Clock::time_point() &&
      now - watch_timer_.expiry() > dead_after() / 4) {
    for (const NodeState& node : nodes_) {
      if (node.client) node.client->silence().Forgive(now);
    }
  }
  WatchSilence(now);
  MoveIfHostIsGone();
  watch_timer_.expires_after(std::min(dead_after() / 4, kLongestWatch));
  watch_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Watch();
  });
}

// Of a node that is silent to us the others know more: they decide, as long as any of them can be
// heard.
void LaunchSession::WatchSilence(Clock::time_point now) {
  bool any_heard = false;
  bool any_silent = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    NodeState& node = nodes_[i];
    if (!node.client || node.ended) continue;
    const Clock::duration silence = node.client->silence().SilentFor(now);
    const bool silent = silence >= dead_after();
    (silent ? any_silent : any_heard) = true;
    if (silent) StopIfLostAtStart(i, "it was silent for " + Seconds(dead_after().count()));
    const bool say = silence >= dead_after() + kNotYetDecided;
    if (say && !node.silence_said) {
      Say(LogLevel::kWarning, "nothing was heard of " + NameOf(i) + " for " +
                                  Seconds(dead_after().count()) +
                                  "; the other nodes decide what becomes of it");
    } else if (!silent && node.silence_said && !node.stream_ended) {
      Say(LogLevel::kWarning, NameOf(i) + " is heard again");
    }
    node.silence_said = silent && (say || node.silence_said);
    // A job that has gone on without it need not wait for it.
    if (silent && story_.epoch() > 0 && !story_.IsMember(i)) Abandon(i);
  }
  if (any_heard || !any_silent) return;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].client || nodes_[i].ended) continue;
    story_.OnLost(i, "nothing was heard of it for " + Seconds(dead_after().count()), "");
  }
  GiveUpWaiting();
}

// Before the first ranks run only the front end knows all nodes: the rendezvous would wait for one
// that has not joined yet, and its own node may be the one that is lost.
void LaunchSession::StopIfLostAtStart(size_t index, const std::string& why) {
  const bool decides = index == prepare_.rendezvous_node();
  if (story_.epoch() > 0 || story_.ending() || (story_.restartable() && !decides)) return;
  pb::Cause cause = MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(index),
                              ExitCode::kUnavailable, NameOf(index) + " was lost: " + why);
  story_.OnLostAtStart(cause);
  connector_.Stop();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != index && nodes_[i].client && !nodes_[i].ended)
      nodes_[i].client->Stop(cause, /*kill_now=*/false);
  }
  ArmTeardownTimer();
}

// --- The user ---

void LaunchSession::OnSignal(int signal_number) {
  if (signal_number == SIGTSTP) {
    return Say(LogLevel::kError,
               "cannot be suspended, the job on the nodes would not be; Ctrl-C ends it");
  }
  if (signal_number != SIGUSR1 && signal_number != SIGUSR2) return Interrupt(signal_number);
  for (const NodeState& node : nodes_) {
    if (running_ && node.client && !node.ended) node.client->Signal(signal_number);
  }
}

void LaunchSession::Interrupt(int signal_number) {
  // timeout(1) and some job systems signal the process and its group: that is one wish, not two.
  const Clock::time_point now = Clock::now();
  if (now - std::exchange(interrupted_at_, now) < kSameInterrupt) return;
  if (detaching_) return;  // a moment, and the job is no longer ours to end
  const bool again = std::exchange(was_interrupted_, true);
  const std::string name = SignalName(signal_number);
  pb::Cause cause =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by " + name);
  cause.set_exit_code(ExitCodeForSignal(signal_number));
  cause.set_signal(signal_number);
  events_.Interrupted(name);
  story_.OnInterrupted(cause);
  if (!running_) return loop_.stop();
  Say(LogLevel::kWarning, again ? name + " again: killing every rank now"
                                : name + ": stopping every rank (again to kill them at once)");
  connector_.Stop();
  for (const NodeState& node : nodes_) {
    if (node.client && !node.ended) node.client->Stop(cause, /*kill_now=*/again);
  }
  ArmTeardownTimer();
}

}  // namespace dslaunch
