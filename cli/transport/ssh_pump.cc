#include "cli/transport/ssh_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace dslaunch {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMaxHeldBytes = 16 * 1024 * 1024;
constexpr int kKeyExchangePollMs = 2;

}  // namespace

SshPump::SshPump(SshSession& session, SshStream& stream, int local_fd)
    : session_(session), stream_(stream), local_fd_(local_fd) {
  ::fcntl(local_fd_, F_SETFL, ::fcntl(local_fd_, F_GETFL) | O_NONBLOCK);
}

PumpEnd SshPump::Run() {
  bool awake = true;
  while (awake) {
    const bool alive = session_.Process();
    uint64_t seen = 0;
    bool failed_over = false;
    do {
      // A call to libssh may deliver bytes of the other direction: go round until nothing happens.
      seen = stream_.deliveries();
      failed_over = ToLocal();
      failed_over |= ToRemote();
    } while (error_.empty() && (failed_over || seen != stream_.deliveries()));
    if (stream_.Closed()) return {true, stream_.exit_status(), ""};
    if (!alive || !error_.empty())
      return {false, {}, error_.empty() ? session_.LastError() : error_};
    awake = Sleep();
  }
  return {false, {}, "stopped"};
}

void SshPump::Finish() {
  while (true) {
    while (ToLocal()) {
    }
    if (stream_.inbound().empty() || !local_open_) break;
    pollfd fds[2] = {{local_fd_, POLLOUT, 0}, {session_.stop_fd(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) break;
    if (fds[1].revents != 0) break;
  }
  ::shutdown(local_fd_, SHUT_RDWR);
}

bool SshPump::ToLocal() {
  if (stream_.inbound().empty()) stream_.Refill();
  std::string& inbound = stream_.inbound();
  if (inbound.empty()) {
    if (stream_.AtEof() && !sent_eof_local_) {
      ::shutdown(local_fd_, SHUT_WR);
      sent_eof_local_ = true;
    }
    return false;
  }
  ssize_t n = static_cast<ssize_t>(inbound.size() - delivered_);
  if (local_open_)
    n = ::send(local_fd_, inbound.data() + delivered_, static_cast<size_t>(n), MSG_NOSIGNAL);
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) {
      if (stream_.HeldBytes() > kMaxHeldBytes)
        error_ = "the node sends more than its window allows";
      return false;
    }
    local_open_ = false;  // no reader is left: read and drop, so that the far side is not held up
    return true;
  }
  delivered_ += static_cast<size_t>(n);
  if (delivered_ == inbound.size()) {
    inbound.clear();
    delivered_ = 0;
  }
  return true;
}

bool SshPump::ToRemote() {
  exchanging_keys_ = false;
  bool failed_over = false;
  if (to_remote_.empty() && !local_eof_) {
    std::array<char, kReadBytes> bytes;
    const ssize_t n = ::recv(local_fd_, bytes.data(), bytes.size(), 0);
    if (n > 0) to_remote_.assign(bytes.data(), static_cast<size_t>(n));
    local_eof_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    failed_over = n > 0;
  }
  if (!to_remote_.empty() && stream_.WindowBytes() > 0 && !session_.WritePending()) {
    const int n = stream_.Write(std::string_view(to_remote_).substr(sent_));
    if (n < 0) {  // the channel takes no more: its end follows by itself
      to_remote_.clear();
      sent_ = 0;
      local_eof_ = sent_eof_remote_ = true;
      return true;
    }
    exchanging_keys_ = n == 0;
    failed_over |= n > 0;
    sent_ += static_cast<size_t>(n);
    if (sent_ == to_remote_.size()) {
      to_remote_.clear();
      sent_ = 0;
    }
  }
  if (local_eof_ && to_remote_.empty() && !sent_eof_remote_) {
    stream_.SendEof();
    sent_eof_remote_ = true;
  }
  return failed_over;
}

// False when stopped.
bool SshPump::Sleep() {
  const bool wants_local = to_remote_.empty() && !local_eof_;
  const bool has_for_local = local_open_ && !stream_.inbound().empty();
  const short local_events =
      static_cast<short>((wants_local ? POLLIN : 0) | (has_for_local ? POLLOUT : 0));
  const short ssh_events = static_cast<short>(POLLIN | (session_.WritePending() ? POLLOUT : 0));
  pollfd fds[3] = {{session_.socket(), ssh_events, 0},
                   // Left out when nothing is asked of it, for poll() always reports a hang-up.
                   {local_events != 0 ? local_fd_ : -1, local_events, 0},
                   {session_.stop_fd(), POLLIN, 0}};
  ::poll(fds, 3, exchanging_keys_ ? kKeyExchangePollMs : -1);
  return fds[2].revents == 0;
}

}  // namespace dslaunch
