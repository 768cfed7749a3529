#include "cli/session/node_client.h"

#include <utility>

#include "base/os/start_thread.h"
#include "cli/session/agent_call.h"
#include "cli/session/copy_call.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kWatchdogSlack(2'000);
constexpr milliseconds kCallsEndWithin(10'000);  // time for pending calls to end after a shutdown

Error ToError(const pb::Failure& failure) {
  return {static_cast<ExitCode>(failure.exit_code()), failure.message()};
}

Error BrokeRules(const std::string& node, const Result<void>& checked) {
  return {checked.error().code, node + ": its agent sent " + checked.error().message};
}

}  // namespace

NodeClient::NodeClient(asio::io_context& loop, std::shared_ptr<LoopPoster> poster, std::string name,
                       std::unique_ptr<NodeLink> link, milliseconds silent_after)
    : poster_(std::move(poster)), name_(std::move(name)), link_(std::move(link)), watchdog_(loop) {
  HeldStream stream = link_->TakeStream();
  stream_ = std::move(stream.handle);
  stub_ = pb::Agent::NewStub(ChannelFromFd(name_, std::move(stream.fd), silent_after));
}

NodeClient::~NodeClient() {
  if (reader_) std::exchange(reader_, nullptr)->Cancel();
  stream_.Shut();
  calls_.AwaitNone(Deadline::After(kCallsEndWithin));
}

void NodeClient::Prepare(pb::PrepareRequest request,
                         std::function<void(Result<pb::PreparedNode>)> then) {
  watchdog_.expires_after(kPrepareTimeout + kWatchdogSlack);
  watchdog_.async_wait([this](const asio::error_code& error) {
    if (!error) Abort("the agent did not answer");
  });
  auto call = std::make_shared<AgentCall<pb::PrepareRequest, pb::PrepareReply>>(kPrepareTimeout,
                                                                                calls_.Begin());
  call->request = std::move(request);
  stub_->async()->Prepare(
      &call->context, &call->request, &call->reply,
      [this, call, then = std::move(then), poster = poster_](const grpc::Status& status) {
        poster->Post([this, then, status, reply = std::move(call->reply)]() mutable {
          watchdog_.cancel();
          if (!status.ok()) {
            const std::string words = LastOutput();
            return then(Error{ExitCode::kUnavailable,
                              name_ + ": the connection to its agent broke before the start (" +
                                  status.error_message() + ")" +
                                  (words.empty() ? "" : ": " + words)});
          }
          if (const Result<void> checked = CheckPrepareReply(reply); !checked.ok())
            return then(BrokeRules(name_, checked));
          if (reply.has_info()) return then(reply.info());
          then(ToError(reply.failure()));
        });
      });
}

void NodeClient::Copy(std::shared_ptr<const CopyList> list,
                      std::function<void(Result<pb::CopyDone>)> then) {
  std::shared_ptr<CopyCall> call = CopyCall::Start(*stub_, calls_.Begin());
  Result<std::thread> thread = StartThread(
      [call, list = std::move(list), name = name_, poster = poster_, then]() mutable {
        Result<pb::CopyDone> done = call->Send(*list);
        call.reset();
        if (!done.ok()) done = Error{done.error().code, name + ": --copy: " + done.error().message};
        poster->Post(
            [done = std::move(done), then = std::move(then)]() mutable { then(std::move(done)); });
      },
      "to copy files to " + name_);
  if (thread.ok()) return thread->detach();
  call->Abandon();
  poster_->Post([error = thread.error(), then = std::move(then)] { then(error); });
}

void NodeClient::Renew(std::optional<uint64_t> last_seen_us, milliseconds timeout,
                       std::function<void(std::optional<uint64_t> clock_us)> then) {
  // The node is lost, so its output is no longer waited for, whether or not the terminal accepts
  // output.
  if (reader_ && stream_.HasHungUp()) reader_->LetGo();
  auto call =
      std::make_shared<AgentCall<pb::RenewRequest, pb::RenewReply>>(timeout, calls_.Begin());
  if (last_seen_us) call->request.set_last_seen_us(*last_seen_us);
  stub_->async()->Renew(
      &call->context, &call->request, &call->reply,
      [call, then = std::move(then), poster = poster_](const grpc::Status& status) {
        if (status.ok())
          poster->Post([then, clock_us = call->reply.clock_us()] { then(clock_us); });
        else if (status.error_code() == grpc::DEADLINE_EXCEEDED)
          poster->Post([then] { then(std::nullopt); });
      });
}

void NodeClient::Run(pb::RunRequest request, EventReader::Handlers handlers,
                     const PeerLimits& limits) {
  reader_ = EventReader::Start(
      poster_, std::move(handlers),
      [this, counted = calls_.Begin(), request = std::move(request)](grpc::ClientContext* context,
                                                                     EventReader* reader) {
        stub_->async()->Run(context, &request, reader);
      },
      EventGate(limits));
}

void NodeClient::Failover(const pb::FailoverRequest& request,
                          std::function<void(Result<pb::RendezvousOpened>)> then) {
  auto call = std::make_shared<AgentCall<pb::FailoverRequest, pb::FailoverReply>>(kCallTimeout,
                                                                                  calls_.Begin());
  call->request = request;
  stub_->async()->Failover(
      &call->context, &call->request, &call->reply,
      [this, call, then = std::move(then), poster = poster_](const grpc::Status& status) {
        poster->Post([this, then, status, reply = std::move(call->reply)]() mutable {
          if (!status.ok())
            return then(Error{ExitCode::kUnavailable, name_ + ": " + status.error_message()});
          if (const Result<void> checked = CheckFailoverReply(reply); !checked.ok())
            return then(BrokeRules(name_, checked));
          if (reply.has_opened()) return then(reply.opened());
          then(ToError(reply.failure()));
        });
      });
}

void NodeClient::GetStacks(const PeerLimits& limits,
                           std::function<void(Result<pb::StacksReply>)> then) {
  auto call = std::make_shared<AgentCall<pb::StacksRequest, pb::StacksReply>>(kStacksTimeout,
                                                                              calls_.Begin());
  call->request.set_all(true);
  stub_->async()->GetStacks(
      &call->context, &call->request, &call->reply,
      [this, call, limits, then = std::move(then), poster = poster_](const grpc::Status& status) {
        poster->Post([this, then, limits, status, reply = std::move(call->reply)]() mutable {
          if (!status.ok())
            return then(Error{ExitCode::kUnavailable, name_ + ": " + status.error_message()});
          if (const Result<void> checked = CheckStacksReply(reply, limits); !checked.ok())
            return then(BrokeRules(name_, checked));
          then(std::move(reply));
        });
      });
}

void NodeClient::Stop(const pb::Cause& cause, bool kill_now) {
  SendStop(*stub_, cause, kill_now, calls_.Begin());
}

void NodeClient::Signal(int signal_number) {
  auto call = std::make_shared<AgentCall<pb::SignalRequest>>(kCallTimeout, calls_.Begin());
  call->request.set_signal(signal_number);
  stub_->async()->Signal(&call->context, &call->request, &call->reply,
                         [call](const grpc::Status&) {});
}

void NodeClient::Input(std::string data, bool end, std::function<void(bool taken)> then) {
  auto call =
      std::make_shared<AgentCall<pb::InputRequest, pb::InputReply>>(kCallTimeout, calls_.Begin());
  call->request.set_data(std::move(data));
  call->request.set_end(end);
  stub_->async()->Input(
      &call->context, &call->request, &call->reply,
      [call, then = std::move(then), poster = poster_](const grpc::Status& status) {
        if (status.ok()) poster->Post([then, full = call->reply.full()] { then(!full); });
      });
}

void NodeClient::Detach(std::function<void(Result<void>)> then) {
  auto call = std::make_shared<AgentCall<pb::Empty, pb::DetachReply>>(kCallTimeout, calls_.Begin());
  watchdog_.expires_after(kCallTimeout + kWatchdogSlack);
  watchdog_.async_wait([this](const asio::error_code& error) {
    if (!error) Abort("the agent did not answer");
  });
  stub_->async()->Detach(
      &call->context, &call->request, &call->reply,
      [this, call, then = std::move(then), poster = poster_](const grpc::Status& status) {
        poster->Post([this, status, then] {
          watchdog_.cancel();
          if (status.ok()) return then({});
          then(Error{ExitCode::kUnavailable, name_ + ": cannot detach: " + status.error_message()});
        });
      });
}

void NodeClient::SayGoodbye() { stream_.SendEnd(); }

void NodeClient::Abort(const std::string& why) {
  if (reader_) reader_->LetGo();
  link_->Abort(why);
}

void NodeClient::AwaitEnd(Deadline deadline, std::function<void(bool supervisor_ended)> then) {
  Result<std::thread> thread = StartThread(
      [link = link_, poster = poster_, deadline, then]() mutable {
        const bool supervisor_ended = link->WaitEnd(deadline);
        link.reset();
        poster->Post([then = std::move(then), supervisor_ended] { then(supervisor_ended); });
      },
      "to wait for the end of " + name_);
  if (thread.ok()) return thread->detach();
  poster_->Post([then = std::move(then)] { then(false); });
}

std::string NodeClient::LastOutput() const {
  std::string words = link_->StderrTail();
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

}  // namespace dslaunch
