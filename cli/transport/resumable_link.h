// A link to a node that outlives its connection: one that was reset costs nothing.
#pragma once

#include <asio/io_context.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "cli/transport/transport.h"
#include "net/resume/resumable_stream.h"
#include "net/resume/resume_words.h"

namespace dslaunch {

// Carries bytes between its own socket and whichever connection there is, in a thread of its own.
class ResumableLink : public NodeLink {
 public:
  // Another connection to the node: to a process there that passes bytes to the supervisor's socket
  // (AgentRole::Kind::kResume), just behind its hello line.
  using ReconnectFn =
      std::function<Result<std::unique_ptr<NodeLink>>(const std::string& socket, Deadline)>;

  // `first` leads to a supervisor that was started resumable. Waits for its ticket.
  static Result<std::unique_ptr<NodeLink>> Open(std::unique_ptr<NodeLink> first,
                                                ReconnectFn reconnect);
  // May wait for a connection that is being made: up to 4 s.
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
  ResumableLink(std::shared_ptr<NodeLink> first, ReconnectFn reconnect, ResumeTicket ticket);
  std::shared_ptr<NodeLink> Current() const;
  // In the thread.
  void OnBroken();
  Result<void> Reconnect(Deadline by);
  Result<void> Resume(std::shared_ptr<NodeLink> link, Deadline by);
  void SetOver(const std::string& why);

  const std::shared_ptr<NodeLink> first_;
  const ReconnectFn reconnect_;
  const ResumeTicket ticket_;
  UniqueFd outer_;    // TakeFd()'s
  UniqueFd aborted_;  // a second descriptor of the thread's end, to shut it with
  std::atomic<bool> stopping_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<NodeLink> current_ DSL_GUARDED_BY(mutex_);
  bool over_ DSL_GUARDED_BY(mutex_) = false;  // no other connection follows
  std::string why_over_ DSL_GUARDED_BY(mutex_);

  asio::io_context loop_{1};
  std::unique_ptr<ResumableStream> stream_;  // the thread's
  std::thread thread_;
};

}  // namespace dslaunch
