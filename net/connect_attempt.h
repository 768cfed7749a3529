// The way to a node of the job at one of its endpoints.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ssl/context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/deadline.h"
#include "net/tls.h"

namespace dslaunch {

// Connects, takes TLS up and looks whether it is the node that is wanted; tries again, with pauses
// that grow, until it is found or stopped. On the loop's thread.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  // Outlives the attempt.
  struct Search {
    asio::io_context& loop;
    asio::ssl::context& tls;
    std::function<bool(TlsStream&)> is_wanted;  // after the handshake
    std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found;
    std::function<void()> on_failure;  // each time
  };

  // `endpoint`: "address:port".
  ConnectAttempt(const Search& search, std::string endpoint)
      : search_(search), endpoint_(std::move(endpoint)), timer_(search.loop) {}

  void Start();
  // Without effect once it is found.
  void Stop();
  // "10.0.0.1:4711 (Connection refused)"
  std::string Words() const { return endpoint_ + " (" + last_output_ + ")"; }

 private:
  void LimitStep(milliseconds limit);
  void OnConnected(std::error_code failed);
  void OnHandshake(std::error_code failed);
  void Drop();
  void Retry(const std::string& why);

  const Search& search_;
  const std::string endpoint_;
  asio::steady_timer timer_;
  std::shared_ptr<TlsStream> stream_;  // what is under way; handlers of another are void
  bool stopped_ = false;
  Clock::time_point started_at_;  // the newest try
  int tries_ = 0;
  std::string last_output_ = "no answer";
};

// The way to a node by all its endpoints, of which one leads there. The first comes first: each
// next one is tried when one before it has failed or the newest has taken kNextAfter (RFC 8305), so
// that a node with several addresses does not have the work of TLS for each. On the loop's thread.
class ConnectSearch {
 public:
  static constexpr milliseconds kNextAfter{100};

  // `is_wanted` and `on_found` as of ConnectAttempt::Search; `on_found` may stop it. To be
  // destroyed after Stop, once the loop has run what was ready by then.
  ConnectSearch(
      asio::io_context& loop, asio::ssl::context& tls, const std::vector<std::string>& endpoints,
      std::function<bool(TlsStream&)> is_wanted,
      std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found);
  ConnectSearch(const ConnectSearch&) = delete;

  void Start() { StartNext(); }
  void Stop();
  // "10.0.0.1:4711 (Connection refused), [fd00::1]:4711 (no answer)"
  std::string Words() const;

 private:
  void StartNext();

  const ConnectAttempt::Search search_;
  std::vector<std::shared_ptr<ConnectAttempt>> attempts_;
  size_t num_started_ = 0;
  asio::steady_timer next_;
  bool stopped_ = false;
};

}  // namespace dslaunch
