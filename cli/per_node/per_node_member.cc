#include "cli/per_node/per_node_member.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/connect.hpp>
#include <csignal>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "base/count.h"
#include "base/os/socket_pair.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "cli/session/agent_call.h"
#include "cli/session/handled_signals.h"
#include "cli/session/summary_json.h"
#include "net/addresses.h"
#include "net/connection.h"
#include "proto/wire/cause.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kDialTimeout(10'000);
constexpr milliseconds kCallsEndWithin(10'000);  // once their connection is shut
constexpr milliseconds kMaxWait(2'000);          // between two tries
constexpr milliseconds kSameInterrupt(100);
constexpr milliseconds kLookAgain(20);         // whether all output is shown
constexpr milliseconds kLostNode0Wait(5'000);  // of a node 0 that seems to be lost
constexpr milliseconds kFlushWait(1'000);      // for the last messages to be sent
constexpr milliseconds kStartKnownWithin(1'000);
constexpr milliseconds kShowAtLeast(3'000);  // what the ranks wrote last, once the job has ended

}  // namespace

MemberSession::Agent::~Agent() {
  if (events) std::exchange(events, nullptr)->Cancel();
  shutdown(command.get(), SHUT_RDWR);
  calls.AwaitNone(Deadline::After(kCallsEndWithin));
}

MemberSession::MemberSession(MemberOptions options, Terminal& terminal)
    : options_(std::move(options)),
      join_deadline_(Deadline::After(options_.join_timeout)),
      poster_(std::make_shared<LoopPoster>(loop_)),
      output_(loop_, terminal, options_.tags),
      signals_(loop_),
      dialed_(loop_),
      dial_timer_(loop_),
      goodbye_timer_(loop_),
      limit_(loop_) {}

MemberSession::~MemberSession() {
  poster_->Close();
  // The streams are of the loop, which is destroyed before the agents.
  for (const auto& past : past_) past->stream.reset();
  if (!agent_) return;
  agent_->stream.reset();
  agent_->link->LeaveRunning();
}

int MemberSession::Run() {
  for (const int signal_number : HandledSignals()) signals_.add(signal_number);
  const std::function<void()> wait_for_signal = [&] {
    signals_.async_wait([&](const asio::error_code& error, int signal_number) {
      if (error) return;
      OnSignal(signal_number);
      wait_for_signal();
    });
  };
  wait_for_signal();
  Dial();
  loop_.run();
  output_.FinishStreams();
  signals_.clear();
  ExitOnStopSignals(exit_code_);
  output_.Drain();
  socket_.reset();
  if (options_.tls) options_.tls->Flush(Deadline::After(kFlushWait));
  return exit_code_;
}

std::string MemberSession::NodeZero() const {
  return "node 0 (" + (front_end_.empty() ? "" : front_end_ + ", ") +
         JoinHostPort(options_.host, options_.port) + ")";
}

// --- Reaching node 0 ---

void MemberSession::Dial() {
  received_ = false;
  const uint64_t dial = ++dial_;
  dial_timer_.expires_after(kDialTimeout);
  dial_timer_.async_wait([this, dial](const asio::error_code& error) {
    if (error || dial != dial_) return;
    if (!dialed_.is_open()) return Reconnect("cannot resolve the name: no answer");
    asio::error_code ignored;
    dialed_.close(ignored);
  });
  // By a thread of our own: asio's resolver would keep its loop from being destroyed until a name
  // server answers.
  std::thread([this, poster = poster_, dial, host = options_.host, port = options_.port] {
    asio::io_context unused;
    asio::error_code error;
    const Endpoints found =
        asio::ip::tcp::resolver(unused).resolve(host, std::to_string(port), error);
    poster->Post([this, dial, error, found] {
      if (dial == dial_) OnResolved(error, found);
    });
  }).detach();
}

void MemberSession::OnResolved(const asio::error_code& error, const Endpoints& found) {
  if (error) return Reconnect("cannot resolve the name: " + error.message());
  asio::async_connect(
      dialed_, found,
      [this](const asio::error_code& failed, const asio::ip::tcp::endpoint&) { OnDialed(failed); });
}

void MemberSession::OnDialed(const asio::error_code& error) {
  ++dial_;
  dial_timer_.cancel();
  if (error)
    return Reconnect(error == asio::error::operation_aborted ? "no answer" : error.message());
  UniqueFd fd(dialed_.release());
  SetConnectionOptions(fd.get());
  if (!options_.tls) return Open(std::move(fd));
  options_.tls->Wrap(
      TokenTls::Role::kClient, std::move(fd), kDialTimeout,
      [this, poster = poster_](Result<UniqueFd> plain) {
        poster->Post([this, plain = std::move(plain)]() mutable { OnWrapped(std::move(plain)); });
      });
}

void MemberSession::OnWrapped(Result<UniqueFd> plain) {
  if (plain.ok()) return Open(*std::move(plain));
  const Error& error = plain.error();
  if (error.code != ExitCode::kNoPermission) {
    return Reconnect(error.message + "; if it has no --rdzv_token_file, leave it out here");
  }
  End(ToInt(error.code),
      NodeZero() + ": " + error.message + "; give the commands of all nodes the same token");
}

void MemberSession::Open(UniqueFd fd) {
  socket_ = std::make_unique<FramedSocket>(
      loop_, std::move(fd), [this](std::string_view bytes) { OnMessage(bytes); },
      [this](const std::string& why) { OnClosed(why); }, kMaxNodeMessageBytes);
  pb::NodeMessage message;
  *message.mutable_request() = options_.request;
  SendToNodeZero(message);
}

void MemberSession::Reconnect(const std::string& why) {
  ++dial_;
  dial_timer_.cancel();
  if (join_deadline_.Expired()) {
    return End(ToInt(ExitCode::kTimedOut),
               NodeZero() + " was not reachable within " + Seconds(options_.join_timeout.count()) +
                   " (" + why + "); start its command there, and check address, port and firewall");
  }
  const std::string text = "waiting for " + NodeZero() + ": " + why;
  if (std::exchange(last_logged_, text) != text) Log(text);
  // Many nodes wait for one: they must not all come at once.
  const auto jitter = milliseconds(std::random_device()() % 100);
  dial_timer_.expires_after(std::min(next_wait_ + jitter, join_deadline_.Left() + jitter));
  next_wait_ = std::min(next_wait_ * 2, kMaxWait);
  dial_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) Dial();
  });
}

void MemberSession::SendToNodeZero(const pb::NodeMessage& message) {
  if (socket_) (void)socket_->Send(message);  // OnClosed follows where it fails
}

void MemberSession::OnMessage(std::string_view bytes) {
  pb::NodeMessage message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return OnClosed("it does not use dslaunch's protocol");
  received_ = true;
  switch (message.message_case()) {
    case pb::NodeMessage::kRefused:
      return End(FailureCode(message.refused().exit_code(), ExitCode::kUnavailable),
                 NodeZero() + " says: " + SanitizeForTerminal(message.refused().message()));
    case pb::NodeMessage::kAwaited: {
      const uint32_t missing = message.awaited().wanted() - message.awaited().present();
      if (missing > 0 && !std::exchange(wait_logged_, true))
        Log(NodeZero() + " is connected; waiting for " + Count(missing, "more node"));
      break;
    }
    case pb::NodeMessage::kAccepted:
      if (!agent_ && !starting_) StartAgent(message.accepted());
      break;
    case pb::NodeMessage::kStream:
      if (agent_) agent_->stream->Deliver(std::move(*message.mutable_stream()));
      break;
    case pb::NodeMessage::kStreamEnd:
      if (!agent_) break;
      agent_->goodbye_at = Clock::now();
      agent_->is_shown = agent_->is_shown || message.stream_end().abort();
      SayGoodbyeWhenShown();
      break;
    case pb::NodeMessage::kJobEnded:
      job_ended_ = message.job_ended();
      if (const int code = job_ended_->exit_code(); code != 0)
        job_ended_->set_exit_code(FailureCode(code, ExitCode::kInternal));
      ArmLimit(options_.end_timeout);
      EndIfOver();
      break;
    default:
      break;
  }
}

void MemberSession::OnClosed(const std::string& why) {
  socket_.reset();
  if (job_ended_) return;
  if (!name_.empty()) {
    node_zero_lost_ = true;
    if (agent_) {
      agent_->stream->Close();
      AwaitAgentEnd();
    }
    return EndIfOver();
  }
  const bool is_end = why.starts_with("end of file") || why.starts_with("read: ");
  if (received_ || is_end) {
    return Reconnect(received_      ? "it disconnected"
                     : options_.tls ? "it closed the connection"
                                    : "it closed the connection; if it has a --rdzv_token_file, "
                                      "give it here too");
  }
  End(ToInt(ExitCode::kUnavailable),
      "what listens at " + JoinHostPort(options_.host, options_.port) +
          " is not dslaunch's node 0 (" + why + "); give the address and a free port of node 0" +
          (options_.tls ? "" : ", and its --rdzv_token_file if it has one"));
}

// --- The agent ---

void MemberSession::StartAgent(const pb::AdmissionAccepted& accepted) {
  name_ = SanitizeForTerminal(accepted.name());
  front_end_ = SanitizeForTerminal(accepted.front_end());
  starting_ = true;
  std::thread([this, poster = poster_, start_agent = options_.start_agent, own = options_.own,
               name = name_, timeout = options_.agent_timeout] {
    Result<std::unique_ptr<Agent>> agent =
        MakeAgent(start_agent, own, name, Deadline::After(timeout));
    poster->Post([this, agent = std::move(agent)]() mutable { OnAgent(std::move(agent)); });
  }).detach();
}

// On a thread of its own. The agent learns what may run here before any message of node 0's reaches
// it.
Result<std::unique_ptr<MemberSession::Agent>> MemberSession::MakeAgent(
    const StartAgentFn& start_agent, const pb::OwnPart& own, const std::string& name,
    Deadline deadline) {
  DSL_TRY_ASSIGN(SocketPair pair, MakeSocketPair());
  auto agent = std::make_unique<Agent>();
  DSL_TRY_ASSIGN(agent->link, start_agent({name, "localhost", 0, ""}, pair.theirs.get(), deadline));
  pair.theirs.Reset();
  agent->command.Reset(fcntl(pair.ours.get(), F_DUPFD_CLOEXEC, 0));
  agent->stub = pb::Agent::NewStub(ChannelFromFd("command", std::move(pair.ours)));
  auto call = std::make_shared<AgentCall<pb::OwnPart>>(deadline.Left(), agent->calls.Begin());
  call->request = own;
  auto done = std::make_shared<std::promise<grpc::Status>>();
  std::future<grpc::Status> answer = done->get_future();
  agent->stub->async()->Own(&call->context, &call->request, &call->reply,
                            [call, done](const grpc::Status& status) { done->set_value(status); });
  const bool in_time = answer.wait_until(deadline.when()) == std::future_status::ready;
  const grpc::Status status =
      in_time ? answer.get() : grpc::Status(grpc::DEADLINE_EXCEEDED, "no answer");
  if (!status.ok()) {
    return Error{ExitCode::kUnavailable,
                 name + ": cannot send the job to its agent: " + status.error_message()};
  }
  return agent;
}

void MemberSession::OnAgent(Result<std::unique_ptr<Agent>> made) {
  starting_ = false;
  pb::NodeMessage message;
  if (!made.ok()) {
    Log(made.error().message);
    message.mutable_agent_failed()->set_exit_code(ToInt(made.error().code));
    message.mutable_agent_failed()->set_message(made.error().message);
    SendToNodeZero(message);
    return EndIfOver();
  }
  agent_ = *std::move(made);
  agent_->stream = std::make_shared<CarriedStream>(
      loop_, agent_->link->TakeFd(), [this, agent = agent_.get()](const pb::NodeMessage& piece) {
        SendToNodeZero(piece);
        if (piece.has_stream_end() && agent == agent_.get()) AwaitAgentEnd();
      });
  if (!socket_ || interrupted_by_ != 0) {  // while the agent was started
    agent_->stream->Close();
    return AwaitAgentEnd();
  }
  ShowEvents();
  message.mutable_agent_up();
  SendToNodeZero(message);
  agent_->stream->Start();
}

void MemberSession::ShowEvents() {
  Agent* const agent = agent_.get();
  auto request = std::make_shared<pb::AttachRequest>();  // gRPC reads it when the call starts
  *request->mutable_shown() = options_.shown.ToProto();
  EventReader::Handlers handlers;
  handlers.event = [this](const pb::NodeEvent& event) { OnEvent(event); };
  handlers.log = [this](const pb::LogChunk& chunk, std::function<void()> go_on) {
    if (chunk.data().empty() && !chunk.stands_still()) return go_on();
    output_.Log(name_, chunk, std::move(go_on));
  };
  handlers.ended = [agent] { agent->is_shown = true; };
  agent->events = EventReader::Start(poster_, std::move(handlers),
                                     [agent, request, counted = agent->calls.Begin()](
                                         grpc::ClientContext* context, EventReader* reader) {
                                       agent->stub->async()->Attach(context, request.get(), reader);
                                     });
}

void MemberSession::OnEvent(const pb::NodeEvent& event) {
  switch (event.event_case()) {
    case pb::NodeEvent::kStarted:
      if (agent_) agent_->started = true;
      num_ranks_ = event.started().pids_size();
      num_saved_ = 0;
      output_.SetShownRanks(static_cast<size_t>(event.started().pids_size()));
      Log(StartedLine(event.started()));
      break;
    case pb::NodeEvent::kNotice:
      Log(LogLevel::kWarning, event.notice().message());
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
      AwaitLostNodeZero();
      break;
    case pb::NodeEvent::kDone:
      if (!agent_) break;
      agent_->is_shown = true;
      if (!leaving_) break;
      agent_->stream->Close();
      AwaitAgentEnd();
      break;
    default:
      break;
  }
}

std::string MemberSession::StartedLine(const pb::Started& started) const {
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

// The agent ends when node 0 no longer needs it, but not before its ranks' output is on this
// terminal. Its lease is renewed meanwhile.
void MemberSession::SayGoodbyeWhenShown() {
  if (!agent_ || agent_->ending) return;
  // That ranks were started may be known a moment after the end of a short job.
  const Clock::duration waited = Clock::now() - agent_->goodbye_at;
  const bool need_not_wait = agent_->is_shown || (!agent_->started && waited >= kStartKnownWithin);
  if (need_not_wait || (waited >= kShowAtLeast && !output_.SlowReaderMakesProgress())) {
    if (!need_not_wait) Log("the end of the output was not shown; it is in the log files");
    agent_->stream->DeliverEnd();
    return AwaitAgentEnd();
  }
  auto call = std::make_shared<AgentCall<pb::RenewRequest, pb::RenewReply>>(kCallTimeout,
                                                                            agent_->calls.Begin());
  agent_->stub->async()->Renew(&call->context, &call->request, &call->reply,
                               [call](const grpc::Status&) {});
  goodbye_timer_.expires_after(kLookAgain);
  goodbye_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) SayGoodbyeWhenShown();
  });
}

void MemberSession::AwaitAgentEnd() {
  if (!agent_ || std::exchange(agent_->ending, true)) return;
  ArmLimit(options_.end_timeout);
  std::thread([this, poster = poster_, link = agent_->link, name = name_,
               deadline = Deadline::After(options_.end_timeout)]() mutable {
    const bool ended = link->WaitEnd(deadline);
    std::string words = ended ? link->StderrTail() : name + "'s supervisor did not end in time";
    link.reset();
    while (!words.empty() && words.back() == '\n') words.pop_back();
    poster->Post([this, words = std::move(words)] { OnAgentEnded(words); });
  }).detach();
}

void MemberSession::OnAgentEnded(const std::string& words) {
  if (!words.empty()) Log(LogLevel::kWarning, words);
  agent_->stream->Close();
  past_.push_back(std::move(agent_));
  if (leaving_) return EndAfterLeave();
  pb::NodeMessage message;
  message.mutable_agent_ended()->set_words(words);
  SendToNodeZero(message);
  AwaitLostNodeZero();
  EndIfOver();
}

// Once the agent has ended and has said so, whichever came first.
void MemberSession::AwaitLostNodeZero() {
  if (agent_ || starting_ || !IsNodeZeroLost()) return;
  limit_.expires_at(Clock::time_point());
  ArmLimit(kLostNode0Wait);
}

// --- The end ---

void MemberSession::OnSignal(int signal_number) {
  if (signal_number == SIGTSTP)
    return Log("cannot be suspended, because the ranks would continue; Ctrl-C ends the job");
  if (signal_number != SIGUSR1 && signal_number != SIGUSR2) return Interrupt(signal_number);
  if (!agent_) return;
  auto call = std::make_shared<AgentCall<pb::SignalRequest>>(kCallTimeout, agent_->calls.Begin());
  call->request.set_signal(signal_number);
  agent_->stub->async()->Signal(&call->context, &call->request, &call->reply,
                                [call](const grpc::Status&) {});
}

void MemberSession::Interrupt(int signal_number) {
  // timeout(1) and some job systems signal the process and its group: that is one request, not two.
  const Clock::time_point now = Clock::now();
  if (now - std::exchange(interrupted_at_, now) < kSameInterrupt) return;
  const bool again = std::exchange(interrupted_by_, signal_number) != 0;
  if (!again) leaving_ = MayLeave(signal_number);
  const std::string name = SignalName(signal_number);
  if (name_.empty()) {
    return End(ExitCodeForSignal(signal_number),
               "interrupted by " + name + " before anything was started");
  }
  ArmLimit(options_.end_timeout);
  if (leaving_ && agent_) return Leave(/*kill_now=*/again);
  if (agent_ && agent_->started) {
    Log(again ? name + " again: killing every rank now"
              : name + ": stopping every rank of the job (again to kill them at once)");
    pb::Cause cause = MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted,
                                name_ + "'s command was interrupted by " + name);
    cause.set_exit_code(ExitCodeForSignal(signal_number));
    cause.set_signal(signal_number);
    return SendStop(*agent_->stub, cause, again, agent_->calls.Begin());
  }
  // The job has not started here yet: this command tells node 0 why it cannot.
  pb::NodeMessage message;
  message.mutable_agent_ended()->set_words("its command was interrupted by " + name);
  SendToNodeZero(message);
  OnClosed("interrupted");
}

// SIGTERM is how a cluster takes a machine away; Ctrl-C is a user who wants the job to end.
bool MemberSession::MayLeave(int signal_number) const {
  return signal_number == SIGTERM && options_.request.min_nodes() < options_.request.max_nodes() &&
         agent_ && agent_->started && !agent_->ending && !job_ended_;
}

void MemberSession::Leave(bool kill_now) {
  Log(kill_now ? "killing this node's ranks now"
               : "SIGTERM: this node leaves the job; its ranks are stopped, and the others go on "
                 "without it (again to kill its ranks at once)");
  pb::Cause cause = MakeCause(pb::Cause::NODE_LEFT, 0, ExitCode::kInterrupted,
                              name_ + " left the job: its command received SIGTERM");
  cause.set_exit_code(ExitCodeForSignal(SIGTERM));
  cause.set_signal(SIGTERM);
  SendStop(*agent_->stub, cause, kill_now, agent_->calls.Begin());
}

void MemberSession::EndAfterLeave() {
  const bool saved = num_ranks_ > 0 && num_saved_ == num_ranks_;
  End(saved ? ToInt(ExitCode::kPreempted) : ExitCodeForSignal(SIGTERM),
      std::string("left the job") + (saved ? ": every rank of this node has saved its state" : "") +
          "; no processes are left on this node");
}

void MemberSession::ArmLimit(milliseconds limit) {
  if (limit_.expiry() != Clock::time_point()) return;
  limit_.expires_after(limit);
  limit_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    limit_.expires_at(Clock::time_point());
    if (output_.SlowReaderMakesProgress()) return ArmLimit(options_.end_timeout);
    // A node that waits for another attempt has nothing to end.
    if (!agent_ && !starting_ && !outcome_ && !job_ended_ && interrupted_by_ == 0) return;
    if (job_ended_) return End(job_ended_->exit_code(), SanitizeForTerminal(job_ended_->message()));
    if (interrupted_by_ == 0 && IsNodeZeroLost()) {
      node_zero_lost_ = true;
      return EndIfOver();
    }
    End(interrupted_by_ != 0 ? ExitCodeForSignal(interrupted_by_) : ToInt(ExitCode::kTimedOut),
        leaving_ ? "the processes of this node did not end in time"
                 : NodeZero() + " did not report in time how the job ended");
  });
}

// As this node's agent reports: it notices a cut cable, which closes no connection of this command.
bool MemberSession::IsNodeZeroLost() const {
  return outcome_ && ((outcome_->kind() == pb::Cause::NODE_LOST && outcome_->node_index() == 0) ||
                      outcome_->kind() == pb::Cause::FRONT_END_LOST);
}

void MemberSession::EndIfOver() {
  if (agent_ || starting_) return;
  if (job_ended_) {
    const int code = job_ended_->exit_code();
    return End(
        code, SanitizeForTerminal(job_ended_->message()) +
                  (code == 0 ? "" : "; exit code " + std::to_string(code) + ", see " + NodeZero()));
  }
  if (interrupted_by_ != 0 && !socket_) {
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

void MemberSession::End(int exit_code, const std::string& words) {
  if (loop_.stopped()) return;
  exit_code_ = exit_code;
  Log(exit_code == 0 ? LogLevel::kInfo : LogLevel::kError, words);
  if (exit_code != 0 && exit_code != ToInt(ExitCode::kPreempted)) {
    JobSummary summary;
    summary.cause.kind = EndCause::Kind::kInternal;
    summary.cause.message = words;
    summary.exit_code = exit_code;
    const Result<void> written = WriteErrorFile(options_.error_file, summary);
    if (!written.ok()) Log(LogLevel::kWarning, written.error().message);
  }
  loop_.stop();
}

}  // namespace dslaunch
