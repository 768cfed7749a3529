// Measures the speed of the network between two nodes, of which one serves and the other measures.
//
// A connection begins with the token and a newline, a mode ('P', 'U', 'D' or 'S') and a window of
// two bytes (milliseconds, big-endian). P: the server returns each byte. U: the client sends, and
// the server returns what it received, as two numbers of eight bytes (bytes, microseconds;
// big-endian). D: the server sends until the window is over. S: the server returns how long its
// thread has waited for a processor (eight bytes, nanoseconds).
#pragma once

#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "proto/inspect.pb.h"

namespace dslaunch {

// The serving end of a measurement. Serves one connection at a time, on a separate thread.
class LinkServer {
 public:
  LinkServer() = default;
  ~LinkServer() { Stop(); }
  LinkServer(const LinkServer&) = delete;

  // Listens on a free port of all addresses, after stopping the server of an earlier call. Stops by
  // itself when the request's time is over. If this node cannot listen, the reply contains the
  // reason.
  pb::ServeLinkReply Start(const pb::ServeLinkRequest& request);

  // Closes the port and the current connection.
  void Stop();

 private:
  UniqueFd stop_;  // descriptor that ends the thread when it is closed
  std::thread thread_;
};

// Returns the round trip and the speed in both directions at the first endpoint that answers. If
// the measurement fails, the reply contains the reason. Blocks for at most the request's patience.
pb::LinkMeasurement MeasureLink(const pb::MeasureLinkRequest& request);

}  // namespace dslaunch
