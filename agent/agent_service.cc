#include "agent/agent_service.h"

#include <asio/post.hpp>
#include <atomic>
#include <mutex>
#include <utility>

namespace dslaunch {
namespace {

// The Run stream. The agent holds the shared sink; gRPC holds the reactor until OnDone. The two
// part when either is through, so the sink reaches the reactor under a lock.
class RunReactor;

class StreamSink final : public EventSink {
 public:
  explicit StreamSink(RunReactor* reactor) : reactor_(reactor) {}
  void Write(pb::NodeEvent event) override;
  void Finish() override;
  void Detach() {
    const std::lock_guard lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  std::mutex mutex_;
  RunReactor* reactor_;
};

class RunReactor final : public grpc::ServerWriteReactor<pb::NodeEvent> {
 public:
  RunReactor(asio::io_context& loop, NodeAgent& agent)
      : loop_(loop), agent_(agent), sink_(std::make_shared<StreamSink>(this)) {}

  const std::shared_ptr<StreamSink>& sink() const { return sink_; }

  void WriteEvent(pb::NodeEvent event) {
    event_ = std::move(event);
    StartWrite(&event_);
  }
  void FinishOnce() {
    if (!finished_.exchange(true)) Finish(grpc::Status::OK);
  }

  void OnWriteDone(bool ok) override {
    asio::post(loop_, [&agent = agent_, ok] { agent.OnEventWritten(ok); });
  }
  void OnCancel() override {
    asio::post(loop_, [&agent = agent_] { agent.OnStreamOver(); });
    FinishOnce();
  }
  void OnDone() override {
    sink_->Detach();
    asio::post(loop_, [&agent = agent_] { agent.OnStreamOver(); });
    delete this;
  }

 private:
  asio::io_context& loop_;
  NodeAgent& agent_;
  std::shared_ptr<StreamSink> sink_;
  pb::NodeEvent event_;
  std::atomic<bool> finished_ = false;
};

void StreamSink::Write(pb::NodeEvent event) {
  const std::lock_guard lock(mutex_);
  if (reactor_ != nullptr) reactor_->WriteEvent(std::move(event));
}

void StreamSink::Finish() {
  const std::lock_guard lock(mutex_);
  if (reactor_ != nullptr) reactor_->FinishOnce();
}

}  // namespace

grpc::ServerUnaryReactor* AgentService::Prepare(grpc::CallbackServerContext* context,
                                                const pb::PrepareRequest* request,
                                                pb::PrepareReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = agent_.Prepare(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerWriteReactor<pb::NodeEvent>* AgentService::Run(grpc::CallbackServerContext*,
                                                           const pb::RunRequest* request) {
  auto* reactor = new RunReactor(loop_, agent_);
  asio::post(loop_,
             [this, request = *request, sink = reactor->sink()] { agent_.Run(request, sink); });
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Stop(grpc::CallbackServerContext* context,
                                             const pb::StopRequest* request, pb::Empty*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request = *request] { agent_.Stop(request); });
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Renew(grpc::CallbackServerContext* context,
                                              const pb::Empty*, pb::Empty*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this] { agent_.Renew(); });
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Move(grpc::CallbackServerContext* context,
                                             const pb::MoveRequest* request,
                                             pb::MoveReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, request, reply, reactor] {
    *reply = agent_.Move(*request);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AgentService::Signal(grpc::CallbackServerContext* context,
                                               const pb::SignalRequest* request, pb::Empty*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  asio::post(loop_, [this, signal_number = request->signal()] { agent_.Signal(signal_number); });
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace dslaunch
