// Whether nodes reach each other, and which folders they share: one node listens as a probe target,
// the others look for it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <string>
#include <vector>

#include "proto/inspect.pb.h"

namespace dslaunch {

// Listens on a free port of all addresses, tells its token to who connects, and leaves a marker
// file in the folders that other nodes may have too. On the loop's thread.
class ReachabilityProbe {
 public:
  // `loop` outlives it.
  explicit ReachabilityProbe(asio::io_context& loop) : acceptor_(loop), timer_(loop) {}
  // Closes it.
  ~ReachabilityProbe() { Stop(); }

  // One that is open is closed first. Closes by itself when the request's time is over.
  pb::ListenReply Start(const pb::ListenRequest& request);

  // Closes the port and removes the markers.
  void Stop();

 private:
  void Accept();

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::string greeting_;
  std::vector<std::string> markers_;
};

// Tries all endpoints at once, for the request's patience at most, which it blocks, and looks for
// the markers.
pb::ReachReply ProbeReachability(const pb::ReachRequest& request);

}  // namespace dslaunch
