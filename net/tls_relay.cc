#include "net/tls_relay.h"

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/post.hpp>
#include <memory>
#include <span>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 128 << 10;

// Returns a buffer that may be used until the calling handler returns. Data that cannot be passed
// on at once must be copied to the relay.
std::span<char> Scratch() {
  thread_local const auto bytes = std::make_unique_for_overwrite<char[]>(kChunkBytes);
  return {bytes.get(), kChunkBytes};
}

}  // namespace

TlsRelay::TlsRelay(std::shared_ptr<TlsStream> secure, UniqueFd plain, std::function<void()> on_end)
    : secure_(std::move(secure)),
      plain_(secure_->socket().get_executor(), asio::local::stream_protocol(), plain.Release()),
      on_end_(std::move(on_end)) {}

void TlsRelay::Start() {
  std::error_code failed;
  plain_.non_blocking(true, failed);
  if (failed) return End();
  Again(&TlsRelay::MoveInward);
  Again(&TlsRelay::MoveOutward);
}

void TlsRelay::MoveInward() {
  if (!inward_.empty()) {
    const std::string unsent = std::exchange(inward_, "");
    return SendInward(unsent.data(), unsent.size());
  }
  const std::span<char> chunk = Scratch();
  std::error_code error;
  const size_t bytes = secure_->Read(chunk, error);
  if (error == asio::error::would_block)
    return Await(secure_->socket(), asio::socket_base::wait_read, &TlsRelay::MoveInward);
  if (error) return OnSecureError(error);
  SendInward(chunk.data(), bytes);
}

void TlsRelay::SendInward(const char* data, size_t size) {
  std::error_code error;
  const size_t sent = plain_.send(asio::buffer(data, size), 0, error);
  if (error && error != asio::error::would_block) return End();
  if (sent == size) return Again(&TlsRelay::MoveInward);
  inward_.assign(data + sent, size - sent);
  Await(plain_, asio::socket_base::wait_write, &TlsRelay::MoveInward);
}

void TlsRelay::MoveOutward() {
  const std::span<char> chunk = Scratch();
  std::error_code error;
  const size_t bytes = plain_.receive(asio::buffer(chunk.data(), chunk.size()), 0, error);
  if (error == asio::error::would_block)
    return Await(plain_, asio::socket_base::wait_read, &TlsRelay::MoveOutward);
  if (error || secure_->Write({chunk.data(), bytes})) return End();
  FlushOutward();
}

void TlsRelay::FlushOutward() {
  const std::error_code error = secure_->Flush();
  if (error == asio::error::would_block)
    return Await(secure_->socket(), asio::socket_base::wait_write, &TlsRelay::FlushOutward);
  if (error) return OnSecureError(error);
  Again(&TlsRelay::MoveOutward);
}

template <class Socket>
void TlsRelay::Await(Socket& socket, asio::socket_base::wait_type what, void (TlsRelay::*then)()) {
  socket.async_wait(what, [self = shared_from_this(), then](std::error_code error) {
    if (self->is_over_) return;
    if (error) return self->End();
    (*self.*then)();
  });
}

// Posts `then` instead of calling it, so that the loop can serve other connections in between.
void TlsRelay::Again(void (TlsRelay::*then)()) {
  asio::post(secure_->socket().get_executor(), [self = shared_from_this(), then] {
    if (!self->is_over_) (*self.*then)();
  });
}

void TlsRelay::OnSecureError(const std::error_code& error) {
  *broke_ = error == asio::error::connection_reset || error == asio::error::connection_aborted ||
            error == asio::error::timed_out || error == asio::error::broken_pipe;
  End();
}

void TlsRelay::End() {
  const auto on_end = std::exchange(on_end_, nullptr);
  Stop();
  if (on_end) on_end();
}

void TlsRelay::Stop() {
  is_over_ = true;
  on_end_ = nullptr;
  std::error_code ignored;  // ignored, because the relay ends even if close() fails
  secure_->socket().close(ignored);
  plain_.close(ignored);
}

}  // namespace dslaunch
