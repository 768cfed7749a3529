#include "cli/per_node/member_core.h"

#include <algorithm>
#include <csignal>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "net/addresses.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kMaxWait(2'000);  // longest pause between two attempts to connect
constexpr milliseconds kSameInterrupt(100);
constexpr milliseconds kLookAgain(20);         // interval of checks whether all output is shown
constexpr milliseconds kLostNode0Wait(5'000);  // limit of the wait for node 0 once it seems lost
constexpr milliseconds kStartKnownWithin(1'000);
constexpr milliseconds kShowAtLeast(3'000);  // time for showing the last output of an ended job

}  // namespace

std::string MemberCore::NodeZero() const {
  return "node 0 (" + (front_end_.empty() ? "" : front_end_ + ", ") +
         JoinHostPort(options_.host, options_.port) + ")";
}

// --- Connecting to node 0 ---

MemberActions MemberCore::Start() {
  Do(member_action::Dial{});
  return Take();
}

MemberActions MemberCore::OnDialed(const std::optional<DialFailure>& failure,
                                   Clock::time_point now) {
  if (ended_) return {};
  received_ = false;
  if (!failure) {
    is_connected_ = true;
    pb::NodeMessage message;
    *message.mutable_request() = options_.request;
    Do(member_action::Send{std::move(message)});
  } else if (failure->kind == DialFailure::Kind::kWrongToken) {
    End(ToInt(ExitCode::kNoPermission),
        NodeZero() + ": " + failure->why + "; give the commands of all nodes the same token");
  } else {
    Reconnect(failure->why + (failure->kind == DialFailure::Kind::kNoTls
                                  ? "; if it has no --rdzv_token_file, leave it out here"
                                  : ""),
              now);
  }
  return Take();
}

void MemberCore::Reconnect(const std::string& why, Clock::time_point now) {
  if (now >= join_by_) {
    return End(ToInt(ExitCode::kTimedOut),
               NodeZero() + " was not reachable within " + Seconds(options_.join_timeout.count()) +
                   " (" + why + "); start its command there, and check address, port and firewall");
  }
  const std::string text = "waiting for " + NodeZero() + ": " + why;
  if (std::exchange(last_logged_, text) != text) Log(text);
  Do(member_action::SetTimer{MemberTimer::kDial, std::min(now + next_wait_, join_by_)});
  next_wait_ = std::min(next_wait_ * 2, kMaxWait);
}

MemberActions MemberCore::OnMessage(const pb::NodeMessage& message, Clock::time_point now) {
  if (ended_) return {};
  received_ = true;
  switch (message.message_case()) {
    case pb::NodeMessage::kRefused:
      End(FailureCode(message.refused().exit_code(), ExitCode::kUnavailable),
          NodeZero() + " says: " + SanitizeForTerminal(message.refused().message()));
      break;
    case pb::NodeMessage::kAwaited: {
      const uint32_t missing = message.awaited().wanted() - message.awaited().present();
      if (missing > 0 && !std::exchange(wait_logged_, true))
        Log(NodeZero() + " is connected; waiting for " + Count(missing, "more node"));
      break;
    }
    case pb::NodeMessage::kAccepted:
      if (agent_ || starting_) break;
      name_ = SanitizeForTerminal(message.accepted().name());
      front_end_ = SanitizeForTerminal(message.accepted().front_end());
      starting_ = true;
      // The outcome of the last agent and the limit of the wait for its end do not apply to the new
      // agent, so they are reset.
      outcome_.reset();
      is_completed_ = false;
      if (!job_ended_ && interrupted_by_ == 0) is_bounded_ = false;
      Do(member_action::StartAgent{name_});
      break;
    case pb::NodeMessage::kStreamEnd:
      if (!agent_) break;
      agent_->goodbye_at = now;
      agent_->is_shown = agent_->is_shown || message.stream_end().abort();
      SayGoodbyeWhenShown(/*reader_makes_progress=*/false, now);
      break;
    case pb::NodeMessage::kJobEnded:
      job_ended_ = message.job_ended();
      if (const int code = job_ended_->exit_code(); code != 0)
        job_ended_->set_exit_code(FailureCode(code, ExitCode::kInternal));
      Bound(options_.end_timeout, now);
      EndIfOver();
      break;
    default:
      break;
  }
  return Take();
}

MemberActions MemberCore::OnClosed(const std::string& why, Clock::time_point now) {
  if (ended_) return {};
  Disconnected(why, now);
  return Take();
}

void MemberCore::Disconnected(const std::string& why, Clock::time_point now) {
  is_connected_ = false;
  Do(member_action::Disconnect{});
  if (job_ended_) return;
  if (!name_.empty()) {
    node_zero_lost_ = true;
    if (agent_) {
      Do(member_action::CloseStream{});
      AwaitAgentEnd(now);
    }
    return EndIfOver();
  }
  const bool is_end = why.starts_with("end of file") || why.starts_with("read: ");
  if (received_ || is_end) {
    return Reconnect(received_            ? "it disconnected"
                     : options_.has_token ? "it closed the connection"
                                          : "it closed the connection; if it has a "
                                            "--rdzv_token_file, give it here too",
                     now);
  }
  End(ToInt(ExitCode::kUnavailable),
      "what listens at " + JoinHostPort(options_.host, options_.port) +
          " is not dslaunch's node 0 (" + why + "); give the address and a free port of node 0" +
          (options_.has_token ? "" : ", and its --rdzv_token_file if it has one"));
}

// --- The agent of this node ---

MemberActions MemberCore::OnAgentStarted(const Result<void>& started, Clock::time_point now) {
  if (ended_) return {};
  starting_ = false;
  pb::NodeMessage message;
  if (!started.ok()) {
    Log(started.error().message);
    message.mutable_agent_failed()->set_exit_code(ToInt(started.error().code));
    message.mutable_agent_failed()->set_message(started.error().message);
    Do(member_action::Send{std::move(message)});
    EndIfOver();
    return Take();
  }
  agent_ = Agent();
  if (!is_connected_ || interrupted_by_ != 0) {  // disconnected or interrupted during the start
    Do(member_action::CloseStream{});
    AwaitAgentEnd(now);
    return Take();
  }
  message.mutable_agent_up();
  Do(member_action::Send{std::move(message)});
  Do(member_action::ServeAgent{});
  return Take();
}

MemberActions MemberCore::OnAgentStreamEnd(Clock::time_point now) {
  if (ended_) return {};
  AwaitAgentEnd(now);
  return Take();
}

MemberActions MemberCore::OnEvent(const pb::NodeEvent& event, Clock::time_point now) {
  if (ended_) return {};
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      if (agent_) agent_->started = true;
      num_ranks_ = event.started().pids_size();
      num_saved_ = 0;
      Do(member_action::ShowRanks{static_cast<size_t>(num_ranks_)});
      Log(StartedLine(event.started()));
      break;
    case pb::NodeEvent::kNotice:
      Log(event.notice().message(), LogLevel::kWarning);
      break;
    case pb::NodeEvent::kWorkerEnded:
      if (event.worker_ended().exit_code() == ToInt(ExitCode::kPreempted)) ++num_saved_;
      break;
    case pb::NodeEvent::kRestarting: {
      const pb::Cause& cause = event.restarting().cause();
      Log("attempt " + std::to_string(event.restarting().attempt()) +
          " ended: " + (cause.kind() == pb::Cause::NONE ? "" : CauseText(cause) + "; ") +
          event.restarting().reason());
      break;
    }
    case pb::NodeEvent::kOutcome:
      outcome_ = event.outcome().cause();
      AwaitLostNodeZero(now);
      break;
    case pb::NodeEvent::kDone:
      is_completed_ = event.done().completed();
      if (!agent_) break;
      agent_->is_shown = true;
      if (!leaving_) break;
      Do(member_action::CloseStream{});
      AwaitAgentEnd(now);
      break;
    default:
      break;
  }
  return Take();
}

void MemberCore::OnShown() {
  if (agent_) agent_->is_shown = true;
}

std::string MemberCore::StartedLine(const pb::Started& started) const {
  const int first = static_cast<int>(started.first_rank());
  const int last = first + started.pids_size() - 1;
  const bool shown = options_.shown.shown_ranks.all ||
                     std::ranges::any_of(options_.shown.shown_ranks.ranks,
                                         [&](int rank) { return first <= rank && rank <= last; });
  return name_ + " runs " +
         (first == last ? "rank " + std::to_string(first)
                        : "ranks " + std::to_string(first) + " to " + std::to_string(last)) +
         " of " + std::to_string(started.world_size()) + "; " + NodeZero() + " leads the job" +
         (shown ? "" : "; --show all shows their output here");
}

// Ends the agent once the output of its ranks is shown. Until then the agent's lease is renewed.
void MemberCore::SayGoodbyeWhenShown(bool reader_makes_progress, Clock::time_point now) {
  if (!agent_ || agent_->ending) return;
  // After a short job, the report that the ranks were started may arrive a moment after the end, so
  // the agent is kept for kStartKnownWithin.
  const Clock::duration waited = now - agent_->goodbye_at;
  const bool need_not_wait = agent_->is_shown || (!agent_->started && waited >= kStartKnownWithin);
  if (need_not_wait || (waited >= kShowAtLeast && !reader_makes_progress)) {
    if (!need_not_wait) Log("the end of the output was not shown; it is in the log files");
    Do(member_action::EndStream{});
    return AwaitAgentEnd(now);
  }
  Do(member_action::RenewLease{});
  Do(member_action::SetTimer{MemberTimer::kGoodbye, now + kLookAgain});
}

void MemberCore::AwaitAgentEnd(Clock::time_point now) {
  if (!agent_ || std::exchange(agent_->ending, true)) return;
  Bound(options_.end_timeout, now);
  Do(member_action::AwaitAgentEnd{options_.end_timeout});
}

MemberActions MemberCore::OnAgentEnded(const std::string& words, Clock::time_point now) {
  if (ended_) return {};
  if (!words.empty()) Log(words, LogLevel::kWarning);
  agent_.reset();
  if (leaving_) {
    const bool saved = num_ranks_ > 0 && num_saved_ == num_ranks_;
    End(saved ? ToInt(ExitCode::kPreempted) : ExitCodeForSignal(SIGTERM),
        std::string("left the job") +
            (saved ? ": every rank of this node has saved its state" : "") +
            "; no processes are left on this node");
    return Take();
  }
  pb::NodeMessage message;
  message.mutable_agent_ended()->set_words(words);
  Do(member_action::Send{std::move(message)});
  AwaitLostNodeZero(now);
  EndIfOver();
  return Take();
}

// Limits the wait for node 0 once the agent has ended and has reported that node 0 is lost, in
// either order.
void MemberCore::AwaitLostNodeZero(Clock::time_point now) {
  if (agent_ || starting_ || !IsNodeZeroLost()) return;
  is_bounded_ = false;
  Bound(kLostNode0Wait, now);
}

// --- Signals of the user ---

MemberActions MemberCore::OnSignal(int signal_number, Clock::time_point now) {
  if (ended_) return {};
  if (signal_number == SIGTSTP)
    Log("cannot be suspended, because the ranks would continue; Ctrl-C ends the job");
  else if (signal_number != SIGUSR1 && signal_number != SIGUSR2)
    Interrupt(signal_number, now);
  else if (agent_)
    Do(member_action::SignalRanks{signal_number});
  return Take();
}

void MemberCore::Interrupt(int signal_number, Clock::time_point now) {
  // timeout(1) and some job systems signal both the process and its group, so two signals in quick
  // succession count as one request.
  const std::optional<Clock::time_point> before = std::exchange(interrupted_at_, now);
  if (before && now - *before < kSameInterrupt) return;
  const bool again = std::exchange(interrupted_by_, signal_number) != 0;
  if (!again) leaving_ = MayLeave(signal_number);
  const std::string name = SignalName(signal_number);
  if (name_.empty()) {
    return End(ExitCodeForSignal(signal_number),
               "interrupted by " + name + " before anything was started");
  }
  Bound(options_.end_timeout, now);
  if (leaving_ && agent_) return Leave(/*kill_now=*/again);
  if (agent_ && agent_->started) {
    Log(again ? name + " again: killing every rank now"
              : name + ": stopping every rank of the job (again to kill them at once)");
    return Do(
        member_action::StopAgent{MakeSignalCause(pb::Cause::INTERRUPTED, 0, signal_number,
                                                 name_ + "'s command was interrupted by " + name),
                                 again});
  }
  // The job has not started on this node, so no agent reports the interrupt; this command sends it
  // to node 0.
  pb::NodeMessage message;
  message.mutable_agent_ended()->set_words("its command was interrupted by " + name);
  Do(member_action::Send{std::move(message)});
  Disconnected("interrupted", now);
}

// Clusters send SIGTERM to take a machine away, while Ctrl-C means that the user wants to end the
// job. So only SIGTERM lets a node leave.
bool MemberCore::MayLeave(int signal_number) const {
  return signal_number == SIGTERM && options_.request.min_nodes() < options_.request.max_nodes() &&
         agent_ && agent_->started && !agent_->ending && !job_ended_;
}

void MemberCore::Leave(bool kill_now) {
  Log(kill_now ? "killing this node's ranks now"
               : "SIGTERM: this node leaves the job; its ranks are stopped, and the others go on "
                 "without it (again to kill its ranks at once)");
  Do(member_action::StopAgent{
      MakeSignalCause(pb::Cause::NODE_LEFT, 0, SIGTERM,
                      name_ + " left the job: its command received SIGTERM"),
      kill_now});
}

// --- The end of the command ---

MemberActions MemberCore::OnTimer(MemberTimer timer, bool reader_makes_progress,
                                  Clock::time_point now) {
  if (ended_) return {};
  switch (timer) {
    case MemberTimer::kDial:
      Do(member_action::Dial{});
      break;
    case MemberTimer::kGoodbye:
      SayGoodbyeWhenShown(reader_makes_progress, now);
      break;
    case MemberTimer::kLimit:
      OnLimit(reader_makes_progress, now);
      break;
  }
  return Take();
}

void MemberCore::Bound(milliseconds limit, Clock::time_point now) {
  if (!std::exchange(is_bounded_, true))
    Do(member_action::SetTimer{MemberTimer::kLimit, now + limit});
}

void MemberCore::OnLimit(bool reader_makes_progress, Clock::time_point now) {
  if (!std::exchange(is_bounded_, false)) return;
  if (reader_makes_progress) return Bound(options_.end_timeout, now);
  // A node that waits for another attempt has no processes to end, so the limit does not apply.
  const bool is_end_known = is_completed_ || IsNodeZeroLost() || job_ended_ || interrupted_by_ != 0;
  if (!agent_ && !starting_ && !is_end_known) return;
  if (job_ended_) return End(job_ended_->exit_code(), SanitizeForTerminal(job_ended_->message()));
  if (interrupted_by_ == 0 && IsNodeZeroLost()) {
    node_zero_lost_ = true;
    return EndIfOver();
  }
  End(interrupted_by_ != 0 ? ExitCodeForSignal(interrupted_by_) : ToInt(ExitCode::kTimedOut),
      leaving_ ? "the processes of this node did not end in time"
               : NodeZero() + " did not report in time how the job ended");
}

// Uses the agent's report, because the agent also detects a cut cable, which closes no connection
// of this command.
bool MemberCore::IsNodeZeroLost() const {
  return outcome_ && ((outcome_->kind() == pb::Cause::NODE_LOST && outcome_->node_index() == 0) ||
                      outcome_->kind() == pb::Cause::FRONT_END_LOST);
}

void MemberCore::EndIfOver() {
  if (agent_ || starting_) return;
  if (job_ended_) {
    const int code = job_ended_->exit_code();
    return End(
        code, SanitizeForTerminal(job_ended_->message()) +
                  (code == 0 ? "" : "; exit code " + std::to_string(code) + ", see " + NodeZero()));
  }
  if (interrupted_by_ != 0 && !is_connected_) {
    return End(ExitCodeForSignal(interrupted_by_), "interrupted by " + SignalName(interrupted_by_) +
                                                       "; no processes are left on this node");
  }
  if (!node_zero_lost_) return;
  End(ToInt(ExitCode::kUnavailable),
      NodeZero() +
          " was lost: its command ended without a result; no processes are left on this node" +
          (outcome_ && outcome_->kind() != pb::Cause::NONE && !IsNodeZeroLost()
               ? "; before that: " + CauseText(*outcome_)
               : ""));
}

void MemberCore::End(int exit_code, const std::string& text) {
  if (std::exchange(ended_, true)) return;
  Log(text, exit_code == 0 ? LogLevel::kInfo : LogLevel::kError);
  Do(member_action::End{exit_code, text});
}

}  // namespace dslaunch
