// Tests whether nodes can reach each other and which folders they share. One node listens as the
// target, and the other nodes connect to it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <string>
#include <vector>

#include "proto/inspect.pb.h"

namespace dslaunch {

// The target of a test. Listens on a free port of all addresses, sends its token to clients, and
// creates a marker file in folders that other nodes may share. Runs on the loop's thread.
class ReachabilityProbe {
 public:
  // `loop` must outlive the object.
  explicit ReachabilityProbe(asio::io_context& loop) : acceptor_(loop), timer_(loop) {}
  ~ReachabilityProbe() { Stop(); }

  // Starts to listen, after closing the port of an earlier call. Stops by itself when the request's
  // time is over. If this node cannot listen, the reply contains the reason.
  pb::ListenReply Start(const pb::ListenRequest& request);

  // Closes the port and removes the marker files.
  void Stop();

 private:
  void Accept();

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::string greeting_;
  std::vector<std::string> markers_;
};

// Connects to all endpoints at once, looks for the marker files, and returns what was reached and
// found. Blocks for at most the request's patience.
pb::ReachReply ProbeReachability(const pb::ReachRequest& request);

}  // namespace dslaunch
