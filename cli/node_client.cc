#include "cli/node_client.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <asio/post.hpp>
#include <thread>
#include <utility>

#include "rendezvous/channel.h"

namespace dslaunch {
namespace {

constexpr milliseconds kPrepareTimeout(30'000);
constexpr milliseconds kStopTimeout(5'000);
constexpr milliseconds kWatchdogSlack(2'000);

std::chrono::system_clock::time_point SystemTimeAfter(milliseconds duration) {
  return std::chrono::system_clock::now() + duration;
}

// What a call needs until it is over.
template <class Request, class Reply = pb::Empty>
struct Call {
  grpc::ClientContext context;
  Request request;
  Reply reply;

  Call() { context.set_deadline(SystemTimeAfter(kStopTimeout)); }
};

}  // namespace

// The next event is read when the last one has been dealt with.
class NodeClient::EventReader final : public grpc::ClientReadReactor<pb::NodeEvent> {
 public:
  EventReader(NodeClient& client, const pb::RunRequest& request, RunHandlers handlers)
      : client_(client), request_(request), handlers_(std::move(handlers)) {
    client_.stub_->async()->Run(&context_, &request_, this);
    ReadNext();
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    asio::post(client_.loop_, [this] { Handle(); });
  }
  void OnDone(const grpc::Status&) override {
    asio::post(client_.loop_, [this] {
      client_.silence_.Hold();
      handlers_.ended();
    });
  }

 private:
  void Handle() {
    client_.silence_.Hold();
    if (event_.has_log()) return handlers_.log(event_.log(), [this] { ReadNext(); });
    handlers_.event(event_);
    ReadNext();
  }

  void ReadNext() {
    client_.silence_.Listen(Clock::now());
    StartRead(&event_);
  }

  NodeClient& client_;
  const pb::RunRequest request_;
  const RunHandlers handlers_;
  grpc::ClientContext context_;
  pb::NodeEvent event_;
};

NodeClient::NodeClient(asio::io_context& loop, std::string name, std::unique_ptr<NodeLink> link)
    : loop_(loop), name_(std::move(name)), link_(std::move(link)), watchdog_(loop) {
  UniqueFd fd = link_->TakeFd();
  stream_.Reset(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  channel_ = ChannelFromFd(name_, std::move(fd));
  stub_ = pb::Agent::NewStub(channel_);
}

NodeClient::~NodeClient() = default;

void NodeClient::Prepare(pb::PrepareRequest request,
                         std::function<void(Result<pb::NodeFacts>)> then) {
  prepare_request_ = std::move(request);
  prepare_context_.set_deadline(SystemTimeAfter(kPrepareTimeout));
  watchdog_.expires_after(kPrepareTimeout + kWatchdogSlack);
  watchdog_.async_wait([this](const asio::error_code& error) {
    if (!error) Abort("the agent did not answer");
  });
  stub_->async()->Prepare(
      &prepare_context_, &prepare_request_, &prepare_reply_,
      [this, then = std::move(then)](const grpc::Status& status) {
        asio::post(loop_, [this, status, then] {
          watchdog_.cancel();
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

void NodeClient::Run(const pb::RunRequest& request, RunHandlers handlers) {
  reader_ = std::make_unique<EventReader>(*this, request, std::move(handlers));
}

void NodeClient::Move(const pb::MoveRequest& request,
                      std::function<void(Result<pb::RendezvousOpened>)> then) {
  auto call = std::make_shared<Call<pb::MoveRequest, pb::MoveReply>>();
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

void NodeClient::Renew() {
  auto call = std::make_shared<Call<pb::Empty>>();
  stub_->async()->Renew(&call->context, &call->request, &call->reply,
                        [call](const grpc::Status&) {});
}

void NodeClient::Stop(const pb::Cause& cause, bool kill_now) {
  auto call = std::make_shared<Call<pb::StopRequest>>();
  *call->request.mutable_cause() = cause;
  call->request.set_kill_now(kill_now);
  stub_->async()->Stop(&call->context, &call->request, &call->reply,
                       [call](const grpc::Status&) {});
}

void NodeClient::Signal(int signal_number) {
  auto call = std::make_shared<Call<pb::SignalRequest>>();
  call->request.set_signal(signal_number);
  stub_->async()->Signal(&call->context, &call->request, &call->reply,
                         [call](const grpc::Status&) {});
}

void NodeClient::Detach(std::function<void(Result<void>)> then) {
  auto call = std::make_shared<Call<pb::Empty, pb::DetachReply>>();
  watchdog_.expires_after(kStopTimeout + kWatchdogSlack);
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

void NodeClient::SayGoodbye() { shutdown(stream_.get(), SHUT_WR); }

void NodeClient::AwaitEnd(Deadline deadline, std::function<void()> then) {
  std::thread([this, deadline, then = std::move(then)] {
    link_->WaitEnd(deadline);
    asio::post(loop_, then);
  }).detach();
}

std::string NodeClient::LastWords() const {
  std::string words = link_->StderrTail();
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

}  // namespace dslaunch
