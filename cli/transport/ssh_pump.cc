#include "cli/transport/ssh_pump.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace dslaunch {
namespace {

using Descriptor = asio::posix::stream_descriptor;

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMaxHeldBytes = 16 * 1024 * 1024;
constexpr milliseconds kKeyExchangePoll{2};

}  // namespace

SshPump::SshPump(asio::io_context& loop, SshSession& session, SshStream& stream, int local_fd,
                 OnEnd on_end)
    : session_(session),
      stream_(stream),
      local_fd_(local_fd),
      on_end_(std::move(on_end)),
      session_ready_(loop),
      local_ready_(loop),
      keys_exchanged_(loop) {}

void SshPump::Start() {
  ::fcntl(local_fd_, F_SETFL, ::fcntl(local_fd_, F_GETFL) | O_NONBLOCK);
  std::error_code error;
  session_ready_.assign(session_.socket(), error);
  if (!error) local_ready_.assign(local_fd_, error);
  if (error) error_ = "it cannot be watched: " + error.message();
  Turn();
}

void SshPump::Stop() {
  if (std::exchange(stopped_, true)) return;
  keys_exchanged_.cancel();
  for (Descriptor* const descriptor : {&session_ready_, &local_ready_}) {
    if (descriptor->is_open()) descriptor->release();
  }
}

void SshPump::Turn() {
  if (stopped_) return;
  if (!ended_) Carry();
  if (!ended_ || !DeliverRest()) return AwaitMore();
  ::shutdown(session_.socket(), SHUT_RDWR);
  Stop();
}

void SshPump::Carry() {
  const bool alive = session_.Process();
  uint64_t seen = 0;
  bool moved = false;
  do {
    // A call to libssh may deliver bytes of the other direction: go round until nothing happens.
    seen = stream_.deliveries();
    moved = ToLocal();
    moved |= ToRemote();
  } while (error_.empty() && (moved || seen != stream_.deliveries()));
  if (stream_.Closed()) return End({true, stream_.exit_status(), ""});
  if (!alive || !error_.empty()) End({false, {}, error_.empty() ? session_.LastError() : error_});
}

void SshPump::End(PumpEnd how) {
  ended_ = true;
  on_end_(std::move(how));
}

// False while the local side takes no more.
bool SshPump::DeliverRest() {
  while (ToLocal()) {
  }
  if (local_open_ && !stream_.inbound().empty() && local_ready_.is_open()) return false;
  ::shutdown(local_fd_, SHUT_RDWR);
  return true;
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
  bool moved = false;
  if (to_remote_.empty() && !local_eof_) {
    std::array<char, kReadBytes> bytes;
    const ssize_t n = ::recv(local_fd_, bytes.data(), bytes.size(), 0);
    if (n > 0) to_remote_.assign(bytes.data(), static_cast<size_t>(n));
    local_eof_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    moved = n > 0;
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
    moved |= n > 0;
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
  return moved;
}

void SshPump::AwaitMore() {
  if (local_open_ && !stream_.inbound().empty()) Await(kWriteLocal);
  if (ended_) return;
  if (to_remote_.empty() && !local_eof_) Await(kReadLocal);
  Await(kReadSession);
  if (session_.WritePending()) Await(kWriteSession);
  if (!exchanging_keys_) return;
  keys_exchanged_.expires_after(kKeyExchangePoll);
  keys_exchanged_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) self->Turn();
  });
}

// Until it is ready once, as a hang-up always is: what nothing is asked of is not awaited.
void SshPump::Await(Wait which) {
  if (std::exchange(awaited_[which], true)) return;
  const bool is_session = which == kReadSession || which == kWriteSession;
  const bool is_read = which == kReadSession || which == kReadLocal;
  (is_session ? session_ready_ : local_ready_)
      .async_wait(is_read ? Descriptor::wait_read : Descriptor::wait_write,
                  [self = shared_from_this(), which](std::error_code error) {
                    self->awaited_[which] = false;
                    if (!error) self->Turn();
                  });
}

}  // namespace dslaunch
