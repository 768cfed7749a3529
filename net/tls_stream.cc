#include "net/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/post.hpp>
#include <asio/ssl/error.hpp>
#include <cerrno>
#include <new>
#include <utility>

namespace dslaunch {
namespace {

// Limit of the bytes that one read system call returns.
constexpr size_t kReadBufferBytes = 128 << 10;

}  // namespace

TlsStream::TlsStream(asio::ip::tcp::socket socket, asio::ssl::context& context)
    : socket_(std::move(socket)), ssl_(SSL_new(context.native_handle())) {
  if (!ssl_) throw std::bad_alloc();
}

void TlsStream::Handshake(Role role, std::function<void(std::error_code)> on_done) {
  std::error_code error;
  socket_.non_blocking(true, error);
  BIO* const input = BIO_new_socket(static_cast<int>(socket_.native_handle()), BIO_NOCLOSE);
  output_ = BIO_new(BIO_s_mem());
  if (input == nullptr || output_ == nullptr) throw std::bad_alloc();
  SSL_set_bio(ssl_.get(), input, output_);
  SSL_set_read_ahead(ssl_.get(), 1);
  SSL_set_default_read_buffer_len(ssl_.get(), kReadBufferBytes);
  if (role == asio::ssl::stream_base::server) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
  asio::post(socket_.get_executor(), [this, error, on_done = std::move(on_done)]() mutable {
    if (error) return on_done(error);
    ContinueHandshake(std::move(on_done));
  });
}

void TlsStream::ContinueHandshake(std::function<void(std::error_code)> on_done) {
  // A cancellation may have closed the socket, and its number may belong to another file now, so a
  // closed socket is not used.
  if (!socket_.is_open()) return on_done(asio::error::operation_aborted);
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  const std::error_code failed = result == 1 ? std::error_code() : ErrorOf(result);
  // A failed handshake has an alert to send, so the output is flushed even after a failure.
  FlushThen([this, failed, on_done = std::move(on_done)](std::error_code unsent) mutable {
    if (failed != asio::error::would_block) return on_done(failed ? failed : unsent);
    if (unsent) return on_done(unsent);
    socket_.async_wait(asio::socket_base::wait_read,
                       [this, on_done = std::move(on_done)](std::error_code error) mutable {
                         if (error) return on_done(error);
                         ContinueHandshake(std::move(on_done));
                       });
  });
}

void TlsStream::FlushThen(std::function<void(std::error_code)> on_done) {
  const std::error_code error = Flush();
  if (error != asio::error::would_block) return on_done(error);
  socket_.async_wait(asio::socket_base::wait_write,
                     [this, on_done = std::move(on_done)](std::error_code failed) mutable {
                       if (failed) return on_done(failed);
                       FlushThen(std::move(on_done));
                     });
}

size_t TlsStream::Read(std::span<char> buffer, std::error_code& error) {
  error = read_error_;
  size_t total = 0;
  while (!read_error_ && total < buffer.size()) {
    size_t bytes = 0;
    ERR_clear_error();
    const int result =
        SSL_read_ex(ssl_.get(), buffer.data() + total, buffer.size() - total, &bytes);
    if (result != 1) {
      const std::error_code failed = ErrorOf(result);
      if (failed != asio::error::would_block) read_error_ = failed;
      if (total == 0) error = failed;
      break;
    }
    total += bytes;
  }
  return total;
}

std::error_code TlsStream::Write(std::string_view data) {
  if (data.empty()) return {};
  size_t bytes = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(ssl_.get(), data.data(), data.size(), &bytes);
  return result == 1 ? std::error_code() : ErrorOf(result);
}

std::error_code TlsStream::Flush() {
  char* data = nullptr;
  const size_t size = static_cast<size_t>(BIO_get_mem_data(output_, &data));
  while (sent_ < size) {
    std::error_code error;
    sent_ += socket_.send(asio::buffer(data + sent_, size - sent_), 0, error);
    if (error) return error;
  }
  if (size > 0) BIO_reset(output_);
  sent_ = 0;
  return {};
}

std::error_code TlsStream::ErrorOf(int result) const {
  const int saved = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    case SSL_ERROR_SYSCALL:
      if (saved == 0) return asio::error::eof;
      return {saved, asio::error::get_system_category()};
    default:
      break;
  }
  const unsigned long error = ERR_get_error();
  if (error == 0) return asio::error::connection_aborted;  // a call has already reported the error
  if (ERR_GET_LIB(error) == ERR_LIB_SSL &&
      ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    return asio::ssl::error::stream_truncated;
  }
  return {static_cast<int>(error), asio::error::get_ssl_category()};
}

}  // namespace dslaunch
