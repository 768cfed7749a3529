// A command running over an SSH session: its standard streams, held in bounded memory.
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

// The last bytes of a stream. Thread-safe.
class TailBuffer {
 public:
  void Append(std::string_view bytes);
  std::string Get() const;

  static constexpr size_t kMaxBytes = 4096;

 private:
  mutable Mutex mutex_;
  std::string tail_ DSL_GUARDED_BY(mutex_);
};

// Owns a channel. Used where its session is, and must die before it. All that libssh
// delivers while it handles packets comes here by callback, so nothing lies unseen in libssh except
// what Refill() fetches.
class SshStream {
 public:
  // `stderr_tail` gets what the command writes to stderr; it must outlive this.
  SshStream(ssh_session session, TailBuffer& stderr_tail);
  SshStream(const SshStream&) = delete;
  SshStream& operator=(const SshStream&) = delete;
  ~SshStream();

  ssh_channel channel() const { return channel_; }

  // What the command wrote to stdout; the caller takes from it. While it holds kHighWater bytes,
  // more is left to libssh, whose window then stops the far side.
  std::string& inbound() { return inbound_; }

  // When inbound() is empty, fetches what was left to libssh.
  void Refill();

  // Bytes that libssh holds back. Grows without bound only when the far side misuses its window.
  size_t HeldBytes() const;

  // Sends what the far side's window takes now, kMostWritten bytes at most. How many that was; -1
  // when the channel is broken. 0 with an open window means that keys are being exchanged, or that
  // enough is under way: try again soon.
  int Write(std::string_view bytes);
  uint32_t WindowBytes() const { return ::ssh_channel_window_size(channel_); }
  void SendEof();

  bool AtEof() const { return ::ssh_channel_is_eof(channel_) != 0 && inbound_.empty(); }
  bool Closed() const { return closed_; }
  std::optional<int> exit_status() const { return exit_status_; }

  // Counts deliveries, so that a caller can tell whether one happened inside a call to libssh.
  uint64_t deliveries() const { return deliveries_; }

  static constexpr size_t kHighWater = 256 * 1024;
  // libssh holds it twice, and the memory for that as long as the session lives. With what libssh
  // adds, it fits in a power of two.
  static constexpr size_t kMostWritten = 4 * 1024 - 256;
  // Sent and not yet taken by the command, at first. For each packet OpenSSH's sshd copies all that
  // it holds for a command: with its whole window of 2 MiB, small packets cost it four times as
  // much.
  static constexpr uint32_t kMostUnderWay = 256 * 1024;
  // Some far sides tell late what is taken: twice as much from then on.
  static constexpr milliseconds kHeldAtMost{250};

 private:
  static int OnData(ssh_session, ssh_channel, void* data, uint32_t size, int is_stderr, void* self);
  static void OnEof(ssh_session, ssh_channel, void* self);
  static void OnClose(ssh_session, ssh_channel, void* self);
  static void OnExitStatus(ssh_session, ssh_channel, int status, void* self);
  bool MaySend();

  const ssh_channel channel_;  // null when out of memory
  TailBuffer& stderr_tail_;
  ssh_channel_callbacks_struct callbacks_{};
  std::string inbound_;
  bool closed_ = false;
  std::optional<int> exit_status_;
  uint64_t deliveries_ = 0;
  uint32_t widest_ = 0;  // the far side's window when nothing is under way
  uint64_t most_under_way_ = kMostUnderWay;
  std::optional<Clock::time_point> held_since_;  // so much is under way
};

}  // namespace dslaunch
