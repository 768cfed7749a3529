// Serves the metrics of a running job: in a file, on a Unix socket, and on a port on loopback.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/metrics/metrics_text.h"
#include "cli/request/metrics_places.h"

namespace dslaunch {

inline constexpr int kMetricsFileIntervalS = 10;  // seconds between two writes of the file

// Returns the token in a file that only this user can read. Returns kBadInput for any other file,
// and for a token below 16 or above 512 bytes; messages begin with the option that names the file.
Result<std::string> ReadMetricsToken(const std::string& path);

// Serves metrics on the loop's thread. The destructor removes the socket and the file.
class MetricsServer {
 public:
  using Render = std::function<std::string(MetricsFormat)>;

  // Serves the texts that `render` returns. `complain` is called once, with one sentence, if the
  // file cannot be written.
  MetricsServer(asio::io_context& loop, Render render,
                std::function<void(const std::string&)> complain);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;

  // Begins to serve. Returns kUsage if a file is in the way or the socket's path is too long, kIo
  // if a destination cannot be opened.
  Result<void> Open(const MetricsPlaces& places);

 private:
  template <class Socket>
  class Connection;

  Result<void> OpenSocket(const std::string& path);
  Result<void> OpenPort(int port);
  template <class Acceptor>
  void Accept(Acceptor& acceptor, std::string token);
  Result<void> WriteFile();
  void ArmFile();

  const Render render_;
  const std::function<void(const std::string&)> complain_;
  std::string file_;
  bool complained_ = false;
  asio::steady_timer file_timer_;
  asio::local::stream_protocol::acceptor local_;
  std::string socket_path_;  // path of the open socket; empty if no socket is open
  asio::ip::tcp::acceptor tcp_;
  std::shared_ptr<size_t> open_ = std::make_shared<size_t>(0);  // number of open connections
};

}  // namespace dslaunch
