#include "net/resumable/resumable_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/post.hpp>
#include <asio/write.hpp>
#include <string_view>
#include <utility>

namespace dslaunch {
namespace {

// Size of a buffer. Buffers are on the stack during a call, so that a thousand idle streams hold no
// buffers.
constexpr size_t kBufferBytes = 256 << 10;
using Buffer = std::array<char, kBufferBytes>;

constexpr auto kReadable = asio::posix::stream_descriptor::wait_read;

}  // namespace

ResumableStream::ResumableStream(asio::io_context& loop, UniqueFd local, Handlers handlers)
    : loop_(loop), local_(loop, local.Release()), handlers_(std::move(handlers)) {
  // A read must return if no data is available, so the socket is non-blocking. Asio's asynchronous
  // operations still wait.
  std::error_code ignored;
  local_.non_blocking(true, ignored);
}

void ResumableStream::Connect(std::unique_ptr<StreamEnd> to) {
  connection_ = std::make_shared<Connection>(std::move(to));
  ReadConnection();
  WriteConnection();
  WriteLocal();
  ReadLocal();
}

void ResumableStream::ResumeAt(uint64_t peer_received, std::unique_ptr<StreamEnd> to) {
  core_.ResumeAt(peer_received);
  Connect(std::move(to));
}

void ResumableStream::Close() {
  if (std::exchange(over_, true)) return;
  connection_.reset();
  WriteLocal();
  local_ended_ ? ReportAllSent() : ReadLocal();
  if (handlers_.on_closed) handlers_.on_closed();
}

void ResumableStream::ShutLocal() { ::shutdown(local_.native_handle(), SHUT_RDWR); }

// --- Data from the local side to the connection ---

void ResumableStream::ReadLocal() {
  if (local_ended_ || is_reading_local_) return;
  if (!over_ && (core_.Room() == 0 || core_.frame_bytes() >= kBufferBytes)) return;
  is_reading_local_ = true;
  local_.async_wait(kReadable, [this, exists = std::weak_ptr(exists_)](std::error_code error) {
    if (exists.expired()) return;
    is_reading_local_ = false;
    OnLocalReadable(error);
  });
}

void ResumableStream::OnLocalReadable(std::error_code error) {
  Buffer bytes;
  const size_t room = over_ ? bytes.size() : std::min(core_.Room(), bytes.size());
  const size_t size = error ? 0 : local_.read_some(asio::buffer(bytes, room), error);
  if (IsToBeAwaited(error)) return ReadLocal();
  local_ended_ = static_cast<bool>(error);
  if (over_) return local_ended_ ? ReportAllSent() : ReadLocal();
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
    if (local_ended_) ReportAllSent();
    return;
  }
  connection_->is_writing = true;
  connection_->frames = core_.TakeFrames();
  connection_->written = 0;
  // The peer may have sent data before the connection broke. That data must be read first, so a
  // write error is ignored here, and the read reports the end.
  WriteFrames(loop_, connection_,
              [this, exists = std::weak_ptr(exists_), to = std::weak_ptr(connection_)] {
                if (exists.expired() || !connection_ || to.lock() != connection_) return;
                connection_->is_writing = false;
                WriteConnection();
                ReadLocal();
              });
}

void ResumableStream::WriteFrames(asio::io_context& loop, const std::shared_ptr<Connection>& to,
                                  std::function<void()> then) {
  std::error_code error;
  to->written += to->end->Write(std::string_view(to->frames).substr(to->written), error);
  if (error && !IsToBeAwaited(error)) return;
  if (to->written == to->frames.size()) {
    std::string().swap(to->frames);
    return asio::post(loop, std::move(then));
  }
  to->end->AwaitWritable([&loop, to, then = std::move(then)](std::error_code closed) mutable {
    if (!closed) WriteFrames(loop, to, std::move(then));
  });
}

void ResumableStream::ReportAllSent() {
  if (!std::exchange(reported_all_sent_, true) && handlers_.on_all_sent) handlers_.on_all_sent();
}

// --- Data from the connection to the local side ---

void ResumableStream::ReadConnection() {
  connection_->end->AwaitReadable([this, exists = std::weak_ptr(exists_),
                                   from = std::weak_ptr(connection_)](std::error_code error) {
    if (exists.expired() || !connection_ || from.lock() != connection_) return;
    Buffer bytes;
    const size_t size = error ? 0 : connection_->end->Read(bytes.data(), bytes.size(), error);
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
  if (!bytes->empty() && local_accepts_) {
    is_writing_local_ = true;
    asio::async_write(
        local_, asio::buffer(*bytes),
        [this, exists = std::weak_ptr(exists_), bytes](std::error_code error, size_t) {
          if (exists.expired()) return;
          is_writing_local_ = false;
          local_accepts_ = local_accepts_ && !error;
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
  if (core_.peer_ended())
    return Close();  // the peer has ended the stream, so no bytes remain to be resumed
  handlers_.on_broken(why);
}

}  // namespace dslaunch
