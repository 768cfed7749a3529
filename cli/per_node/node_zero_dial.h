// Connects to node 0's command: resolves its name, connects by TCP and, if there is a token, by
// TLS.
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

// Makes one connection at a time. Used on the loop's thread. Names are resolved on a thread that
// may outlive the object until a name server answers.
class NodeZeroDial {
 public:
  // Receives a connected socket, which carries plain bytes, or the failure.
  using Answer = std::function<void(std::variant<UniqueFd, DialFailure>)>;

  // Prepares connections to `host`:`port`. `tls` is null without a token.
  NodeZeroDial(asio::io_context& loop, std::shared_ptr<LoopPoster> poster, std::string host,
               int port, std::shared_ptr<TokenTls> tls, Answer answer);

  // Connects and calls the answer once. Call it again only after the answer.
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
  uint64_t try_ = 0;  // number of the newest attempt; answers to earlier attempts are ignored
};

}  // namespace dslaunch
