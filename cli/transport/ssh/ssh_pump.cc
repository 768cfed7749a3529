#include "cli/transport/ssh/ssh_pump.h"

#include <sys/socket.h>

#include <utility>

namespace dslaunch {
namespace {

using Descriptor = asio::posix::stream_descriptor;

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMaxHeldBytes = 16 * 1024 * 1024;
constexpr milliseconds kRetryAfter{2};

}  // namespace

SshPump::SshPump(asio::io_context& loop, SshSession& session, SshStream& stream,
                 std::unique_ptr<StreamEnd> local, OnEnd on_end)
    : session_(session),
      stream_(stream),
      on_end_(std::move(on_end)),
      local_(std::move(local)),
      session_ready_(loop),
      retry_timer_(loop) {}

void SshPump::Start() {
  std::error_code error;
  session_ready_.assign(session_.socket(), error);
  if (error) error_ = "it cannot be watched: " + error.message();
  Turn();
}

void SshPump::ShutLocal() {
  if (local_) local_->Shut();
}

void SshPump::Stop() {
  if (std::exchange(stopped_, true)) return;
  retry_timer_.cancel();
  if (session_ready_.is_open()) session_ready_.release();
  local_.reset();
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
    // A call to libssh may deliver bytes of the other direction, so repeat until no more bytes
    // arrive.
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

// Delivers the last bytes of the remote side. Returns false while the local side accepts no more
// bytes.
bool SshPump::DeliverRest() {
  while (ToLocal()) {
  }
  if (local_open_ && !stream_.inbound().empty()) return false;
  local_->Shut();
  return true;
}

bool SshPump::ToLocal() {
  if (stream_.inbound().empty()) stream_.Refill();
  std::string& inbound = stream_.inbound();
  if (inbound.empty()) {
    if (stream_.AtEof() && !sent_eof_local_) {
      local_->ShutWrite();
      sent_eof_local_ = true;
    }
    return false;
  }
  std::error_code error;
  const std::string_view rest = std::string_view(inbound).substr(delivered_);
  const size_t taken = local_open_ ? local_->Write(rest, error) : rest.size();
  if (IsToBeAwaited(error)) {
    if (stream_.HeldBytes() > kMaxHeldBytes) error_ = "the node sends more than its window allows";
    return false;
  }
  if (error) {
    // The local stream has no reader, so its bytes are read and dropped; otherwise the remote side
    // would block.
    local_open_ = false;
    return true;
  }
  delivered_ += taken;
  if (delivered_ == inbound.size()) {
    std::string().swap(inbound);
    delivered_ = 0;
  }
  return true;
}

bool SshPump::ToRemote() {
  retry_soon_ = false;
  bool moved = false;
  if (to_remote_.empty() && !local_eof_) {
    std::array<char, kReadBytes> bytes;
    std::error_code error;
    to_remote_.assign(bytes.data(), local_->Read(bytes.data(), bytes.size(), error));
    local_eof_ = error && !IsToBeAwaited(error);
    moved = !error;
  }
  if (!to_remote_.empty() && stream_.WindowBytes() > 0 && !session_.WritePending()) {
    const int n = stream_.Write(std::string_view(to_remote_).substr(sent_));
    if (n < 0) {  // the channel accepts no more bytes; OnClose will report its end
      to_remote_.clear();
      sent_ = 0;
      local_eof_ = sent_eof_remote_ = true;
      return true;
    }
    retry_soon_ = n == 0;
    moved |= n > 0;
    sent_ += static_cast<size_t>(n);
    if (sent_ == to_remote_.size()) {
      std::string().swap(to_remote_);
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
  if (!retry_soon_) return;
  retry_timer_.expires_after(kRetryAfter);
  retry_timer_.async_wait([self = shared_from_this()](std::error_code error) {
    if (!error) self->Turn();
  });
}

// Calls Turn() after one readiness event. A hang-up counts as ready, so call Await only if bytes
// are to be transferred.
void SshPump::Await(Wait which) {
  if (std::exchange(awaited_[which], true)) return;
  OnReady then = [self = shared_from_this(), which](std::error_code error) {
    self->awaited_[which] = false;
    if (!error) self->Turn();
  };
  switch (which) {
    case kReadSession:
      return session_ready_.async_wait(Descriptor::wait_read, std::move(then));
    case kWriteSession:
      return session_ready_.async_wait(Descriptor::wait_write, std::move(then));
    case kReadLocal:
      return local_->AwaitReadable(std::move(then));
    case kWriteLocal:
      return local_->AwaitWritable(std::move(then));
    case kNumWaits:
      return;
  }
}

}  // namespace dslaunch
