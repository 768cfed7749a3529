#include "cli/transport/child_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace dslaunch {
namespace {

constexpr milliseconds kLeaveToEnd{2000};

}  // namespace

ChildLink::~ChildLink() {
  child_->ShutStream();
  if (!child_->is_left_running()) child_->WaitEnd(Deadline::After(kLeaveToEnd));
}

bool ChildLink::WaitEnd(Deadline deadline) {
  child_->ShutStream();  // its duplicate would keep a closed stream open
  return child_->WaitEnd(deadline).has_value();
}

Result<void> ChildLink::AwaitHello(HelloScanner& scanner, Deadline deadline) {
  while (true) {
    pollfd ready{stream_.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, deadline.PollMs());
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) return Error{ExitCode::kTimedOut, "did not send its hello line in time"};
    char peeked[4096];
    const ssize_t n = ::recv(stream_.get(), peeked, sizeof peeked, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return Error{ExitCode::kUnavailable, "exited before its hello line"};
    const HelloScanner::State state = scanner.Feed({peeked, static_cast<size_t>(n)});
    if (state == HelloScanner::State::kFailed)
      return Error{ExitCode::kUnavailable, "sent an invalid hello line: " + scanner.reason()};
    const size_t taken = static_cast<size_t>(n) - scanner.leftover().size();
    if (::recv(stream_.get(), peeked, taken, 0) < 0) return Error{ExitCode::kIo, "cannot be read"};
    if (state == HelloScanner::State::kFound) return {};
  }
}

}  // namespace dslaunch
