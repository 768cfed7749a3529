#include "net/connect_attempt.h"

#include <algorithm>
#include <asio/ip/tcp.hpp>
#include <utility>

#include "base/backoff.h"
#include "net/addresses.h"
#include "net/connection.h"

namespace dslaunch {
namespace {

constexpr milliseconds kFirstPause(50);
constexpr milliseconds kLongestPause(500);
// Limit of TCP's handshake. The kernel doubles the interval between retransmissions, so after a
// network recovers, a new attempt succeeds sooner than a retransmission.
constexpr milliseconds kConnectLimit(700);
// Limit of the TLS handshake, the same as the acceptor's limit.
constexpr milliseconds kProofLimit(5'000);

}  // namespace

void ConnectAttempt::Start() {
  std::error_code error;
  const asio::ip::address address = asio::ip::make_address(HostOfEndpoint(endpoint_), error);
  if (error) {
    last_output_ = "no numeric address";
    return search_.on_failure();
  }
  const auto stream = std::make_shared<TlsStream>(asio::ip::tcp::socket(search_.loop), search_.tls);
  stream_ = stream;
  started_at_ = Clock::now();
  LimitStep(kConnectLimit);
  stream->socket().async_connect({address, static_cast<uint16_t>(PortOfEndpoint(endpoint_))},
                                 [self = shared_from_this(), stream](std::error_code failed) {
                                   if (stream == self->stream_) self->OnConnected(failed);
                                 });
}

void ConnectAttempt::LimitStep(milliseconds limit) {
  timer_.expires_after(limit);
  timer_.async_wait([self = shared_from_this(), stream = stream_](std::error_code cancelled) {
    if (!cancelled && stream == self->stream_) self->Retry("no answer");
  });
}

void ConnectAttempt::Stop() {
  stopped_ = true;
  timer_.cancel();
  Drop();
}

void ConnectAttempt::OnConnected(std::error_code failed) {
  if (failed) return Retry(failed.message());
  SetConnectionOptions(stream_->socket().native_handle());
  LimitStep(kProofLimit);
  stream_->Handshake(asio::ssl::stream_base::client,
                     [self = shared_from_this(), stream = stream_](std::error_code bad) {
                       if (stream == self->stream_) self->OnHandshake(bad);
                     });
}

void ConnectAttempt::OnHandshake(std::error_code failed) {
  if (failed) return Retry(WhyNoHandshake(*stream_, failed));
  if (!search_.is_wanted(*stream_)) return Retry("it is another node of the job");
  timer_.cancel();
  search_.on_found(std::exchange(stream_, nullptr), HostOfEndpoint(endpoint_));
}

void ConnectAttempt::Drop() {
  const std::shared_ptr<TlsStream> stream = std::exchange(stream_, nullptr);
  std::error_code ignored;
  if (stream) stream->socket().close(ignored);
}

void ConnectAttempt::Retry(const std::string& why) {
  Drop();
  last_output_ = why;
  search_.on_failure();
  timer_.expires_at(std::max(
      Clock::now(), started_at_ + PauseAfter(tries_++, kFirstPause, kLongestPause, RandomPart())));
  timer_.async_wait([self = shared_from_this()](std::error_code cancelled) {
    if (!cancelled && !self->stopped_) self->Start();
  });
}

ConnectSearch::ConnectSearch(
    asio::io_context& loop, asio::ssl::context& tls, const std::vector<std::string>& endpoints,
    std::function<bool(TlsStream&)> is_wanted,
    std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found)
    : search_{loop, tls, std::move(is_wanted), std::move(on_found), [this] { StartNext(); }},
      next_(loop) {
  for (const std::string& endpoint : endpoints)
    attempts_.push_back(std::make_shared<ConnectAttempt>(search_, endpoint));
}

void ConnectSearch::StartNext() {
  if (stopped_ || num_started_ == attempts_.size()) return;
  next_.expires_after(kNextAfter);
  next_.async_wait([this](std::error_code cancelled) {
    if (!cancelled) StartNext();
  });
  attempts_[num_started_++]->Start();
}

void ConnectSearch::Stop() {
  stopped_ = true;
  next_.cancel();
  for (const auto& attempt : attempts_) attempt->Stop();
}

std::string ConnectSearch::Describe() const {
  std::string list;
  for (const auto& attempt : attempts_) list += (list.empty() ? "" : ", ") + attempt->Describe();
  return list.empty() ? "no address" : list;
}

}  // namespace dslaunch
