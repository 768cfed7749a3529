// Implements a link to a node that survives a reset connection without losing bytes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "cli/transport/loop_thread.h"
#include "cli/transport/transport.h"
#include "net/resumable/resumable_stream.h"
#include "net/resumable/resume_words.h"

namespace dslaunch {

// A node link that replaces its connection whenever that breaks. Transfers bytes between its own
// socket and the current connection on SshLoop's thread. A separate thread ends a broken connection
// and makes the new one.
class ResumableLink : public NodeLink {
 public:
  // A connection to the node and its stream, positioned just after the hello line. Used on SshLoop.
  struct Connection {
    std::shared_ptr<LoopThread> loop;  // the loop returned by SshLoop()
    std::unique_ptr<NodeLink> link;
    std::unique_ptr<StreamEnd> end;
  };
  // Makes a connection from a link that has a socket (NodeLink::TakeFd).
  static Result<Connection> Over(std::unique_ptr<NodeLink> link);

  // Connects to the node again and starts a process there that forwards bytes to the supervisor's
  // socket `socket` (AgentRole::Kind::kResume).
  using ReconnectFn = std::function<Result<Connection>(const std::string& socket, Deadline)>;

  // Waits for the supervisor's ticket and returns the link. Precondition: `first` leads to a
  // supervisor that was started as resumable.
  static Result<std::unique_ptr<NodeLink>> Open(Connection first, ReconnectFn reconnect);
  // Waits up to 5 s for a connection attempt in progress. Must not run on SshLoop's thread.
  ~ResumableLink() override;

  UniqueFd TakeFd() override { return std::move(outer_); }
  HeldStream TakeStream() override;
  void Abort(const std::string& why) override;
  bool WaitEnd(Deadline deadline) override;
  void LeaveRunning() override;
  std::string Notice() const override { return notice_; }
  std::string StderrTail() const override;
  std::string Address() const override { return address_; }
  std::string OwnAddress() const override { return own_address_; }
  std::string StartNonce() const override { return start_nonce_; }

 private:
  ResumableLink(std::shared_ptr<NodeLink> first, ReconnectFn reconnect, ResumeTicket ticket,
                std::shared_ptr<LoopThread> loop);
  // Returns the current link; null while its connection is broken.
  std::shared_ptr<NodeLink> Current() const;
  // Handles a broken connection. This method and the next two run on the loop.
  void OnBroken();
  void OnClosed();
  Result<void> StartRepair();
  // Replaces a broken connection. This method and the next four run on a separate thread.
  void Repair();
  void RepairOnce();
  bool EndConnection();
  Result<void> Reconnect(Deadline by);
  Result<void> Resume(Connection connection, Deadline by);
  // Ends the link: no further connection is made. `why` is logged or shown and may be empty. May be
  // called on any thread.
  void SetOver(const std::string& why);

  const std::string notice_, address_, own_address_, start_nonce_;
  const ReconnectFn reconnect_;
  const ResumeTicket ticket_;
  const std::shared_ptr<LoopThread> loop_;
  UniqueFd outer_;  // the caller's end of the socket, which TakeFd() returns
  std::atomic<bool> stopping_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<NodeLink> current_ DSL_GUARDED_BY(mutex_);
  bool supervisor_ended_ DSL_GUARDED_BY(mutex_) = false;
  // stderr of the first connection; nullopt until that connection breaks.
  std::optional<std::string> printed_ DSL_GUARDED_BY(mutex_);
  bool broken_ DSL_GUARDED_BY(mutex_) = false;     // whether the connection must be replaced
  bool repairing_ DSL_GUARDED_BY(mutex_) = false;  // whether a thread is replacing the connection
  bool over_ DSL_GUARDED_BY(mutex_) = false;       // whether no further connection will be made
  std::string why_over_ DSL_GUARDED_BY(mutex_);

  std::unique_ptr<ResumableStream> stream_;  // bytes in both directions; used on the loop only
};

}  // namespace dslaunch
