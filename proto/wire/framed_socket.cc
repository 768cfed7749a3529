#include "proto/wire/framed_socket.h"

#include <sys/socket.h>

#include <array>
#include <asio/buffer.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/mutex.h"

namespace dslaunch {
namespace {

constexpr size_t kHeaderBytes = 4;
constexpr size_t kReadBytes = 64 << 10;

uint32_t ReadLength(std::string_view header) {
  uint32_t length = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    length |= static_cast<uint32_t>(static_cast<unsigned char>(header[i])) << (8 * i);
  }
  return length;
}

void AppendLength(uint32_t length, std::string& out) {
  for (size_t i = 0; i < kHeaderBytes; ++i) out.push_back(static_cast<char>(length >> (8 * i)));
}

}  // namespace

class FramedSocket::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, UniqueFd fd, OnMessage on_message, OnClosed on_closed,
       size_t max_frame_bytes)
      : max_frame_bytes_(max_frame_bytes),
        socket_(io),
        on_message_(std::move(on_message)),
        on_closed_(std::move(on_closed)) {
    socket_.assign(asio::local::stream_protocol(), fd.Release());
  }

  void Read() {
    socket_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](std::error_code error, size_t bytes) {
                              if (self->closed_) return;
                              if (error) return self->Close(self->EndReason(error));
                              self->Feed({self->chunk_.data(), bytes});
                              if (!self->closed_) self->Read();
                            });
  }

  bool Send(const google::protobuf::MessageLite& message) {
    const MutexLock lock(mutex_);
    if (closed_ || close_posted_ || write_failed_) return false;
    const size_t bytes = message.ByteSizeLong();
    if (bytes > kMaxFrameBytes) {
      CloseLater("a message of " + std::to_string(bytes) + " bytes is above the limit of 16 MiB");
      return false;
    }
    if (Queued() + kHeaderBytes + bytes > kMaxQueuedBytes) {
      CloseLater("the other side does not read: more than 64 MiB wait to be sent");
      return false;
    }
    AppendLength(static_cast<uint32_t>(bytes), queue_);
    message.AppendToString(&queue_);
    if (!awaits_room_) Write();
    return true;
  }

  size_t queued_bytes() const {
    const MutexLock lock(mutex_);
    return Queued();
  }

  // Closes the socket without calling back, because the owner is being destroyed.
  void Abandon() {
    const MutexLock lock(mutex_);
    closed_ = true;
    std::error_code ignored;
    socket_.close(ignored);
  }

 private:
  size_t Queued() const DSL_REQUIRES(mutex_) { return queue_.size() - written_; }
  void Write() DSL_REQUIRES(mutex_) {
    while (written_ < queue_.size()) {
      const ssize_t count = send(socket_.native_handle(), queue_.data() + written_, Queued(),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count >= 0) {
        written_ += static_cast<size_t>(count);
      } else if (errno == EAGAIN) {
        awaits_room_ = true;
        DropWritten();
        return asio::post(socket_.get_executor(),
                          [self = shared_from_this()] { self->AwaitRoom(); });
      } else if (errno != EINTR) {
        // The peer has closed the socket, but its last messages must still be read, so the socket
        // stays open until the end of file after them.
        write_failed_ = true;
        written_ = queue_.size();
      }
    }
    queue_.clear();
    written_ = 0;
  }

  // Removes written bytes from the queue, even if the queue never becomes empty. On average, each
  // byte is moved at most once.
  void DropWritten() DSL_REQUIRES(mutex_) {
    if (written_ <= queue_.size() / 2) return;
    queue_.erase(0, written_);
    written_ = 0;
  }

  void AwaitRoom() {
    if (closed_) return;
    socket_.async_wait(socket_.wait_write, [self = shared_from_this()](std::error_code) {
      const MutexLock lock(self->mutex_);
      self->awaits_room_ = false;
      if (!self->closed_) self->Write();
    });
  }

  void Feed(std::string_view bytes) {
    partial_.append(bytes);
    std::string_view rest = partial_;
    while (rest.size() >= kHeaderBytes) {
      const size_t length = ReadLength(rest);
      if (length > max_frame_bytes_) {
        return Close("a message of " + std::to_string(length) +
                     " bytes was announced, above the limit of " +
                     std::to_string(max_frame_bytes_));
      }
      if (rest.size() < kHeaderBytes + length) break;
      on_message_(rest.substr(kHeaderBytes, length));
      if (closed_) return;
      rest.remove_prefix(kHeaderBytes + length);
    }
    partial_.erase(0, partial_.size() - rest.size());
  }

  std::string EndReason(std::error_code error) const {
    if (error != asio::error::eof) return "read: " + error.message();
    return partial_.empty() ? "end of file" : "end of file inside a message";
  }

  void Close(const std::string& reason) {
    if (closed_) return;
    Abandon();
    on_closed_(reason);
  }

  void CloseLater(std::string reason) DSL_REQUIRES(mutex_) {
    if (close_posted_) return;
    close_posted_ = true;
    asio::post(socket_.get_executor(),
               [self = shared_from_this(), reason = std::move(reason)] { self->Close(reason); });
  }

  const size_t max_frame_bytes_;
  asio::local::stream_protocol::socket socket_;
  OnMessage on_message_;
  OnClosed on_closed_;
  std::array<char, kReadBytes> chunk_;
  std::string partial_;  // beginning of the next message, received so far
  // Only the loop's thread writes this member, while it holds mutex_, so that thread may read the
  // member without mutex_.
  bool closed_ = false;

  mutable Mutex mutex_;
  // The bytes to write. The first `written_` bytes have been written already.
  std::string queue_ DSL_GUARDED_BY(mutex_);
  size_t written_ DSL_GUARDED_BY(mutex_) = 0;
  // True if Write() runs again when the socket accepts more bytes.
  bool awaits_room_ DSL_GUARDED_BY(mutex_) = false;
  bool close_posted_ DSL_GUARDED_BY(mutex_) = false;
  bool write_failed_ DSL_GUARDED_BY(mutex_) = false;
};

FramedSocket::FramedSocket(asio::io_context& io, UniqueFd fd, OnMessage on_message,
                           OnClosed on_closed, size_t max_frame_bytes)
    : impl_(std::make_shared<Impl>(io, std::move(fd), std::move(on_message), std::move(on_closed),
                                   max_frame_bytes)) {
  impl_->Read();
}

FramedSocket::~FramedSocket() { impl_->Abandon(); }

bool FramedSocket::Send(const google::protobuf::MessageLite& message) {
  return impl_->Send(message);
}

size_t FramedSocket::queued_bytes() const { return impl_->queued_bytes(); }

}  // namespace dslaunch
