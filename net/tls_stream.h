// Implements TLS on a TCP socket, for bulk data. Moves as many records as are available in one
// system call, where asio::ssl::stream makes several calls for each record of 16 KiB.
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

// A TLS connection. Used on the thread of the socket's loop. An idle stream holds no read buffers.
class TlsStream {
 public:
  using Role = asio::ssl::stream_base::handshake_type;

  // `socket` may be connected later.
  TlsStream(asio::ip::tcp::socket socket, asio::ssl::context& context);

  // Performs the handshake. Call it once, on a connected socket. Calls `on_done` later; the
  // callback must keep the stream alive. The error is an error of the system, asio::error or
  // OpenSSL.
  void Handshake(Role role, std::function<void(std::error_code)> on_done);

  // The functions below are for use after the handshake and never block.
  //
  // Reads as many bytes as are available and fit. Sets `error` to would_block if there are none,
  // and to asio::error::eof at the end. An error is reported after the last byte before it, and
  // again by each later call.
  size_t Read(std::span<char> buffer, std::error_code& error);
  // Encrypts `data`, which Flush() then sends.
  std::error_code Write(std::string_view data);
  // Sends encrypted data. Returns would_block if the socket accepts no more.
  std::error_code Flush();

  asio::ip::tcp::socket& socket() { return socket_; }
  SSL* ssl() { return ssl_.get(); }

 private:
  void ContinueHandshake(std::function<void(std::error_code)> on_done);
  void FlushThen(std::function<void(std::error_code)> on_done);
  // Returns the error of an OpenSSL call that has just failed with `result`.
  std::error_code ErrorOf(int result) const;

  asio::ip::tcp::socket socket_;
  const OpenSslPtr<SSL, SSL_free> ssl_;
  BIO* output_ = nullptr;  // encrypted data to be sent; owned by ssl_
  size_t sent_ = 0;        // number of bytes of output_ that are sent
  // The first read error. It is kept because the kernel reports an error only once: after a reset,
  // the next read looks like an end.
  std::error_code read_error_;
};

}  // namespace dslaunch
