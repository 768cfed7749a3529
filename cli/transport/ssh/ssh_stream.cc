#include "cli/transport/ssh/ssh_stream.h"

#include <algorithm>

namespace dslaunch {

void TailBuffer::Append(std::string_view bytes) {
  const MutexLock lock(mutex_);
  if (bytes.size() > kMaxBytes) bytes.remove_prefix(bytes.size() - kMaxBytes);
  tail_.append(bytes);
  if (tail_.size() > kMaxBytes) tail_.erase(0, tail_.size() - kMaxBytes);
}

std::string TailBuffer::Get() const {
  const MutexLock lock(mutex_);
  return tail_;
}

SshStream::SshStream(ssh_session session, TailBuffer& stderr_tail)
    : channel_(::ssh_channel_new(session)), stderr_tail_(stderr_tail) {
  ssh_callbacks_init(&callbacks_);
  callbacks_.userdata = this;
  callbacks_.channel_data_function = &SshStream::OnData;
  callbacks_.channel_eof_function = &SshStream::OnEof;
  callbacks_.channel_close_function = &SshStream::OnClose;
  callbacks_.channel_exit_status_function = &SshStream::OnExitStatus;
  if (channel_ != nullptr) ::ssh_add_channel_callbacks(channel_, &callbacks_);
}

SshStream::~SshStream() {
  if (channel_ == nullptr) return;
  ::ssh_remove_channel_callbacks(channel_, &callbacks_);
  ::ssh_channel_free(channel_);
}

int SshStream::OnData(ssh_session, ssh_channel, void* data, uint32_t size, int is_stderr,
                      void* self) {
  SshStream& stream = *static_cast<SshStream*>(self);
  ++stream.deliveries_;
  const std::string_view bytes(static_cast<const char*>(data), size);
  if (is_stderr != 0) {
    stream.stderr_tail_.Append(bytes);
  } else if (stream.inbound_.size() < kHighWater) {
    stream.inbound_.append(bytes);
  } else {
    return 0;
  }
  return static_cast<int>(size);
}

void SshStream::OnEof(ssh_session, ssh_channel, void* self) {
  ++static_cast<SshStream*>(self)->deliveries_;
}

void SshStream::OnClose(ssh_session, ssh_channel, void* self) {
  ++static_cast<SshStream*>(self)->deliveries_;
  static_cast<SshStream*>(self)->closed_ = true;
}

void SshStream::OnExitStatus(ssh_session, ssh_channel, int status, void* self) {
  static_cast<SshStream*>(self)->exit_status_ = status;
}

void SshStream::Refill() {
  if (!inbound_.empty()) return;
  const size_t held = HeldBytes();
  if (held == 0 || !inbound_.empty()) return;
  // Each read makes libssh open its window fully, however much libssh still holds. Small reads for
  // a slow reader would therefore let libssh's buffer grow without bound, so all bytes are read at
  // once.
  inbound_.resize(held);
  const int n = ::ssh_channel_read(channel_, inbound_.data(), static_cast<uint32_t>(held), 0);
  inbound_.resize(static_cast<size_t>(std::max(n, 0)));
}

size_t SshStream::HeldBytes() const {
  return static_cast<size_t>(std::max(0, ::ssh_channel_poll(channel_, 0)));
}

int SshStream::Write(std::string_view bytes) {
  const size_t size = std::min<size_t>({bytes.size(), WindowBytes(), kMostWritten});
  if (size == 0 || !MaySend()) return 0;
  return std::max(-1, ::ssh_channel_write(channel_, bytes.data(), static_cast<uint32_t>(size)));
}

bool SshStream::MaySend() {
  const uint32_t window = WindowBytes();
  widest_ = std::max(widest_, window);
  if (widest_ - window >= most_under_way_) {
    const Clock::time_point now = Clock::now();
    if (!held_since_) held_since_ = now;
    if (now - *held_since_ < kHeldAtMost) return false;
    most_under_way_ *= 2;
  }
  held_since_.reset();
  return true;
}

void SshStream::SendEof() { ::ssh_channel_send_eof(channel_); }

}  // namespace dslaunch
