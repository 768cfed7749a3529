#include "cli/session/node_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <thread>
#include <utility>

#include "cli/session/agent_call.h"
#include "proto/wire/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kPrepareTimeout(30'000);
constexpr milliseconds kRenewEvery(500);
constexpr milliseconds kWatchdogSlack(2'000);

bool HasHungUp(int socket) {
  pollfd other_end = {.fd = socket, .events = 0, .revents = 0};
  return poll(&other_end, 1, /*timeout=*/0) > 0;
}

}  // namespace

NodeClient::NodeClient(asio::io_context& loop, std::string name, std::unique_ptr<NodeLink> link)
    : loop_(loop),
      name_(std::move(name)),
      link_(std::move(link)),
      watchdog_(loop),
      renew_timer_(loop) {
  UniqueFd fd = link_->TakeFd();
  stream_.Reset(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  channel_ = ChannelFromFd(name_, std::move(fd));
  stub_ = pb::Agent::NewStub(channel_);
  KeepRenewing();
}

NodeClient::~NodeClient() = default;

void NodeClient::Prepare(pb::PrepareRequest request,
                         std::function<void(Result<pb::NodeFacts>)> then) {
  prepare_request_ = std::move(request);
  prepare_context_.set_deadline(std::chrono::system_clock::now() + kPrepareTimeout);
  watchdog_.expires_after(kPrepareTimeout + kWatchdogSlack);
  watchdog_.async_wait([this](const asio::error_code& error) {
    if (!error) Abort("the agent did not answer");
  });
  preparing_ = true;
  stub_->async()->Prepare(
      &prepare_context_, &prepare_request_, &prepare_reply_,
      [this, then = std::move(then)](const grpc::Status& status) {
        asio::post(loop_, [this, status, then] {
          watchdog_.cancel();
          preparing_ = false;
          if (!status.ok()) {
            const std::string words = LastWords();
            return then(
                Error{ExitCode::kUnavailable, name_ + ": its agent broke off before the start (" +
                                                  status.error_message() + ")" +
                                                  (words.empty() ? "" : ": " + words)});
          }
          if (prepare_reply_.has_facts()) return then(prepare_reply_.facts());
          const pb::Failure& failure = prepare_reply_.failure();
          then(Error{static_cast<ExitCode>(failure.exit_code()), failure.message()});
        });
      });
}

// A node ends what its front end has left. An agent may be slow to prepare, for its disk may be;
// this call asks nothing of it and is answered at once as long as the node lives.
void NodeClient::KeepRenewing() {
  renew_timer_.expires_after(kRenewEvery);
  renew_timer_.async_wait([this](const asio::error_code& error) {
    if (error || over_) return;
    KeepRenewing();
    // The node is lost whether or not the terminal takes its output.
    if (reader_ && HasHungUp(stream_.get())) reader_->LetGo();
    // A node that we do not hear may hear us all the same: its lease is not to outlast us who wait
    // for its end.
    const milliseconds dead(prepare_request_.timeouts().dead_ms());
    if (!preparing_ && reader_ && silence_.SilentFor(Clock::now()) >= dead) return;
    const milliseconds patience = preparing_ ? dead : kCallTimeout;
    auto call = std::make_shared<AgentCall<pb::RenewRequest, pb::RenewReply>>(patience);
    if (heard_us_) call->request.set_heard_us(*heard_us_);
    stub_->async()->Renew(
        &call->context, &call->request, &call->reply, [this, call](const grpc::Status& status) {
          asio::post(loop_,
                     [this, call, code = status.error_code()] { OnRenewed(code, call->reply); });
        });
  });
}

void NodeClient::OnRenewed(grpc::StatusCode code, const pb::RenewReply& reply) {
  if (code == grpc::OK)
    heard_us_ = std::max(heard_us_, std::optional<uint64_t>(reply.clock_us()));
  else if (code == grpc::DEADLINE_EXCEEDED && preparing_)
    Abort("nothing was heard of the node");
}

void NodeClient::Run(const pb::RunRequest& request, EventReader::Handlers handlers) {
  run_request_ = request;
  reader_ =
      std::make_unique<EventReader>(loop_, silence_, std::move(handlers),
                                    [this](grpc::ClientContext* context, EventReader* reader) {
                                      stub_->async()->Run(context, &run_request_, reader);
                                    });
}

void NodeClient::Move(const pb::MoveRequest& request,
                      std::function<void(Result<pb::RendezvousOpened>)> then) {
  auto call = std::make_shared<AgentCall<pb::MoveRequest, pb::MoveReply>>();
  call->request = request;
  stub_->async()->Move(
      &call->context, &call->request, &call->reply,
      [this, call, then = std::move(then)](const grpc::Status& status) {
        asio::post(loop_, [this, call, status, then] {
          if (!status.ok())
            return then(Error{ExitCode::kUnavailable, name_ + ": " + status.error_message()});
          if (call->reply.has_opened()) return then(call->reply.opened());
          const pb::Failure& failure = call->reply.failure();
          then(Error{static_cast<ExitCode>(failure.exit_code()), failure.message()});
        });
      });
}

void NodeClient::Stop(const pb::Cause& cause, bool kill_now) { SendStop(*stub_, cause, kill_now); }

void NodeClient::Signal(int signal_number) {
  auto call = std::make_shared<AgentCall<pb::SignalRequest>>();
  call->request.set_signal(signal_number);
  stub_->async()->Signal(&call->context, &call->request, &call->reply,
                         [call](const grpc::Status&) {});
}

void NodeClient::Detach(std::function<void(Result<void>)> then) {
  auto call = std::make_shared<AgentCall<pb::Empty, pb::DetachReply>>();
  watchdog_.expires_after(kCallTimeout + kWatchdogSlack);
  watchdog_.async_wait([this](const asio::error_code& error) {
    if (!error) Abort("the agent did not answer");
  });
  stub_->async()->Detach(
      &call->context, &call->request, &call->reply,
      [this, call, then = std::move(then)](const grpc::Status& status) {
        asio::post(loop_, [this, status, then] {
          watchdog_.cancel();
          if (status.ok()) return then({});
          then(Error{ExitCode::kUnavailable, name_ + ": cannot detach: " + status.error_message()});
        });
      });
}

void NodeClient::SayGoodbye() {
  over_ = true;
  shutdown(stream_.get(), SHUT_WR);
}

void NodeClient::Abort(const std::string& why) {
  over_ = true;
  if (reader_) reader_->LetGo();
  link_->Abort(why);
}

void NodeClient::AwaitEnd(Deadline deadline, std::function<void(bool keeper_ended)> then) {
  std::thread([this, deadline, then = std::move(then)] {
    const bool keeper_ended = link_->WaitEnd(deadline);
    asio::post(loop_, [then, keeper_ended] { then(keeper_ended); });
  }).detach();
}

std::string NodeClient::LastWords() const {
  std::string words = link_->StderrTail();
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

}  // namespace dslaunch
