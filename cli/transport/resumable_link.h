// A link to a node that outlives its connection, so a reset connection costs nothing.
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

// Transfers bytes between its own socket and the current connection, on SshLoop's thread. While a
// new connection is made, a separate thread does this and ends the broken connection.
class ResumableLink : public NodeLink {
 public:
  // A connection to the node and its stream, on SshLoop, just after the hello line.
  struct Connection {
    std::shared_ptr<LoopThread> loop;  // SshLoop
    std::unique_ptr<NodeLink> link;
    std::unique_ptr<StreamEnd> end;
  };
  // Makes a connection from a link that has a socket.
  static Result<Connection> Over(std::unique_ptr<NodeLink> link);

  // Makes another connection to the node, to a process that forwards bytes to the supervisor's
  // socket (AgentRole::Kind::kResume).
  using ReconnectFn = std::function<Result<Connection>(const std::string& socket, Deadline)>;

  // Waits for the supervisor's ticket. `first` must lead to a supervisor that was started as
  // resumable.
  static Result<std::unique_ptr<NodeLink>> Open(Connection first, ReconnectFn reconnect);
  // May wait up to 5 s for a connection that is being made. Must not run on SshLoop's thread.
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
  std::shared_ptr<NodeLink> Current() const;  // null if the connection broke
  // Run on the loop.
  void OnBroken();
  void OnClosed();
  Result<void> StartRepair();
  // Run on the thread that replaces a broken connection.
  void Repair();
  void RepairOnce();
  bool EndConnection();
  Result<void> Reconnect(Deadline by);
  Result<void> Resume(Connection connection, Deadline by);
  // Stops making connections. May be called on any thread; `why` may be empty.
  void SetOver(const std::string& why);

  const std::string notice_, address_, own_address_, start_nonce_;
  const ReconnectFn reconnect_;
  const ResumeTicket ticket_;
  const std::shared_ptr<LoopThread> loop_;
  UniqueFd outer_;  // returned by TakeFd()
  std::atomic<bool> stopping_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<NodeLink> current_ DSL_GUARDED_BY(mutex_);
  bool supervisor_ended_ DSL_GUARDED_BY(mutex_) = false;
  // stderr of the first connection; nullopt until it breaks.
  std::optional<std::string> printed_ DSL_GUARDED_BY(mutex_);
  bool broken_ DSL_GUARDED_BY(mutex_) = false;     // the connection must be replaced
  bool repairing_ DSL_GUARDED_BY(mutex_) = false;  // a thread is replacing the connection
  bool over_ DSL_GUARDED_BY(mutex_) = false;       // no other connection will be made
  std::string why_over_ DSL_GUARDED_BY(mutex_);

  std::unique_ptr<ResumableStream> stream_;  // used on the loop only
};

}  // namespace dslaunch
