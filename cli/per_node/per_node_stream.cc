#include "cli/per_node/per_node_stream.h"

#include <sys/socket.h>

#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <utility>

namespace dslaunch {

CarriedStream::CarriedStream(asio::io_context& loop, UniqueFd local, Send send)
    : local_(loop), send_(std::move(send)) {
  local_.assign(asio::local::stream_protocol(), local.Release());
}

void CarriedStream::Read() {
  local_.async_read_some(asio::buffer(chunk_),
                         [self = shared_from_this()](std::error_code error, size_t bytes) {
                           if (!self->send_) return;
                           pb::NodeMessage message;
                           if (error) {
                             message.mutable_stream_end();
                             return self->send_(message);
                           }
                           message.set_stream(self->chunk_.data(), bytes);
                           self->send_(message);
                           self->Read();
                         });
}

void CarriedStream::Deliver(std::string bytes) {
  if (ends_ || bytes.empty()) return;
  queue_.push_back(std::move(bytes));
  if (queue_.size() == 1) Write();
}

void CarriedStream::DeliverEnd() {
  ends_ = true;
  if (queue_.empty()) Write();
}

void CarriedStream::Close() {
  send_ = nullptr;
  DeliverEnd();
}

void CarriedStream::Write() {
  if (queue_.empty()) {
    if (ends_) shutdown(local_.native_handle(), send_ ? SHUT_WR : SHUT_RDWR);
    return;
  }
  asio::async_write(local_, asio::buffer(queue_.front()),
                    [self = shared_from_this()](std::error_code error, size_t) {
                      self->queue_.pop_front();
                      // No reader is left, so the remaining bytes are dropped.
                      if (error) self->queue_.clear();
                      if (!self->queue_.empty() || self->ends_) self->Write();
                    });
}

}  // namespace dslaunch
