// Moves bytes between a command on a node and a local socket. Our own, because libssh's connector
// takes a closed window for end of file.
#pragma once

#include <optional>
#include <string>

#include "cli/transport/ssh_session.h"
#include "cli/transport/ssh_stream.h"

namespace dslaunch {

struct PumpEnd {
  bool closed_by_node = false;     // the command ended; false: connection lost or stopped
  std::optional<int> exit_status;  // absent when a signal ended the command
  std::string error;               // why the connection was lost
};

// Runs in the session's thread. Memory is bounded in both directions: it reads from neither side
// while the other does not take, and sleeps in poll() meanwhile.
class SshPump {
 public:
  // `local_fd` is a stream socket, borrowed, made non-blocking.
  SshPump(SshSession& session, SshStream& stream, int local_fd);

  // Returns when the command has ended or the connection is lost, or the session's stop descriptor
  // became readable. End of file is passed on in each direction by itself. What the far side sent
  // last may still wait: see Finish().
  PumpEnd Run();

  // Delivers the rest to the local socket, until stopped, and shuts it down.
  void Finish();

 private:
  bool ToLocal();
  bool ToRemote();
  bool Sleep();

  SshSession& session_;
  SshStream& stream_;
  const int local_fd_;
  size_t delivered_ = 0;    // of stream_.inbound()
  std::string to_remote_;   // read from local_fd_ and not yet taken by the channel
  size_t sent_ = 0;         // of to_remote_
  bool local_open_ = true;  // takes bytes
  bool local_eof_ = false;  // gives no more
  bool sent_eof_local_ = false;
  bool sent_eof_remote_ = false;
  bool exchanging_keys_ = false;
  std::string error_;
};

}  // namespace dslaunch
