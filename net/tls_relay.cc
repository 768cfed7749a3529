#include "net/tls_relay.h"

#include <asio/buffer.hpp>
#include <asio/write.hpp>
#include <utility>

namespace dslaunch {

TlsRelay::TlsRelay(std::shared_ptr<TlsStream> secure, UniqueFd plain, std::function<void()> on_end)
    : secure_(std::move(secure)),
      plain_(secure_->get_executor(), asio::local::stream_protocol(), plain.Release()),
      on_end_(std::move(on_end)) {}

void TlsRelay::Start() {
  ReadSecure();
  ReadPlain();
}

void TlsRelay::ReadSecure() {
  secure_->async_read_some(asio::buffer(inward_),
                           [self = shared_from_this()](std::error_code error, size_t bytes) {
                             if (error) return self->End();
                             asio::async_write(self->plain_, asio::buffer(self->inward_, bytes),
                                               [self](std::error_code failed, size_t) {
                                                 if (failed) return self->End();
                                                 self->ReadSecure();
                                               });
                           });
}

void TlsRelay::ReadPlain() {
  plain_.async_read_some(asio::buffer(outward_),
                         [self = shared_from_this()](std::error_code error, size_t bytes) {
                           if (error) return self->End();
                           asio::async_write(*self->secure_, asio::buffer(self->outward_, bytes),
                                             [self](std::error_code failed, size_t) {
                                               if (failed) return self->End();
                                               self->ReadPlain();
                                             });
                         });
}

void TlsRelay::End() {
  const auto on_end = std::exchange(on_end_, nullptr);
  Stop();
  if (on_end) on_end();
}

void TlsRelay::Stop() {
  on_end_ = nullptr;
  std::error_code ignored;  // it is the end either way
  secure_->lowest_layer().close(ignored);
  plain_.close(ignored);
}

}  // namespace dslaunch
