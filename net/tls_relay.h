// Relays data between a TLS connection and its decrypted side, which gRPC or a connection between
// ranks uses.
#pragma once

#include <asio/local/stream_protocol.hpp>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <system_error>

#include "base/unique_fd.h"
#include "net/tls.h"

namespace dslaunch {

// Passes data between a TLS connection and a local socket until either ends, then closes both.
// Holds at most one chunk (128 KiB) in each direction, so a slow reader slows down the writer. Runs
// on the loop's thread.
class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  // Prepares the relay, which Start() begins. `on_end` is called once, when either side has ended,
  // unless Stop() was called. Precondition: `secure` has completed its handshake, and `plain` is a
  // connected stream socket.
  TlsRelay(std::shared_ptr<TlsStream> secure, UniqueFd plain, std::function<void()> on_end);

  void Start();
  void Stop();

  // Returns a flag that becomes true if the connection broke, and stays false if the peer closed
  // it. The flag is set before the plain side is closed, so a reader can check it after reading the
  // end.
  std::shared_ptr<const std::atomic<bool>> broke() const { return broke_; }

 private:
  // These functions move one chunk from one side to the other, then schedule themselves again for
  // the time when more data may arrive or the other side accepts more.
  void MoveInward();
  void MoveOutward();
  void FlushOutward();
  void SendInward(const char* data, size_t size);

  template <class Socket>
  void Await(Socket& socket, asio::socket_base::wait_type what, void (TlsRelay::*then)());
  void Again(void (TlsRelay::*then)());
  void End();
  void OnSecureError(const std::error_code& error);

  const std::shared_ptr<TlsStream> secure_;
  asio::local::stream_protocol::socket plain_;
  std::function<void()> on_end_;
  const std::shared_ptr<std::atomic<bool>> broke_ = std::make_shared<std::atomic<bool>>(false);
  bool is_over_ = false;
  std::string inward_;  // received data that the plain side has not yet accepted
};

}  // namespace dslaunch
