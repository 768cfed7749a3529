#include "agent/supervisor/supervisor_pump.h"

#include <sys/socket.h>

#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kBufferBytes = 256 << 10;

}  // namespace

SupervisorPump::SupervisorPump(asio::io_context& io, UniqueFd source, UniqueFd sink)
    : source_(io, source.Release()),
      sink_(io, sink.Release()),
      buffer_(std::make_unique_for_overwrite<char[]>(kBufferBytes)) {}

void SupervisorPump::Start(OnEvent on_event) {
  on_event_ = std::move(on_event);
  Read();
}

void SupervisorPump::Read() {
  source_.async_read_some(asio::buffer(buffer_.get(), kBufferBytes),
                          [this](std::error_code error, size_t bytes) {
                            if (!error) return sink_.is_open() ? Write(bytes) : Read();
                            ended_ = true;
                            CloseSink();
                            source_.close(error);
                            on_event_(Event::kSourceEnded);
                          });
}

void SupervisorPump::Write(size_t bytes) {
  asio::async_write(sink_, asio::buffer(buffer_.get(), bytes),
                    [this](std::error_code error, size_t) {
                      if (error && sink_.is_open()) {
                        CloseSink();
                        on_event_(Event::kSinkFailed);
                      }
                      Read();
                    });
}

void SupervisorPump::CloseSink() {
  if (!sink_.is_open()) return;
  // shutdown() ends a socket that is also open in the other direction, but a pipe ends only by
  // close(), so both are called.
  shutdown(sink_.native_handle(), SHUT_WR);
  std::error_code ignored;
  sink_.close(ignored);
}

}  // namespace dslaunch
