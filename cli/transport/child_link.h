// Implements a link to a supervisor through a local program, which is the agent itself or an ssh.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/transport/hello.h"
#include "cli/transport/running_program.h"
#include "cli/transport/transport.h"

namespace dslaunch {

class ChildLink : public NodeLink {
 public:
  ChildLink(std::unique_ptr<RunningProgram> child, std::string address,
            std::string start_nonce = "")
      : child_(std::move(child)),
        stream_(child_->TakeStream()),
        address_(std::move(address)),
        start_nonce_(std::move(start_nonce)) {}

  // Ends the stream, on which the supervisor tears its node down. Kills the program if it does not
  // exit within kLeaveToEnd, unless it was left running.
  ~ChildLink() override {
    child_->ShutStream();
    if (!child_->is_left_running()) child_->WaitEnd(Deadline::After(kLeaveToEnd));
  }

  // Returns whether the program's wait status shows that the program lost the node. Such a status
  // does not describe the supervisor.
  using IsLost = std::function<bool(int wait_status)>;
  // Prepares the link for a ResumableLink, which from then on ends the stream.
  void SetResumable(IsLost is_lost) {
    is_lost_ = std::move(is_lost);
    child_->ReleaseStream();
  }

  UniqueFd TakeFd() override { return std::move(stream_); }
  void Abort(const std::string&) override { child_->ShutStream(); }
  bool WaitEnd(Deadline deadline) override {
    child_->ShutStream();  // the program's duplicate would keep a closed stream open
    const std::optional<int> status = child_->WaitEnd(deadline);
    return status && !(is_lost_ && is_lost_(*status));
  }
  void LeaveRunning() override { child_->LeaveRunning(); }
  std::string StderrTail() const override { return child_->StderrTail(); }
  std::string Address() const override { return address_; }
  std::string Notice() const override { return notice_; }
  void SetNotice(std::string notice) { notice_ = std::move(notice); }
  std::string StartNonce() const override { return start_nonce_; }

  // Calls dslaunch::AwaitHello on this link's stream.
  Result<void> AwaitHello(HelloScanner& scanner, Deadline deadline) {
    return dslaunch::AwaitHello(stream_.get(), scanner, deadline);
  }

  RunningProgram& child() { return *child_; }

 private:
  static constexpr milliseconds kLeaveToEnd{2000};

  const std::unique_ptr<RunningProgram> child_;
  UniqueFd stream_;
  const std::string address_;
  const std::string start_nonce_;
  std::string notice_;
  IsLost is_lost_;
};

}  // namespace dslaunch
