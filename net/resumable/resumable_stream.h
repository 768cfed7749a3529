// Does the I/O of ResumableCore: carries bytes between a local socket and the current connection.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "base/unique_fd.h"
#include "net/resumable/resumable_core.h"
#include "net/resumable/stream_end.h"

namespace dslaunch {

// One end of a resumable stream. While there is no connection, the local side waits. Holds at most
// one window of bytes in each direction, and none when idle. All calls, including destruction, are
// on the loop's thread.
class ResumableStream {
 public:
  struct Handlers {
    // Called when the connection broke before the peer ended the stream. Call ResumeAt() or Close()
    // next.
    std::function<void(const std::string& why)> on_broken;
    // Called when all that the local side sent before its end was written to a connection, or never
    // will be.
    std::function<void()> on_all_sent;
    // Called when the stream is over: Close() was called, or the peer ended the stream or violated
    // the protocol.
    std::function<void()> on_closed = {};
  };

  // Precondition: `local` is a stream socket.
  ResumableStream(asio::io_context& loop, UniqueFd local, Handlers handlers);

  // Starts the first connection. It is closed once nothing more is read from it and all pending
  // data is written.
  void Connect(std::unique_ptr<StreamEnd> to);

  uint64_t received() const { return core_.received(); }
  bool CanResumeAt(uint64_t peer_received) const {
    return !over_ && core_.CanResumeAt(peer_received);
  }
  // Closes the connection, if any, without notifying the peer.
  void Disconnect() { connection_.reset(); }
  // Continues on a new connection, on which both ends have exchanged the number of bytes received.
  // Precondition: CanResumeAt(peer_received).
  void ResumeAt(uint64_t peer_received, std::unique_ptr<StreamEnd> to);

  // Returns this end of the local socket, for shutdown() and poll() only. Any thread may call it
  // during the object's lifetime.
  int local_fd() { return local_.native_handle(); }

  // Ends the stream: no other connection follows. The local side is shut down after the data that
  // has arrived.
  void Close();
  // Shuts down the local side at once. The data that it has sent, and then its end, are still sent
  // to the peer.
  void ShutLocal();

 private:
  struct Connection {
    explicit Connection(std::unique_ptr<StreamEnd> to) : end(std::move(to)) {}
    const std::unique_ptr<StreamEnd> end;
    bool is_writing = false;
    std::string frames;  // frames that are being written
    size_t written = 0;  // number of bytes of `frames` that are written
  };
  // Writes the connection's frames and keeps the connection alive until then, even if the stream
  // has dropped it. Calls `then` unless a write fails.
  static void WriteFrames(asio::io_context& loop, const std::shared_ptr<Connection>& to,
                          std::function<void()> then);

  void ReadLocal();
  void OnLocalReadable(std::error_code error);
  void WriteLocal();
  void ReadConnection();
  void WriteConnection();
  void Break(const std::string& why);
  void ReportAllSent();

  asio::io_context& loop_;
  asio::posix::stream_descriptor local_;
  const Handlers handlers_;
  ResumableCore core_;
  // The current connection; null if there is none. Callbacks compare it with the connection for
  // which they were started.
  std::shared_ptr<Connection> connection_;
  bool is_reading_local_ = false;
  bool is_writing_local_ = false;
  bool local_ended_ = false;  // true once reading from the local side has ended
  // False if data for the local side is dropped, and only the peer's end is awaited.
  bool local_accepts_ = true;
  bool over_ = false;  // true if no connection follows; data from the local side is dropped
  bool reported_all_sent_ = false;
  // Expires with this object, so that later callbacks do nothing.
  const std::shared_ptr<const bool> exists_ = std::make_shared<const bool>(true);
};

}  // namespace dslaunch
