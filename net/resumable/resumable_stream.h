// The edge of a ResumableCore: carries bytes between a local socket and whichever connection there
// is at the moment.
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

// While there is no connection the local side just waits. Holds a window of bytes in each direction
// at most, and none while nothing is under way. All on the loop's thread, its destruction too.
class ResumableStream {
 public:
  struct Handlers {
    // The connection broke before the other end had ended the stream. Resume or Close follows.
    std::function<void(const std::string& why)> on_broken;
    // What the local side sent before its end was written to a connection, or never will be.
    std::function<void()> on_all_sent;
    // No other connection follows: Close was called, or the other end has ended the stream or
    // broken its rules.
    std::function<void()> on_closed = {};
  };

  // `local` is a stream socket.
  ResumableStream(asio::io_context& loop, UniqueFd local, Handlers handlers);

  // The first connection. It is closed once no more is read from it and what was to be written is.
  void Connect(std::unique_ptr<StreamEnd> to);

  uint64_t received() const { return core_.received(); }
  bool CanResumeAt(uint64_t peer_received) const {
    return !over_ && core_.CanResumeAt(peer_received);
  }
  // Closes the connection, if there is one, without a word.
  void Disconnect() { connection_.reset(); }
  // A new connection, on which both ends have said what they have received. Only where CanResumeAt.
  void ResumeAt(uint64_t peer_received, std::unique_ptr<StreamEnd> to);

  // This end of the local socket, for shutdown and poll: by any thread, as long as this lives.
  int local_fd() { return local_.native_handle(); }

  // There will be no other connection: the local side is shut behind what has arrived.
  void Close();
  // Shuts the local side at once: what it has sent still goes to the other end, and then its end.
  void ShutLocal();

 private:
  struct Connection {
    explicit Connection(std::unique_ptr<StreamEnd> to) : end(std::move(to)) {}
    const std::unique_ptr<StreamEnd> end;
    bool is_writing = false;
    std::string frames;  // being written
    size_t written = 0;  // of them
  };
  // Keeps the connection until they are written, also when the stream has given that up. After an
  // error nothing is called.
  static void WriteFrames(asio::io_context& loop, const std::shared_ptr<Connection>& to,
                          std::function<void()> then);

  void ReadLocal();
  void TakeLocal(std::error_code error);
  void WriteLocal();
  void ReadConnection();
  void WriteConnection();
  void Break(const std::string& why);
  void TellAllSent();

  asio::io_context& loop_;
  asio::posix::stream_descriptor local_;
  const Handlers handlers_;
  ResumableCore core_;
  std::shared_ptr<Connection> connection_;  // handlers of an earlier one find another here
  bool is_reading_local_ = false;
  bool is_writing_local_ = false;
  bool local_ended_ = false;  // it gives no more
  bool local_takes_ = true;   // false: what arrives is dropped, so that its end is still seen
  bool over_ = false;         // no connection follows: what the local side gives is dropped
  bool told_all_sent_ = false;
  // Gone once this is: handlers that come later do nothing.
  const std::shared_ptr<const bool> exists_ = std::make_shared<const bool>(true);
};

}  // namespace dslaunch
