#include "rendezvous/client.h"

#include <deque>
#include <utility>

#include "base/mutex.h"
#include "proto/rendezvous.grpc.pb.h"

namespace dslaunch {
class RendezvousClient::Stream final
    : public grpc::ClientBidiReactor<pb::AgentMessage, pb::RendezvousMessage> {
 public:
  Stream(std::shared_ptr<grpc::Channel> channel, OnMessage on_message, OnEnd on_end)
      : stub_(pb::Rendezvous::NewStub(channel)),
        on_message_(std::move(on_message)),
        on_end_(std::move(on_end)) {
    stub_->async()->Attend(&context_, this);
    AddHold();  // keeps the stream open, because Send() may begin a write until closed_
    StartRead(&incoming_);
    StartCall();
  }

  ~Stream() override {
    context_.TryCancel();
    const MutexLock lock(mutex_);
    // A cancelled call ends soon, so this wait is short.
    done_changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return done_; });
  }

  void Send(pb::AgentMessage message) {
    const MutexLock lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // Failed reads mean that the stream is broken. A pending write could keep it open, so it is
      // cancelled.
      context_.TryCancel();
      {
        const MutexLock lock(mutex_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    on_message_(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    queue_.pop_front();
    if (!ok) {
      closed_ = true;
      queue_.clear();
    } else if (!queue_.empty() && !closed_) {
      StartWrite(&queue_.front());
    }
  }

  void OnDone(const grpc::Status& status) override {
    on_end_(status.ok() ? "it ended" : status.error_message());
    const MutexLock lock(mutex_);
    closed_ = done_ = true;
    done_changed_.NotifyAll();
  }

 private:
  const std::unique_ptr<pb::Rendezvous::Stub> stub_;
  const OnMessage on_message_;
  const OnEnd on_end_;
  grpc::ClientContext context_;
  pb::RendezvousMessage incoming_;
  Mutex mutex_;
  CondVar done_changed_;
  // Messages to send; front() is being written.
  std::deque<pb::AgentMessage> queue_ DSL_GUARDED_BY(mutex_);
  bool closed_ DSL_GUARDED_BY(mutex_) = false;
  bool done_ DSL_GUARDED_BY(mutex_) = false;
};

RendezvousClient::RendezvousClient(std::shared_ptr<grpc::Channel> channel, OnMessage on_message,
                                   OnEnd on_end)
    : stream_(
          std::make_unique<Stream>(std::move(channel), std::move(on_message), std::move(on_end))) {}

RendezvousClient::~RendezvousClient() = default;

void RendezvousClient::Send(pb::AgentMessage message) { stream_->Send(std::move(message)); }

}  // namespace dslaunch
