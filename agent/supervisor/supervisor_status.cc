#include "agent/supervisor/supervisor_status.h"

#include <array>
#include <asio/buffer.hpp>
#include <utility>

#include "proto/contract/status_line.h"

namespace dslaunch {

std::string StatusLines::Feed(std::string_view bytes) {
  std::string lines;
  while (true) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (partial_.size() + piece.size() > kMaxStatusLineBytes) {
      dropping_ = true;
      partial_.clear();
    }
    if (end == std::string_view::npos) {
      if (!dropping_) partial_.append(piece);
      return lines;
    }
    if (!dropping_) lines.append(partial_).append(piece).push_back('\n');
    partial_.clear();
    dropping_ = false;
    bytes.remove_prefix(end + 1);
  }
}

struct StatusReader::Impl {
  Impl(asio::io_context& io, int fd, OnLines callback)
      : pipe(io, fd), on_lines(std::move(callback)) {
    pipe.non_blocking(true);
  }

  void Feed(size_t bytes) {
    std::string whole = lines.Feed({chunk.data(), bytes});
    if (!whole.empty()) on_lines(std::move(whole));
  }

  asio::posix::stream_descriptor pipe;
  OnLines on_lines;
  StatusLines lines;
  std::array<char, 64 << 10> chunk;
};

StatusReader::StatusReader(asio::io_context& io, UniqueFd read_end, OnLines on_lines)
    : impl_(std::make_shared<Impl>(io, read_end.Release(), std::move(on_lines))) {
  Read(impl_);
}

StatusReader::~StatusReader() {
  std::error_code ignored;
  impl_->pipe.close(ignored);
}

void StatusReader::Read(const std::shared_ptr<Impl>& impl) {
  impl->pipe.async_wait(asio::posix::stream_descriptor::wait_read, [impl](std::error_code error) {
    if (error || !impl->pipe.is_open()) return;
    const size_t bytes = impl->pipe.read_some(asio::buffer(impl->chunk), error);
    // The worker has closed its end of the pipe, so no more lines follow.
    if (error && error != asio::error::would_block) return;
    impl->Feed(bytes);
    Read(impl);
  });
}

void StatusReader::Drain() {
  std::error_code error;
  const size_t bytes = impl_->pipe.read_some(asio::buffer(impl_->chunk), error);
  if (!error) impl_->Feed(bytes);
}

}  // namespace dslaunch
