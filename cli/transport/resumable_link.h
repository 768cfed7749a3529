// A link to a node that outlives its connection: one that was reset costs nothing.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "cli/transport/loop_thread.h"
#include "cli/transport/transport.h"
#include "net/resume/resumable_stream.h"
#include "net/resume/resume_words.h"

namespace dslaunch {

// Carries bytes between its own socket and whichever connection there is, on SshLoop's thread. It
// has a thread of its own while its connection is made anew.
class ResumableLink : public NodeLink {
 public:
  // Another connection to the node: to a process there that passes bytes to the supervisor's socket
  // (AgentRole::Kind::kResume), just behind its hello line.
  using ReconnectFn =
      std::function<Result<std::unique_ptr<NodeLink>>(const std::string& socket, Deadline)>;

  // `first` leads to a supervisor that was started resumable. Waits for its ticket.
  static Result<std::unique_ptr<NodeLink>> Open(std::unique_ptr<NodeLink> first,
                                                ReconnectFn reconnect);
  // May wait for a connection that is being made: up to 5 s. Not on SshLoop's thread.
  ~ResumableLink() override;

  UniqueFd TakeFd() override { return std::move(outer_); }
  void Abort(const std::string& why) override;
  bool WaitEnd(Deadline deadline) override;
  void LeaveRunning() override { Current()->LeaveRunning(); }
  std::string Notice() const override { return first_->Notice(); }
  std::string StderrTail() const override;
  std::string Address() const override { return first_->Address(); }
  std::string OwnAddress() const override { return first_->OwnAddress(); }

 private:
  ResumableLink(std::shared_ptr<NodeLink> first, ReconnectFn reconnect, ResumeTicket ticket,
                std::shared_ptr<LoopThread> loop);
  std::shared_ptr<NodeLink> Current() const;
  // On the loop.
  void OnBroken();
  void OnClosed();
  Result<void> StartRepair();
  // In the thread of a connection that broke.
  void Repair();
  void RepairOnce();
  Result<void> Reconnect(Deadline by);
  Result<void> Resume(std::shared_ptr<NodeLink> link, Deadline by);
  // From any thread: no other connection follows. `why` may be empty.
  void SetOver(const std::string& why);

  const std::shared_ptr<NodeLink> first_;
  const ReconnectFn reconnect_;
  const ResumeTicket ticket_;
  const std::shared_ptr<LoopThread> loop_;
  UniqueFd outer_;  // TakeFd()'s
  std::atomic<bool> stopping_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<NodeLink> current_ DSL_GUARDED_BY(mutex_);
  bool broken_ DSL_GUARDED_BY(mutex_) = false;     // to be repaired
  bool repairing_ DSL_GUARDED_BY(mutex_) = false;  // there is a thread for that
  bool over_ DSL_GUARDED_BY(mutex_) = false;       // no other connection follows
  std::string why_over_ DSL_GUARDED_BY(mutex_);

  std::unique_ptr<ResumableStream> stream_;  // the loop's
};

}  // namespace dslaunch
