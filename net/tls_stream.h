// TLS on a TCP socket, for connections that carry much: it moves as many records as there are at
// once, where asio::ssl::stream makes system calls for each record of 16 KiB.
#pragma once

#include <openssl/ssl.h>

#include <asio/ip/tcp.hpp>
#include <asio/ssl/context.hpp>
#include <asio/ssl/stream_base.hpp>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <system_error>

#include "net/openssl_ptr.h"

namespace dslaunch {

// On the thread of the socket's loop. An idle stream holds no buffers for reading.
class TlsStream {
 public:
  using Role = asio::ssl::stream_base::handshake_type;

  // `socket` may be connected later.
  TlsStream(asio::ip::tcp::socket socket, asio::ssl::context& context);

  // Once, on a connected socket. Calls `on_done` later; it has to keep the stream alive. Fails with
  // an error of the system, of asio::error or of OpenSSL.
  void Handshake(Role role, std::function<void(std::error_code)> on_done);

  // After the handshake; none of these waits.
  //
  // As many bytes as are there and fit. `error`: would_block when there are none, asio::error::eof
  // at the end. An error comes after the last byte before it, and again with each later call.
  size_t Read(std::span<char> buffer, std::error_code& error);
  // Encrypts `data`; Flush sends it.
  std::error_code Write(std::string_view data);
  // would_block when the socket takes no more.
  std::error_code Flush();

  asio::ip::tcp::socket& socket() { return socket_; }
  SSL* ssl() { return ssl_.get(); }

 private:
  void ContinueHandshake(std::function<void(std::error_code)> on_done);
  void FlushThen(std::function<void(std::error_code)> on_done);
  // Of an OpenSSL call that has just returned `result`, which was no success.
  std::error_code ErrorOf(int result) const;

  asio::ip::tcp::socket socket_;
  const OpenSslPtr<SSL, SSL_free> ssl_;
  BIO* output_ = nullptr;  // of ssl_: what is encrypted and not yet sent
  size_t sent_ = 0;        // of the bytes in output_
  // The kernel says a connection's error once: after a reset, the next read looks like an end.
  std::error_code read_error_;
};

}  // namespace dslaunch
