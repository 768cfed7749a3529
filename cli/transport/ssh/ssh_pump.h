// Transfers bytes between a command on a node and a local stream. Replaces libssh's connector,
// which treats a closed window as end of file.
#pragma once

#include <array>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/ssh/ssh_stream.h"
#include "net/resumable/stream_end.h"

namespace dslaunch {

struct PumpEnd {
  // True if the command ended; false if the connection was lost or stopped.
  bool closed_by_node = false;
  // Exit status of the command; nullopt if a signal ended the command.
  std::optional<int> exit_status;
  std::string error;  // cause if the connection was lost, otherwise empty
};

// Transfers bytes on a loop's thread, without blocking; meanwhile only that thread may use the
// session. Memory is bounded in both directions, because each side is read only while the other
// side accepts bytes.
class SshPump : public std::enable_shared_from_this<SshPump> {
 public:
  using OnEnd = std::function<void(PumpEnd)>;

  // Prepares the transfer. `session` and `stream` must live until Stop() has returned.
  SshPump(asio::io_context& loop, SshSession& session, SshStream& stream,
          std::unique_ptr<StreamEnd> local, OnEnd on_end);

  // Starts the transfer. Calls `on_end` once, when the command has ended or the connection is lost.
  // End of file is forwarded in each direction separately. The remote side's last bytes are still
  // delivered after `on_end`; then the local stream is shut.
  void Start();
  // Ends the local stream in both directions; bytes already read from it are still sent.
  void ShutLocal();
  // Closes the local stream. After Stop(), no bytes are transferred and no callback runs.
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
  std::unique_ptr<StreamEnd> local_;  // local stream; null after Stop()
  // Waits on the session's descriptor, which the session owns.
  asio::posix::stream_descriptor session_ready_;
  asio::steady_timer retry_timer_;
  std::array<bool, kNumWaits> awaited_{};
  size_t delivered_ = 0;    // number of leading bytes of stream_.inbound() already delivered
  std::string to_remote_;   // bytes read from local_ and not yet accepted by the channel
  size_t sent_ = 0;         // number of leading bytes of to_remote_ already sent
  bool local_open_ = true;  // whether local_ accepts bytes
  bool local_eof_ = false;  // whether local_ has reached end of file
  bool sent_eof_local_ = false;
  bool sent_eof_remote_ = false;
  bool retry_soon_ = false;
  bool ended_ = false;
  bool stopped_ = false;
  std::string error_;
};

}  // namespace dslaunch
