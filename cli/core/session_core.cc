#include "cli/core/session_core.h"

#include <signal.h>

#include <utility>
#include <variant>

#include "base/overloaded.h"
#include "cli/core/event_text.h"

namespace dslaunch {
SessionCore::SessionCore(const SessionOptions& options, Clock::time_point now, PlantedBug bug)
    : options_(options),
      job_state_(options.plan, options.job.policy()),
      out_(options),
      requests_(options),
      nodes_(options, requests_, out_),
      start_(options, now, requests_, nodes_, job_state_, out_),
      end_(options, requests_, nodes_, job_state_, out_),
      contact_(options, nodes_, job_state_, end_, out_),
      failover_(options, requests_, nodes_, job_state_, contact_, out_, bug),
      run_(options, requests_, nodes_, job_state_, end_, contact_, failover_, out_),
      goodput_(options.plan, now) {}

SessionCore::Actions SessionCore::Take(Clock::time_point now) {
  Settle(now);
  return std::exchange(actions_, {});
}

void SessionCore::Settle(Clock::time_point now) {
  for (SessionOutbox::Step& step : out_.Take()) {
    if (auto* action = std::get_if<SessionAction>(&step)) {
      actions_.push_back(std::move(*action));
    } else {
      CarryOut(std::get<SessionRequest>(step), now);
      Settle(now);
    }
  }
}

void SessionCore::CarryOut(const SessionRequest& request, Clock::time_point now) {
  std::visit(
      Overloaded{
          [&](const session_request::BeginWatch&) { contact_.SetWatchTimer(now); },
          [&](const session_request::LoseAtStart& lose) { run_.LoseAtStart(lose.node, lose.why); },
          [&](const session_request::StopJob& stop) {
            end_.StopConnecting();
            nodes_.Stop(stop.cause, /*kill_now=*/false, stop.except);
            end_.Bound(now);
          },
          [&](const session_request::Reconnect& reconnect) { run_.Reconnect(reconnect.node); },
          [&](const session_request::StopConnecting&) { end_.StopConnecting(); },
          [&](const session_request::BoundEnd&) { end_.Bound(now); },
          [&](const session_request::GiveUpWaiting&) { end_.GiveUpWaiting(); },
          [&](const session_request::Keep& keep) { run_.OnKept(keep.node); },
          [&](const session_request::Finish&) { end_.Finish(); }},
      request);
}

// --- The start of the session ---

SessionCore::Actions SessionCore::Start(Clock::time_point now) {
  start_.Start();
  contact_.SetRenewTimer(now);
  return Take(now);
}

SessionCore::Actions SessionCore::OnCannotStart(Error error, Clock::time_point now) {
  if (end_.finished()) return {};
  start_.OnCannotStart(std::move(error));
  return Take(now);
}

SessionCore::Actions SessionCore::OnConnected(size_t index, Result<NodeAddresses> addresses,
                                              Clock::time_point now) {
  if (end_.finished()) return {};
  if (!requests_.running()) {
    start_.OnConnected(index, std::move(addresses), now);
  } else if (run_.OnConnected(index, std::move(addresses))) {
    contact_.OnReached(index);
    failover_.OnReached(index);
  }
  return Take(now);
}

SessionCore::Actions SessionCore::OnPrepared(size_t index, Result<pb::PreparedNode> info,
                                             Clock::time_point now) {
  if (end_.finished()) return {};
  nodes_.OnPrepareAnswered(index);
  if (!requests_.running()) {
    start_.OnPrepared(index, std::move(info), now);
  } else if (run_.OnPrepared(index, std::move(info))) {
    contact_.OnRunAgain(index);
    failover_.StopAwaiting(index);
  }
  return Take(now);
}

// --- While the job runs ---

SessionCore::Actions SessionCore::OnEvent(size_t index, const pb::NodeEvent& event,
                                          Clock::time_point now) {
  if (end_.finished()) return {};
  if (out_.ShouldLog(LogLevel::kDebug)) {
    if (const std::string text = EventText(nodes_.names()[index], event); !text.empty())
      out_.Log(LogLevel::kDebug, text);
  }
  for (const std::string& line : job_state_.OnEvent(index, event))
    out_.Log(LogLevel::kWarning, line);
  run_.OnEvent(index, event, now);
  goodput_.OnEvent(index, event, now);
  if (event.has_rendezvous_lost()) failover_.OnLost(index, event.rendezvous_lost(), now);
  if (event.has_running() && options_.job.detachable() && !job_state_.ending()) {
    end_.Detach();
  } else if (job_state_.ending()) {
    end_.StopConnecting();
    end_.Bound(now);
  } else if (event.has_restarting() || event.has_started()) {
    run_.AbandonGivenUp(now);
  }
  return Take(now);
}

SessionCore::Actions SessionCore::OnStreamEnd(size_t index, Clock::time_point now) {
  if (end_.finished() || end_.detaching()) return {};
  contact_.OnHolding(index);
  nodes_.OnStreamEnd(index);
  failover_.StopAwaiting(index);
  if (run_.OnStreamEnd(index)) end_.OnNodeEnded(now);
  return Take(now);
}

SessionCore::Actions SessionCore::OnBrokenRules(size_t index, const std::string& what,
                                                Clock::time_point now) {
  if (end_.finished()) return {};
  end_.CancelDetach();
  run_.OnBrokenRules(index, what);
  return Take(now);
}

SessionCore::Actions SessionCore::OnLinkEnded(size_t index, bool supervisor_ended,
                                              const std::string& last_output,
                                              Clock::time_point now) {
  if (end_.finished()) return {};
  run_.OnLinkEnded(index, supervisor_ended, last_output);
  end_.OnNodeEnded(now);
  return Take(now);
}

SessionCore::Actions SessionCore::OnFailoverAnswered(size_t index, size_t host,
                                                     const Result<pb::RendezvousOpened>& opened,
                                                     Clock::time_point now) {
  if (end_.finished()) return {};
  failover_.OnAnswered(index, host, opened);
  return Take(now);
}

SessionCore::Actions SessionCore::OnRenewed(size_t index, std::optional<uint64_t> clock_us,
                                            Clock::time_point now) {
  if (end_.finished()) return {};
  contact_.OnRenewed(index, clock_us, now);
  return Take(now);
}

SessionCore::Actions SessionCore::OnDetached(const Result<void>& result, Clock::time_point now) {
  if (end_.finished()) return {};
  end_.OnDetached(result, now);
  return Take(now);
}

SessionCore::Actions SessionCore::OnSignal(int signal_number, Clock::time_point now) {
  if (end_.finished()) return {};
  if (signal_number == SIGTSTP) {
    out_.Log(
        LogLevel::kError,
        "cannot be suspended, because the ranks on the nodes would continue; Ctrl-C ends the job");
  } else if (signal_number == SIGUSR1 || signal_number == SIGUSR2) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (requests_.running() && nodes_[i].is_seen()) out_.Do(action::Signal{i, signal_number});
    }
  } else if (signal_number == SIGQUIT && requests_.running() && !end_.was_interrupted()) {
    action::ShowStacks show;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].is_seen()) show.nodes.push_back(i);
    }
    out_.Do(std::move(show));
  } else {
    end_.OnInterrupt(signal_number, now);
  }
  return Take(now);
}

// --- Timers ---

SessionCore::Actions SessionCore::OnTimer(SessionTimer timer,
                                          std::optional<Clock::duration> reader_still_for,
                                          Clock::time_point now) {
  if (end_.finished()) return {};
  switch (timer) {
    case SessionTimer::kConnect:
      start_.OnConnectTimer();
      break;
    case SessionTimer::kRenew:
      contact_.OnRenewTimer(now);
      break;
    case SessionTimer::kWatch:
      Watch(reader_still_for, now);
      break;
    case SessionTimer::kTeardown:
      end_.OnTimer(reader_still_for, now);
      break;
  }
  return Take(now);
}

void SessionCore::Watch(std::optional<Clock::duration> reader_still_for, Clock::time_point now) {
  end_.OnReader(reader_still_for);
  contact_.OnWatchTimer(now);
  Settle(now);
  contact_.WatchSilence(now);
  Settle(now);
  if (end_.finished()) return;
  run_.WatchUnevenEnd(now);
  failover_.Check(now);
  if (!job_state_.ending()) run_.AbandonGivenUp(now);
  contact_.SetWatchTimer(now);
}

// --- The end of the session ---

SessionEnd SessionCore::End(const std::string& cancelled) const {
  if (end_.detached()) return {.kind = SessionEnd::Kind::kDetached};
  if (start_.has_failed()) return start_.End();
  JobInfo info = job_state_.Info();
  info.cancelled = cancelled;
  if (requests_.running()) return {.kind = SessionEnd::Kind::kEnded, .job = DecideJobEnd(info)};
  SessionEnd end{.kind = SessionEnd::Kind::kInterrupted};
  end.job.cause = *info.interrupted;
  end.lines = {end.job.cause.message() + " before anything was started"};
  end.job.exit_code = end.job.cause.exit_code();
  return end;
}

}  // namespace dslaunch
