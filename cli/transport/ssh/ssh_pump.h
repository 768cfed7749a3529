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
  bool closed_by_node = false;     // the command ended; false if the connection was lost or stopped
  std::optional<int> exit_status;  // nullopt if a signal ended the command
  std::string error;               // why the connection was lost
};

// Runs on a loop's thread, without blocking; only that thread may use the session meanwhile. Memory
// is bounded in both directions: neither side is read while the other accepts no bytes.
class SshPump : public std::enable_shared_from_this<SshPump> {
 public:
  using OnEnd = std::function<void(PumpEnd)>;

  // `session` and `stream` must outlive Stop().
  SshPump(asio::io_context& loop, SshSession& session, SshStream& stream,
          std::unique_ptr<StreamEnd> local, OnEnd on_end);

  // Starts the transfer. `on_end` is called once, when the command has ended or the connection is
  // lost. End of file is forwarded in each direction separately. The remote side's last bytes are
  // still delivered after `on_end`; then the local stream is shut.
  void Start();
  // Ends the local stream in both directions; bytes already read from it are still sent.
  void ShutLocal();
  // Closes the local stream. After that no bytes are transferred and no callback runs.
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
  asio::posix::stream_descriptor session_ready_;  // borrowed descriptor
  asio::steady_timer retry_timer_;
  std::array<bool, kNumWaits> awaited_{};
  size_t delivered_ = 0;    // bytes of stream_.inbound()
  std::string to_remote_;   // read from local_, not yet accepted by the channel
  size_t sent_ = 0;         // bytes of to_remote_ already sent
  bool local_open_ = true;  // local_ accepts bytes
  bool local_eof_ = false;  // local_ has reached end of file
  bool sent_eof_local_ = false;
  bool sent_eof_remote_ = false;
  bool retry_soon_ = false;
  bool ended_ = false;
  bool stopped_ = false;
  std::string error_;
};

}  // namespace dslaunch
