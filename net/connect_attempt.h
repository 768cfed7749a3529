// Connects to a node of the job at one of its endpoints.
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

// Connects to one endpoint, performs the TLS handshake and checks that the peer is the wanted node.
// Retries with growing pauses until it succeeds or is stopped. Runs on the loop's thread.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  // What all attempts of a search share. Must outlive the attempts.
  struct Search {
    asio::io_context& loop;
    asio::ssl::context& tls;
    std::function<bool(TlsStream&)> is_wanted;  // called after the handshake
    std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found;
    std::function<void()> on_failure;  // called after each failure
  };

  // `endpoint`: "address:port", with a numeric address.
  ConnectAttempt(const Search& search, std::string endpoint)
      : search_(search), endpoint_(std::move(endpoint)), timer_(search.loop) {}

  void Start();
  // Stops the attempt. Has no effect after success.
  void Stop();
  // Returns the endpoint and its last failure, such as "10.0.0.1:4711 (Connection refused)".
  std::string Describe() const { return endpoint_ + " (" + last_output_ + ")"; }

 private:
  void LimitStep(milliseconds limit);
  void OnConnected(std::error_code failed);
  void OnHandshake(std::error_code failed);
  void Drop();
  void Retry(const std::string& why);

  const Search& search_;
  const std::string endpoint_;
  asio::steady_timer timer_;
  // The current connection. Callbacks of earlier connections are ignored.
  std::shared_ptr<TlsStream> stream_;
  bool stopped_ = false;
  Clock::time_point started_at_;  // start of the latest attempt
  int tries_ = 0;
  std::string last_output_ = "no answer";
};

// Connects to a node by all its endpoints, of which only one may work. Starts with the first
// endpoint. Starts the next one when an earlier one has failed or the latest has taken kNextAfter
// (RFC 8305), so that usually only one TLS handshake is made for a node with several addresses.
// Runs on the loop's thread.
class ConnectSearch {
 public:
  static constexpr milliseconds kNextAfter{100};

  // See ConnectAttempt::Search for the callbacks; `on_found` may call Stop(). Precondition of the
  // destructor: Stop() was called, and after that the loop has run the handlers that were ready.
  ConnectSearch(
      asio::io_context& loop, asio::ssl::context& tls, const std::vector<std::string>& endpoints,
      std::function<bool(TlsStream&)> is_wanted,
      std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found);
  ConnectSearch(const ConnectSearch&) = delete;

  void Start() { StartNext(); }
  void Stop();
  // Returns every endpoint and its last failure, such as "10.0.0.1:4711 (Connection refused),
  // [fd00::1]:4711 (no answer)".
  std::string Describe() const;

 private:
  void StartNext();

  const ConnectAttempt::Search search_;
  std::vector<std::shared_ptr<ConnectAttempt>> attempts_;
  size_t num_started_ = 0;
  asio::steady_timer next_;
  bool stopped_ = false;
};

}  // namespace dslaunch
