// gRPC behind our own TLS: the decrypted side of a connection.
#pragma once

#include <array>
#include <asio/local/stream_protocol.hpp>
#include <functional>
#include <memory>

#include "base/unique_fd.h"
#include "net/tls.h"

namespace dslaunch {

// Passes on what arrives on either side until one of them ends; then it closes both. Holds at most
// a chunk of each direction: who does not read slows down who writes. On the loop's thread.
class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  // `secure` is past its handshake; `plain` is a connected stream socket. `on_end` is called once,
  // unless Stop was.
  TlsRelay(std::shared_ptr<TlsStream> secure, UniqueFd plain, std::function<void()> on_end);

  void Start();
  void Stop();

 private:
  // The largest that a TLS record holds.
  using Chunk = std::array<char, 16 << 10>;

  void ReadSecure();
  void ReadPlain();
  void End();

  const std::shared_ptr<TlsStream> secure_;
  asio::local::stream_protocol::socket plain_;
  std::function<void()> on_end_;
  Chunk inward_;
  Chunk outward_;
};

}  // namespace dslaunch
