// A link to a node that outlives its connection: one that was reset costs nothing.
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

// Carries bytes between its own socket and whichever connection there is, on SshLoop's thread. It
// has a thread of its own while its connection is made anew. A connection that broke is ended
// there.
class ResumableLink : public NodeLink {
 public:
  // A connection to the node and its stream, just behind the hello line, on SshLoop.
  struct Connection {
    std::shared_ptr<LoopThread> loop;  // SshLoop
    std::unique_ptr<NodeLink> link;
    std::unique_ptr<StreamEnd> end;
  };
  // Of a link that gives a socket.
  static Result<Connection> Over(std::unique_ptr<NodeLink> link);

  // Another connection to the node: to a process there that passes bytes to the supervisor's socket
  // (AgentRole::Kind::kResume).
  using ReconnectFn = std::function<Result<Connection>(const std::string& socket, Deadline)>;

  // `first` leads to a supervisor that was started resumable. Waits for its ticket.
  static Result<std::unique_ptr<NodeLink>> Open(Connection first, ReconnectFn reconnect);
  // May wait for a connection that is being made: up to 5 s. Not on SshLoop's thread.
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
  std::shared_ptr<NodeLink> Current() const;  // null: it broke
  // On the loop.
  void OnBroken();
  void OnClosed();
  Result<void> StartRepair();
  // In the thread of a connection that broke.
  void Repair();
  void RepairOnce();
  bool EndConnection();
  Result<void> Reconnect(Deadline by);
  Result<void> Resume(Connection connection, Deadline by);
  // From any thread: no other connection follows. `why` may be empty.
  void SetOver(const std::string& why);

  const std::string notice_, address_, own_address_, start_nonce_;
  const ReconnectFn reconnect_;
  const ResumeTicket ticket_;
  const std::shared_ptr<LoopThread> loop_;
  UniqueFd outer_;  // TakeFd()'s
  std::atomic<bool> stopping_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<NodeLink> current_ DSL_GUARDED_BY(mutex_);
  bool supervisor_ended_ DSL_GUARDED_BY(mutex_) = false;
  // What came from stderr over the first connection; absent until that breaks.
  std::optional<std::string> said_ DSL_GUARDED_BY(mutex_);
  bool broken_ DSL_GUARDED_BY(mutex_) = false;     // to be repaired
  bool repairing_ DSL_GUARDED_BY(mutex_) = false;  // there is a thread for that
  bool over_ DSL_GUARDED_BY(mutex_) = false;       // no other connection follows
  std::string why_over_ DSL_GUARDED_BY(mutex_);

  std::unique_ptr<ResumableStream> stream_;  // the loop's
};

}  // namespace dslaunch
