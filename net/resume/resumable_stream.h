// The edge of a ResumableCore: carries bytes between a local socket and whichever connection there
// is at the moment.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "base/unique_fd.h"
#include "net/resume/resumable_core.h"

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

  // The first connection. Descriptors may be pipes or sockets; without `out`, `in` is a socket for
  // both directions.
  void Connect(UniqueFd in, UniqueFd out = UniqueFd());

  uint64_t received() const { return core_.received(); }
  bool CanResumeAt(uint64_t peer_received) const {
    return !over_ && core_.CanResumeAt(peer_received);
  }
  // Closes the connection, if there is one, without a word.
  void Disconnect() { connection_.reset(); }
  // A new connection, on which both ends have said what they have received. Only where CanResumeAt.
  void ResumeAt(uint64_t peer_received, UniqueFd in, UniqueFd out = UniqueFd());

  // There will be no other connection: the local side is shut behind what has arrived.
  void Close();
  // Shuts the local side at once: what it has sent still goes to the other end, and then its end.
  void ShutLocal();

 private:
  struct Connection {
    Connection(asio::io_context& loop, UniqueFd in, UniqueFd out);
    asio::posix::stream_descriptor in;
    std::optional<asio::posix::stream_descriptor> other_out;
    asio::posix::stream_descriptor& out();
    bool is_writing = false;
  };

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
