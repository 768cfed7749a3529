// Implements the I/O of ResumableCore: carries bytes between a local socket and the current
// connection.
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
// one window of bytes in each direction, and no buffers while idle. All calls, including the
// destructor, are made on the loop's thread.
class ResumableStream {
 public:
  struct Handlers {
    // Called when the connection broke before the peer ended the stream. Call ResumeAt() or Close()
    // next.
    std::function<void(const std::string& why)> on_broken;
    // Called when all data that the local side sent before its end has been written to a
    // connection, or can no longer be written.
    std::function<void()> on_all_sent;
    // Called when the stream has ended, because Close() was called, or the peer ended the stream or
    // violated the protocol.
    std::function<void()> on_closed = {};
  };

  // Precondition: `local` is a stream socket, which carries the local side's data.
  ResumableStream(asio::io_context& loop, UniqueFd local, Handlers handlers);

  // Starts the first connection. It is closed once reading from it has ended and all pending data
  // is written.
  void Connect(std::unique_ptr<StreamEnd> to);

  uint64_t received() const { return core_.received(); }
  bool CanResumeAt(uint64_t peer_received) const {
    return !over_ && core_.CanResumeAt(peer_received);
  }
  // Closes the current connection, if there is one, without notifying the peer.
  void Disconnect() { connection_.reset(); }
  // Continues on a new connection, on which both ends have already exchanged their numbers of
  // received bytes. Precondition: CanResumeAt(peer_received).
  void ResumeAt(uint64_t peer_received, std::unique_ptr<StreamEnd> to);

  // Returns the descriptor of the local socket's own end, for shutdown() and poll() only. Any
  // thread may call this during the object's lifetime.
  int local_fd() { return local_.native_handle(); }

  // Ends the stream, so that no other connection follows. Shuts down the local side after the data
  // that has arrived was written to it.
  void Close();
  // Shuts down the local side at once. Data that the local side has sent, and then its end, are
  // still sent to the peer.
  void ShutLocal();

 private:
  struct Connection {
    explicit Connection(std::unique_ptr<StreamEnd> to) : end(std::move(to)) {}
    const std::unique_ptr<StreamEnd> end;
    bool is_writing = false;
    std::string frames;  // frames that are being written to the connection
    size_t written = 0;  // number of bytes of `frames` that have been written
  };
  // Writes the frames of connection `to` and keeps it alive until then, even if the stream has
  // dropped the connection. Calls `then` unless a write fails.
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
  // The current connection; nullptr if there is none. A callback does nothing if this is no longer
  // the connection for which it was started.
  std::shared_ptr<Connection> connection_;
  bool is_reading_local_ = false;
  bool is_writing_local_ = false;
  bool local_ended_ = false;  // true once the local side has sent its end
  // False if data for the local side is dropped, so that only the peer's end matters.
  bool local_accepts_ = true;
  bool over_ = false;  // true if no connection follows, so that data from the local side is dropped
  bool reported_all_sent_ = false;
  // Expires with this object, so that callbacks that run later do nothing.
  const std::shared_ptr<const bool> exists_ = std::make_shared<const bool>(true);
};

}  // namespace dslaunch
