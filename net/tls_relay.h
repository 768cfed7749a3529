// gRPC, and connections between ranks, behind our own TLS: the decrypted side of a connection.
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

// Passes on what arrives on either side until one of them ends; then it closes both. Holds at most
// a chunk (128 KiB) of each direction: who does not read slows down who writes. On the loop's
// thread.
class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  // `secure` is past its handshake; `plain` is a connected stream socket. `on_end` is called once,
  // unless Stop was.
  TlsRelay(std::shared_ptr<TlsStream> secure, UniqueFd plain, std::function<void()> on_end);

  void Start();
  void Stop();

  // True if the connection broke; false if the peer closed it. Set before the plain side is
  // closed, so who sees that end can read it.
  std::shared_ptr<const std::atomic<bool>> broke() const { return broke_; }

 private:
  // Each moves a chunk, and is called again when there may be more, or when more is taken.
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
  std::string inward_;  // what the plain side has not taken yet
};

}  // namespace dslaunch
