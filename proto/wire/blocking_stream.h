// A bidirectional gRPC stream for a thread of its own that blocks on it, each time with a deadline.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// `Reactor`: grpc::ClientBidiReactor or grpc::ServerBidiReactor. It lives until gRPC is done with
// it and its user has let go. One thread uses it, and not after it has ended the call; gRPC's
// threads only hand over.
template <class Reactor, class Incoming, class Outgoing>
class BlockingStream
    : public Reactor,
      public std::enable_shared_from_this<BlockingStream<Reactor, Incoming, Outgoing>> {
 public:
  // The next message. nullopt: the stream has ended, or the deadline came first.
  std::optional<Incoming> Read(Deadline deadline) {
    std::optional<Incoming> message;
    {
      const MutexLock lock(mutex_);
      changed_.WaitUntil(mutex_, deadline.when(),
                         [this]() DSL_REQUIRES(mutex_) { return has_message_ || has_ended_; });
      if (!has_message_) return std::nullopt;
      has_message_ = false;
      message.emplace(std::move(incoming_));
      incoming_.Clear();
    }
    // gRPC may answer before it returns.
    this->StartRead(&incoming_);
    return message;
  }

  bool HasMessage() const {
    const MutexLock lock(mutex_);
    return has_message_;
  }
  // Nothing can be written any more. Messages may still be there to be read.
  bool HasEnded() const {
    const MutexLock lock(mutex_);
    return has_ended_;
  }

  // False: the stream has ended, or does not take it before the deadline.
  bool Write(Outgoing message, Deadline deadline) {
    {
      const MutexLock lock(mutex_);
      if (!AwaitWritten(deadline)) return false;
      is_writing_ = true;
    }
    outgoing_ = std::move(message);
    this->StartWrite(&outgoing_);
    return true;
  }
  // All that was written has left.
  bool Flush(Deadline deadline) {
    const MutexLock lock(mutex_);
    return AwaitWritten(deadline);
  }

  void OnReadDone(bool ok) override {
    const MutexLock lock(mutex_);
    has_message_ = ok;
    if (!ok) has_ended_ = true;
    changed_.NotifyAll();
  }
  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    is_writing_ = false;
    if (!ok) has_ended_ = true;
    changed_.NotifyAll();
  }

 protected:
  void Begin() {
    self_ = this->shared_from_this();
    this->StartRead(&incoming_);
  }
  void SetEnded() {
    const MutexLock lock(mutex_);
    has_ended_ = true;
    changed_.NotifyAll();
  }
  // gRPC's last call.
  void SetDone() {
    const auto self = std::move(self_);
    const MutexLock lock(mutex_);
    has_ended_ = true;
    changed_.NotifyAll();
  }

 private:
  bool AwaitWritten(Deadline deadline) DSL_REQUIRES(mutex_) {
    changed_.WaitUntil(mutex_, deadline.when(),
                       [this]() DSL_REQUIRES(mutex_) { return !is_writing_ || has_ended_; });
    return !is_writing_ && !has_ended_;
  }

  std::shared_ptr<BlockingStream> self_;  // until gRPC is done
  mutable Mutex mutex_;
  CondVar changed_;
  Incoming incoming_;
  Outgoing outgoing_;
  bool has_message_ DSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ DSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ DSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dslaunch
