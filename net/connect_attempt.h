// Connects to a node of the job through one of its endpoints.
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

// An attempt to connect to one endpoint. Performs the TLS handshake and checks that the peer is the
// wanted node. Retries with growing pauses until it succeeds or is stopped. Runs on the loop's
// thread.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  // State that all attempts of a search share. Must outlive the attempts.
  struct Search {
    asio::io_context& loop;
    asio::ssl::context& tls;
    // Returns whether the peer, after the handshake, is the wanted node.
    std::function<bool(TlsStream&)> is_wanted;
    // Receives the encrypted stream to the node and the numeric address that was reached.
    std::function<void(std::shared_ptr<TlsStream>, const std::string& address)> on_found;
    std::function<void()> on_failure;  // called after each failure of an attempt
  };

  // `endpoint` is "address:port", with a numeric address.
  ConnectAttempt(const Search& search, std::string endpoint)
      : search_(search), endpoint_(std::move(endpoint)), timer_(search.loop) {}

  void Start();
  // Stops the attempt. Does nothing if the attempt has succeeded.
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
  // Connection of the current try. A callback of an earlier connection does nothing, because its
  // connection is not this one.
  std::shared_ptr<TlsStream> stream_;
  bool stopped_ = false;
  Clock::time_point started_at_;  // start of the latest connection
  int tries_ = 0;
  std::string last_output_ = "no answer";
};

// A search for a node at all its endpoints, of which only one may work. Tries the first endpoint
// first. Tries the next endpoint as well when an endpoint has failed, or kNextAfter after the
// previous endpoint (RFC 8305). Usually only one TLS handshake is thus made for a node with several
// addresses. Runs on the loop's thread.
class ConnectSearch {
 public:
  static constexpr milliseconds kNextAfter{100};

  // Prepares a search, which Start() begins. `is_wanted` returns whether the peer of a stream is
  // the wanted node. `on_found` receives the stream and the numeric address of the node, and may
  // call Stop(). Before destroying the search, call Stop() and let the loop run the handlers that
  // are ready.
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
