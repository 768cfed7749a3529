#include "net/resume/resumable_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/write.hpp>
#include <utility>

namespace dslaunch {
namespace {

// On the stack while it is used: a thousand idle streams need none.
constexpr size_t kBufferBytes = 256 << 10;
using Buffer = std::array<char, kBufferBytes>;

constexpr auto kReadable = asio::posix::stream_descriptor::wait_read;

// It may have been ready for another reason, or not be ready any more.
bool IsToBeAwaited(std::error_code error) {
  return error == asio::error::would_block || error == asio::error::interrupted;
}

// Gives up reads where none is ready instead of waiting for it; other operations still wait.
void SetNonBlocking(asio::posix::stream_descriptor& descriptor) {
  std::error_code ignored;
  descriptor.non_blocking(true, ignored);
}

}  // namespace

ResumableStream::Connection::Connection(asio::io_context& loop, UniqueFd in_fd, UniqueFd out_fd)
    : in(loop, in_fd.Release()) {
  SetNonBlocking(in);
  if (!out_fd) return;
  other_out.emplace(loop, out_fd.Release());
}

asio::posix::stream_descriptor& ResumableStream::Connection::out() {
  return other_out ? *other_out : in;
}

ResumableStream::ResumableStream(asio::io_context& loop, UniqueFd local, Handlers handlers)
    : loop_(loop), local_(loop, local.Release()), handlers_(std::move(handlers)) {
  SetNonBlocking(local_);
}

void ResumableStream::Connect(UniqueFd in, UniqueFd out) {
  connection_ = std::make_shared<Connection>(loop_, std::move(in), std::move(out));
  ReadConnection();
  WriteConnection();
  WriteLocal();
  ReadLocal();
}

void ResumableStream::ResumeAt(uint64_t peer_received, UniqueFd in, UniqueFd out) {
  core_.ResumeAt(peer_received);
  Connect(std::move(in), std::move(out));
}

void ResumableStream::Close() {
  if (std::exchange(over_, true)) return;
  connection_.reset();
  WriteLocal();
  local_ended_ ? TellAllSent() : ReadLocal();
  if (handlers_.on_closed) handlers_.on_closed();
}

void ResumableStream::ShutLocal() { ::shutdown(local_.native_handle(), SHUT_RDWR); }

// --- from the local side to the connection ---

void ResumableStream::ReadLocal() {
  if (local_ended_ || is_reading_local_) return;
  if (!over_ && (core_.Room() == 0 || core_.frame_bytes() >= kBufferBytes)) return;
  is_reading_local_ = true;
  local_.async_wait(kReadable, [this, exists = std::weak_ptr(exists_)](std::error_code error) {
    if (exists.expired()) return;
    is_reading_local_ = false;
    TakeLocal(error);
  });
}

void ResumableStream::TakeLocal(std::error_code error) {
  Buffer bytes;
  const size_t room = over_ ? bytes.size() : std::min(core_.Room(), bytes.size());
  const size_t size = error ? 0 : local_.read_some(asio::buffer(bytes, room), error);
  if (IsToBeAwaited(error)) return ReadLocal();
  local_ended_ = static_cast<bool>(error);
  if (over_) return local_ended_ ? TellAllSent() : ReadLocal();
  if (local_ended_)
    core_.SendEnd();
  else
    core_.Send({bytes.data(), size});
  WriteConnection();
  ReadLocal();
}

void ResumableStream::WriteConnection() {
  if (!connection_ || connection_->is_writing) return;
  if (core_.frame_bytes() == 0) {
    if (local_ended_) TellAllSent();
    return;
  }
  connection_->is_writing = true;
  auto frames = std::make_shared<std::string>(core_.TakeFrames());
  // It keeps the connection until these are written, also when the stream has given that up.
  asio::async_write(connection_->out(), asio::buffer(*frames),
                    [this, exists = std::weak_ptr(exists_), frames, to = connection_](
                        std::error_code error, size_t) {
                      // What was sent to us before it broke is read first; its end follows.
                      if (exists.expired() || to != connection_ || error) return;
                      to->is_writing = false;
                      WriteConnection();
                      ReadLocal();
                    });
}

void ResumableStream::TellAllSent() {
  if (!std::exchange(told_all_sent_, true) && handlers_.on_all_sent) handlers_.on_all_sent();
}

// --- from the connection to the local side ---

void ResumableStream::ReadConnection() {
  connection_->in.async_wait(kReadable, [this, exists = std::weak_ptr(exists_),
                                         from = std::weak_ptr(connection_)](std::error_code error) {
    if (exists.expired() || !connection_ || from.lock() != connection_) return;
    Buffer bytes;
    const size_t size = error ? 0 : connection_->in.read_some(asio::buffer(bytes), error);
    if (!IsToBeAwaited(error)) {
      if (error) return Break(error.message());
      if (!core_.OnBytes({bytes.data(), size}).ok()) return Close();
      WriteLocal();
      WriteConnection();
      ReadLocal();
    }
    if (connection_ && from.lock() == connection_) ReadConnection();
  });
}

void ResumableStream::WriteLocal() {
  if (is_writing_local_) return;
  auto bytes = std::make_shared<std::string>(core_.TakeArrived());
  if (!bytes->empty() && local_takes_) {
    is_writing_local_ = true;
    asio::async_write(
        local_, asio::buffer(*bytes),
        [this, exists = std::weak_ptr(exists_), bytes](std::error_code error, size_t) {
          if (exists.expired()) return;
          is_writing_local_ = false;
          local_takes_ = local_takes_ && !error;
          core_.OnDelivered(bytes->size());
          WriteConnection();
          WriteLocal();
        });
    return;
  }
  core_.OnDelivered(bytes->size());
  if (over_)
    ShutLocal();
  else if (core_.peer_ended())
    ::shutdown(local_.native_handle(), SHUT_WR);
}

void ResumableStream::Break(const std::string& why) {
  connection_.reset();
  if (core_.peer_ended()) return Close();  // it has ended: nothing is left to be resumed
  handlers_.on_broken(why);
}

}  // namespace dslaunch
