// Implements TLS on a TCP socket, for bulk data. Moves as many records as are available in one
// system call, whereas asio::ssl::stream makes several system calls for each record of 16 KiB.
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

// A TLS connection, used on the thread of the socket's loop. An idle connection holds no read
// buffers.
class TlsStream {
 public:
  using Role = asio::ssl::stream_base::handshake_type;

  // `socket` need not be connected before Handshake().
  TlsStream(asio::ip::tcp::socket socket, asio::ssl::context& context);

  // Performs the handshake. Call this once, on a connected socket. Calls `on_done` later, with an
  // error of the system, asio::error or OpenSSL if the handshake failed. The callback must keep the
  // stream alive.
  void Handshake(Role role, std::function<void(std::error_code)> on_done);

  // Reads as many bytes as are available and fit in `buffer`, and returns their number. Sets
  // `error` to would_block if no bytes are available, and to asio::error::eof at the end. An error
  // is reported after the last byte before it, and again by each later call.
  //
  // This function, Write() and Flush() never block. Call them only after the handshake.
  size_t Read(std::span<char> buffer, std::error_code& error);

  // Encrypts `data` and keeps it until Flush() sends it. Returns the error of OpenSSL, if any.
  std::error_code Write(std::string_view data);

  // Sends the encrypted data. Returns no error once all is sent, would_block if the socket accepts
  // no more data now, and otherwise the socket's error.
  std::error_code Flush();

  asio::ip::tcp::socket& socket() { return socket_; }
  SSL* ssl() { return ssl_.get(); }

 private:
  void ContinueHandshake(std::function<void(std::error_code)> on_done);
  void FlushThen(std::function<void(std::error_code)> on_done);
  // Returns the error of an OpenSSL call that has just returned `result`.
  std::error_code ErrorOf(int result) const;

  asio::ip::tcp::socket socket_;
  const OpenSslPtr<SSL, SSL_free> ssl_;
  BIO* output_ = nullptr;  // encrypted data to send; owned by ssl_
  size_t sent_ = 0;        // number of bytes of output_ that have been sent
  // The first read error. The kernel reports an error only once, and after a reset the next read
  // looks like an end, so the error is kept.
  std::error_code read_error_;
};

}  // namespace dslaunch
