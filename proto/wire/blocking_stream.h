// Implements a bidirectional gRPC stream for a thread that blocks on reads and writes, always with
// a deadline.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// A stream that one thread reads and writes. `Reactor` is grpc::ClientBidiReactor or
// grpc::ServerBidiReactor. The object exists until both gRPC and its user have released it. The
// thread must not use the object after it has ended the call. Threads of gRPC only deliver events.
template <class Reactor, class Incoming, class Outgoing>
class BlockingStream
    : public Reactor,
      public std::enable_shared_from_this<BlockingStream<Reactor, Incoming, Outgoing>> {
 public:
  // Returns the next message; nullopt if the stream has ended or the deadline has passed.
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
    // StartRead() may call back before it returns, so it is called without the mutex.
    this->StartRead(&incoming_);
    return message;
  }

  bool HasMessage() const {
    const MutexLock lock(mutex_);
    return has_message_;
  }
  // Returns whether writing is no longer possible. Messages may still be available to read.
  bool HasEnded() const {
    const MutexLock lock(mutex_);
    return has_ended_;
  }

  // Sends a message. Returns false if the stream has ended, or if it does not accept the message
  // before the deadline.
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
  // Waits until all written messages have been sent. Returns false if the stream ends or the
  // deadline passes.
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
  // Releases gRPC's reference to the object. Call this in the last callback of gRPC.
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

  std::shared_ptr<BlockingStream> self_;  // keeps the object alive until gRPC's last callback
  mutable Mutex mutex_;
  CondVar changed_;
  Incoming incoming_;
  Outgoing outgoing_;
  bool has_message_ DSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ DSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ DSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dslaunch
