#include "net/resume/resumable_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kBufferBytes = 256 << 10;

// Not filled: of a stream that carries little, little of it becomes memory.
std::unique_ptr<char[]> MakeBuffer() {
  return std::make_unique_for_overwrite<char[]>(kBufferBytes);
}

}  // namespace

ResumableStream::Connection::Connection(asio::io_context& loop, UniqueFd in_fd, UniqueFd out_fd)
    : in(loop, in_fd.Release()), out(loop, out_fd.Release()), buffer(MakeBuffer()) {}

ResumableStream::ResumableStream(asio::io_context& loop, UniqueFd local, Handlers handlers)
    : loop_(loop),
      local_(loop, local.Release()),
      handlers_(std::move(handlers)),
      buffer_(MakeBuffer()) {}

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
  if (local_ended_) return TellAllSent();
  ReadLocal();
}

// --- from the local side to the connection ---

void ResumableStream::ReadLocal() {
  if (local_ended_ || is_reading_local_) return;
  const size_t room = over_ ? kBufferBytes : std::min(core_.Room(), kBufferBytes);
  if (room == 0 || (!over_ && core_.frame_bytes() >= kBufferBytes)) return;
  is_reading_local_ = true;
  local_.async_read_some(asio::buffer(buffer_.get(), room),
                         [this](std::error_code error, size_t bytes) {
                           is_reading_local_ = false;
                           local_ended_ = static_cast<bool>(error);
                           if (over_) return local_ended_ ? TellAllSent() : ReadLocal();
                           if (local_ended_)
                             core_.SendEnd();
                           else
                             core_.Send({buffer_.get(), bytes});
                           WriteConnection();
                           ReadLocal();
                         });
}

void ResumableStream::WriteConnection() {
  if (!connection_ || connection_->is_writing) return;
  if (core_.frame_bytes() == 0) {
    if (local_ended_) TellAllSent();
    return;
  }
  connection_->is_writing = true;
  auto frames = std::make_shared<std::string>(core_.TakeFrames());
  asio::async_write(connection_->out, asio::buffer(*frames),
                    [this, frames, to = connection_](std::error_code error, size_t) {
                      // What was sent to us before it broke is read first; its end follows.
                      if (to != connection_ || error) return;
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
  connection_->in.async_read_some(asio::buffer(connection_->buffer.get(), kBufferBytes),
                                  [this, from = connection_](std::error_code error, size_t bytes) {
                                    if (from != connection_) return;
                                    if (error) return Break(error.message());
                                    if (!core_.OnBytes({from->buffer.get(), bytes}).ok())
                                      return Close();
                                    WriteLocal();
                                    WriteConnection();
                                    ReadLocal();
                                    if (from == connection_) ReadConnection();
                                  });
}

void ResumableStream::WriteLocal() {
  if (is_writing_local_) return;
  auto bytes = std::make_shared<std::string>(core_.TakeArrived());
  if (!bytes->empty() && local_takes_) {
    is_writing_local_ = true;
    asio::async_write(local_, asio::buffer(*bytes), [this, bytes](std::error_code error, size_t) {
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
    ::shutdown(local_.native_handle(), SHUT_RDWR);
  else if (core_.peer_ended())
    ::shutdown(local_.native_handle(), SHUT_WR);
}

void ResumableStream::Break(const std::string& why) {
  connection_.reset();
  if (core_.peer_ended()) return Close();  // it has ended: nothing is left to be resumed
  handlers_.on_broken(why);
}

}  // namespace dslaunch
