// Implements a command that runs over an SSH session, with its standard streams in bounded buffers.
#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// Keeps the last kMaxBytes bytes of a stream. Thread-safe.
class TailBuffer {
 public:
  void Append(std::string_view bytes);
  std::string Get() const;

  static constexpr size_t kMaxBytes = 4096;

 private:
  mutable Mutex mutex_;
  std::string tail_ DSL_GUARDED_BY(mutex_);
};

// A command on a session, or a forwarded connection; owns a channel. Must be used on its session's
// thread and destroyed before the session. Libssh delivers bytes by callback while it handles
// packets, so only the bytes that Refill() fetches remain in libssh.
class SshStream {
 public:
  // Creates a channel of `session`. `stderr_tail` receives the command's stderr and must outlive
  // this object.
  SshStream(ssh_session session, TailBuffer& stderr_tail);
  SshStream(const SshStream&) = delete;
  SshStream& operator=(const SshStream&) = delete;
  ~SshStream();

  ssh_channel channel() const { return channel_; }

  // Returns the command's stdout, which the caller consumes. While the buffer holds kHighWater
  // bytes, further bytes stay in libssh, whose window then stops the remote side.
  std::string& inbound() { return inbound_; }

  // Fetches the bytes that stayed in libssh. Does nothing unless inbound() is empty.
  void Refill();

  // Returns the number of bytes held by libssh. The number is bounded unless the remote side
  // violates its window.
  size_t HeldBytes() const;

  // Sends as many bytes as the remote window accepts now, at most kMostWritten. Returns their
  // number, or -1 if the channel is broken. A result of 0 with an open window means that keys are
  // being exchanged or enough bytes are in transit; the caller should retry soon.
  int Write(std::string_view bytes);
  uint32_t WindowBytes() const { return ::ssh_channel_window_size(channel_); }
  void SendEof();

  bool AtEof() const { return ::ssh_channel_is_eof(channel_) != 0 && inbound_.empty(); }
  bool Closed() const { return closed_; }
  std::optional<int> exit_status() const { return exit_status_; }

  // Returns the number of deliveries so far, so that a caller can detect a delivery inside a call
  // to libssh.
  uint64_t deliveries() const { return deliveries_; }

  static constexpr size_t kHighWater = 256 * 1024;
  // Largest number of bytes per Write. libssh holds the bytes twice and keeps that memory for the
  // life of the session. Together with libssh's overhead the size fits in a power of two.
  static constexpr size_t kMostWritten = 4 * 1024 - 256;
  // Initial limit of bytes that were sent and not yet consumed by the command. For each packet,
  // OpenSSH's sshd copies everything that it holds for a command. Small packets would therefore
  // cost four times as much if sshd's whole window of 2 MiB were used.
  static constexpr uint32_t kMostUnderWay = 256 * 1024;
  // Time after which the limit is doubled if it was reached without a break. Some remote sides
  // acknowledge late.
  static constexpr milliseconds kHeldAtMost{250};

 private:
  static int OnData(ssh_session, ssh_channel, void* data, uint32_t size, int is_stderr, void* self);
  static void OnEof(ssh_session, ssh_channel, void* self);
  static void OnClose(ssh_session, ssh_channel, void* self);
  static void OnExitStatus(ssh_session, ssh_channel, int status, void* self);
  bool MaySend();

  const ssh_channel channel_;  // the owned channel; null if out of memory
  TailBuffer& stderr_tail_;
  ssh_channel_callbacks_struct callbacks_{};
  std::string inbound_;
  bool closed_ = false;
  std::optional<int> exit_status_;
  uint64_t deliveries_ = 0;
  uint32_t widest_ = 0;  // size of the remote window when no bytes are in transit
  uint64_t most_under_way_ = kMostUnderWay;
  // Time since which the limit of bytes in transit is reached; nullopt while the limit is not
  // reached.
  std::optional<Clock::time_point> held_since_;
};

}  // namespace dslaunch
