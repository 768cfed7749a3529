#include "cli/session/stdin_forwarder.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/deadline.h"

namespace dslaunch {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr milliseconds kAgainAfter(50);  // pause before refused input is sent again
// Interval of checks whether this process is in the terminal's foreground.
constexpr milliseconds kBackgroundPoll(500);

// Returns an epoll descriptor that is readable when `fd` is, so that asio can own it without
// changing the flags of `fd`. Returns an invalid descriptor for files, which are always readable.
UniqueFd EpollOf(int fd) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) epoll.Reset();
  return epoll;
}

bool HasBytes(int fd) {
  int count = 0;
  return ::ioctl(fd, FIONREAD, &count) == 0 && count > 0;
}

bool IsReadable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

}  // namespace

StdinForwarder::StdinForwarder(asio::io_context& loop, int fd, Send send,
                               std::function<void()> on_line)
    : fd_(fd),
      is_terminal_(::isatty(fd) == 1),
      send_(std::move(send)),
      on_line_(std::move(on_line)),
      readable_(loop),
      timer_(loop) {
  if (UniqueFd epoll = EpollOf(fd)) readable_.assign(epoll.Release());
}

void StdinForwarder::Start() {
  if (std::exchange(running_, true)) return;
  Await();
}

void StdinForwarder::Stop() {
  ++runs_;
  running_ = busy_ = false;
  data_.clear();
  asio::error_code ignored;
  if (readable_.is_open()) readable_.cancel(ignored);
  timer_.cancel();
}

void StdinForwarder::Await() {
  if (!running_ || ended_ || std::exchange(busy_, true)) return;
  if (!readable_.is_open()) return Read();
  readable_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this, run = runs_](const asio::error_code& error) {
                         if (!error && run == runs_) Read();
                       });
}

void StdinForwarder::After(std::chrono::milliseconds delay, void (StdinForwarder::*next)()) {
  timer_.expires_after(delay);
  timer_.async_wait([this, next, run = runs_](const asio::error_code& error) {
    if (!error && run == runs_) (this->*next)();
  });
}

void StdinForwarder::Read() {
  // A process in the background would be stopped if it read from the terminal, so the read is
  // delayed.
  if (is_terminal_ && ::tcgetpgrp(fd_) != ::getpgrp())
    return After(kBackgroundPoll, &StdinForwarder::Read);
  if (!IsReadable(fd_)) {
    busy_ = false;
    return Await();
  }
  data_.resize(kReadBytes);
  const ssize_t count = ::read(fd_, data_.data(), data_.size());
  const bool again = count < 0 && (errno == EINTR || errno == EAGAIN);
  data_.resize(count > 0 ? static_cast<size_t>(count) : 0);
  if (again) return After(kAgainAfter, &StdinForwarder::Read);
  ended_ = count <= 0;
  if (is_terminal_ && data_.ends_with('\n')) on_line_();
  SendOn();
}

void StdinForwarder::SendOn() {
  send_(data_, ended_, [this, run = runs_](bool taken) {
    if (run != runs_) return;
    if (!taken) return After(kAgainAfter, &StdinForwarder::SendOn);
    busy_ = false;
    Await();
  });
}

StdinWatch::StdinWatch(asio::io_context& loop, int fd, std::function<void()> on_input)
    : readable_(loop) {
  UniqueFd epoll = EpollOf(fd);
  if (!epoll) {
    if (HasBytes(fd)) on_input();
    return;
  }
  readable_.assign(epoll.Release());
  readable_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [fd, on_input = std::move(on_input)](const asio::error_code& error) {
                         // No input is reported at the end of stdin.
                         if (!error && HasBytes(fd)) on_input();
                       });
}

}  // namespace dslaunch
