// Connects to node 0's command: looks its name up, connects by TCP, and with a token by TLS.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "base/unique_fd.h"
#include "cli/per_node/member_core.h"
#include "net/loop_poster.h"
#include "net/token_tls.h"

namespace dslaunch {

// On the loop's thread. Names are looked up on a thread that may outlive this until a name server
// answers.
class NodeZeroDial {
 public:
  // A connected socket, which carries plain bytes.
  using Answer = std::function<void(std::variant<UniqueFd, DialFailure>)>;

  // `tls`: null without a token.
  NodeZeroDial(asio::io_context& loop, std::shared_ptr<LoopPoster> poster, std::string host,
               int port, std::shared_ptr<TokenTls> tls, Answer answer);

  // Calls the answer once. Again only after it.
  void Start();

 private:
  using Endpoints = asio::ip::tcp::resolver::results_type;

  void OnResolved(const asio::error_code& error, const Endpoints& found);
  void OnConnected(const asio::error_code& error);
  void Finish(std::variant<UniqueFd, DialFailure> result);
  void Fail(const std::string& why) { Finish(DialFailure{DialFailure::Kind::kUnreachable, why}); }

  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  const std::shared_ptr<LoopPoster> poster_;
  const std::string host_;
  const int port_;
  const std::shared_ptr<TokenTls> tls_;
  const Answer answer_;
  uint64_t try_ = 0;  // number of the newest try; answers to earlier tries are ignored
};

}  // namespace dslaunch
