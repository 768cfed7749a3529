// Moves bytes between a command on a node and the end of a local stream. Our own, because libssh's
// connector takes a closed window for end of file.
#pragma once

#include <array>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/transport/ssh_session.h"
#include "cli/transport/ssh_stream.h"
#include "net/resumable/stream_end.h"

namespace dslaunch {

struct PumpEnd {
  bool closed_by_node = false;     // the command ended; false: connection lost or stopped
  std::optional<int> exit_status;  // absent when a signal ended the command
  std::string error;               // why the connection was lost
};

// On a loop's thread, where alone the session is used meanwhile; it never waits there. Memory is
// bounded in both directions: it reads from neither side while the other does not take.
class SshPump : public std::enable_shared_from_this<SshPump> {
 public:
  using OnEnd = std::function<void(PumpEnd)>;

  // The session and its stream must outlive Stop().
  SshPump(asio::io_context& loop, SshSession& session, SshStream& stream,
          std::unique_ptr<StreamEnd> local, OnEnd on_end);

  // From now on bytes are moved. `on_end` is called once: when the command has ended, or the
  // connection is lost. End of file is passed on in each direction by itself. What the far side
  // sent last is still delivered after that; then the connection is shut.
  void Start();
  // Ends the local stream in both directions; what it has given is still passed on.
  void ShutLocal();
  // Nothing is moved or called any more. The local stream is closed.
  void Stop();

 private:
  enum Wait { kReadSession, kWriteSession, kReadLocal, kWriteLocal, kNumWaits };
  using OnReady = StreamEnd::OnReady;

  void Turn();
  void Carry();
  bool ToLocal();
  bool ToRemote();
  bool DeliverRest();
  void AwaitMore();
  void Await(Wait which);
  void End(PumpEnd how);

  SshSession& session_;
  SshStream& stream_;
  const OnEnd on_end_;
  std::unique_ptr<StreamEnd> local_;              // null once stopped
  asio::posix::stream_descriptor session_ready_;  // borrowed
  asio::steady_timer retry_timer_;
  std::array<bool, kNumWaits> awaited_{};
  size_t delivered_ = 0;    // of stream_.inbound()
  std::string to_remote_;   // read from local_ and not yet taken by the channel
  size_t sent_ = 0;         // of to_remote_
  bool local_open_ = true;  // takes bytes
  bool local_eof_ = false;  // gives no more
  bool sent_eof_local_ = false;
  bool sent_eof_remote_ = false;
  bool retry_soon_ = false;
  bool ended_ = false;
  bool stopped_ = false;
  std::string error_;
};

}  // namespace dslaunch
