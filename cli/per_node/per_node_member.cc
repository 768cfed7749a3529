#include "cli/per_node/per_node_member.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <future>
#include <random>
#include <thread>
#include <utility>

#include "base/os/socket_pair.h"
#include "cli/session/agent_call.h"
#include "cli/session/handled_signals.h"
#include "cli/session/summary_json.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kCallsEndWithin(10'000);  // limit for calls after their connection is shut
constexpr milliseconds kFlushWait(1'000);        // time for sending the last messages
// Longest random delay of a connection to node 0, in milliseconds. The delays spread the
// connections of many nodes over time.
constexpr unsigned kDialJitterMs = 100;

MemberCoreOptions CoreOptions(const MemberOptions& options) {
  MemberCoreOptions core = options;
  core.has_token = options.tls != nullptr;
  return core;
}

}  // namespace

MemberSession::Agent::~Agent() {
  if (events) std::exchange(events, nullptr)->Cancel();
  shutdown(command.get(), SHUT_RDWR);
  calls.AwaitNone(Deadline::After(kCallsEndWithin));
}

MemberSession::MemberSession(MemberOptions options, Terminal& terminal)
    : options_(std::move(options)),
      core_(CoreOptions(options_), Clock::now()),
      poster_(std::make_shared<LoopPoster>(loop_)),
      output_(loop_, terminal, options_.tags),
      signals_(loop_),
      dial_(loop_, poster_, options_.host, options_.port, options_.tls,
            [this](std::variant<UniqueFd, DialFailure> result) { OnDialed(std::move(result)); }) {}

MemberSession::~MemberSession() {
  poster_->Close();
  // The streams belong to the loop, which is destroyed before the agents, so they are released
  // here.
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
      Carry(core_.OnSignal(signal_number, Clock::now()));
      wait_for_signal();
    });
  };
  wait_for_signal();
  Carry(core_.Start());
  loop_.run();
  output_.FinishStreams();
  signals_.clear();
  ExitOnStopSignals(exit_code_);
  output_.Drain();
  socket_.reset();
  if (options_.tls) options_.tls->Flush(Deadline::After(kFlushWait));
  return exit_code_;
}

void MemberSession::Carry(MemberActions actions) {
  for (MemberAction& action : actions) {
    std::visit([this](auto& one) { Do(one); }, action);
  }
}

// --- The connection to node 0 ---

void MemberSession::OnDialed(std::variant<UniqueFd, DialFailure> result) {
  if (const auto* failure = std::get_if<DialFailure>(&result))
    return Carry(core_.OnDialed(*failure, Clock::now()));
  socket_ = std::make_unique<FramedSocket>(
      loop_, std::move(std::get<UniqueFd>(result)),
      [this](std::string_view bytes) { OnMessage(bytes); },
      [this](const std::string& why) { Carry(core_.OnClosed(why, Clock::now())); },
      kMaxNodeMessageBytes);
  Carry(core_.OnDialed(std::nullopt, Clock::now()));
}

void MemberSession::OnMessage(std::string_view bytes) {
  pb::NodeMessage message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Carry(core_.OnClosed("it does not use dslaunch's protocol", Clock::now()));
  if (!message.has_stream()) return Carry(core_.OnMessage(message, Clock::now()));
  if (agent_) agent_->stream->Deliver(std::move(*message.mutable_stream()));
}

void MemberSession::Do(const member_action::Send& send) {
  if (socket_) (void)socket_->Send(send.message);  // a failure is reported by OnClosed
}

// --- The agent of this node ---

void MemberSession::Do(const member_action::StartAgent& start) {
  name_ = start.name;
  std::thread([this, poster = poster_, start_agent = options_.start_agent, own = options_.own,
               name = name_, timeout = options_.agent_timeout] {
    Result<std::unique_ptr<Agent>> agent =
        MakeAgent(start_agent, own, name, Deadline::After(timeout));
    poster->Post([this, agent = std::move(agent)]() mutable { OnAgent(std::move(agent)); });
  }).detach();
}

// Runs on a separate thread. The agent receives the program that may run on this node before any
// message of node 0 reaches it.
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
  if (!made.ok()) return Carry(core_.OnAgentStarted(made.error(), Clock::now()));
  agent_ = *std::move(made);
  agent_->stream = std::make_shared<CarriedStream>(
      loop_, agent_->link->TakeFd(), [this, agent = agent_.get()](const pb::NodeMessage& piece) {
        if (socket_) (void)socket_->Send(piece);
        if (piece.has_stream_end() && agent == agent_.get())
          Carry(core_.OnAgentStreamEnd(Clock::now()));
      });
  Carry(core_.OnAgentStarted({}, Clock::now()));
}

void MemberSession::Do(const member_action::ServeAgent&) {
  Agent* const agent = agent_.get();
  auto request = std::make_shared<pb::AttachRequest>();  // read by gRPC when the call starts
  *request->mutable_shown() = options_.shown.ToProto();
  EventReader::Handlers handlers;
  handlers.event = [this](const pb::NodeEvent& event) {
    Carry(core_.OnEvent(event, Clock::now()));
  };
  handlers.log = [this](const pb::LogChunk& chunk, std::function<void()> go_on) {
    if (chunk.data().empty() && !chunk.stands_still()) return go_on();
    output_.Log(name_, chunk, std::move(go_on));
  };
  handlers.ended = [this, agent] {
    if (agent == agent_.get()) core_.OnShown();
  };
  agent->events = EventReader::Start(poster_, std::move(handlers),
                                     [agent, request, counted = agent->calls.Begin()](
                                         grpc::ClientContext* context, EventReader* reader) {
                                       agent->stub->async()->Attach(context, request.get(), reader);
                                     });
  agent->stream->Start();
}

void MemberSession::Do(const member_action::RenewLease&) {
  auto call = std::make_shared<AgentCall<pb::RenewRequest, pb::RenewReply>>(kCallTimeout,
                                                                            agent_->calls.Begin());
  agent_->stub->async()->Renew(&call->context, &call->request, &call->reply,
                               [call](const grpc::Status&) {});
}

void MemberSession::Do(const member_action::SignalRanks& signal) {
  auto call = std::make_shared<AgentCall<pb::SignalRequest>>(kCallTimeout, agent_->calls.Begin());
  call->request.set_signal(signal.signal_number);
  agent_->stub->async()->Signal(&call->context, &call->request, &call->reply,
                                [call](const grpc::Status&) {});
}

void MemberSession::Do(const member_action::StopAgent& stop) {
  SendStop(*agent_->stub, stop.cause, stop.kill_now, agent_->calls.Begin());
}

void MemberSession::Do(const member_action::AwaitAgentEnd& await) {
  std::thread([this, poster = poster_, link = agent_->link, name = name_,
               deadline = Deadline::After(await.limit)]() mutable {
    const bool ended = link->WaitEnd(deadline);
    std::string words = ended ? link->StderrTail() : name + "'s supervisor did not end in time";
    link.reset();
    while (!words.empty() && words.back() == '\n') words.pop_back();
    poster->Post([this, words = std::move(words)] {
      agent_->stream->Close();
      past_.push_back(std::move(agent_));
      Carry(core_.OnAgentEnded(words, Clock::now()));
    });
  }).detach();
}

// --- Timers and the end of the command ---

void MemberSession::Do(const member_action::SetTimer& set) {
  asio::steady_timer& timer = timers_.try_emplace(set.timer, loop_).first->second;
  const bool is_dial = set.timer == MemberTimer::kDial;
  timer.expires_at(set.when + milliseconds(is_dial ? std::random_device()() % kDialJitterMs : 0));
  timer.async_wait([this, which = set.timer](const asio::error_code& error) {
    if (!error) Carry(core_.OnTimer(which, output_.SlowReaderMakesProgress(), Clock::now()));
  });
}

void MemberSession::Do(const member_action::End& end) {
  exit_code_ = end.exit_code;
  if (end.exit_code != 0 && end.exit_code != ToInt(ExitCode::kPreempted)) {
    JobSummary summary;
    summary.cause.kind = EndCause::Kind::kInternal;
    summary.cause.message = end.text;
    summary.exit_code = end.exit_code;
    const Result<void> written = WriteErrorFile(options_.error_file, summary);
    if (!written.ok()) Do(member_action::Log{LogLevel::kWarning, written.error().message});
  }
  loop_.stop();
}

}  // namespace dslaunch
