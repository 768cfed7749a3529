// Implements the port of this machine to which agents call back (agent/call_back/call_back.h). The
// port is open as long as the job runs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/launchers/start_all.h"

namespace dslaunch {

// Accepts TCP connections from any machine. A connection that uses TLS waits until Await requests
// its key; if too many wait, the oldest is closed. A connection that begins with a line with a
// ticket (a secret that stands for an agent's file) gets that file, which is not secret. All other
// connections are closed. A separate thread does the work. Thread-safe.
class CallBackServer {
 public:
  struct Options {
    // Interface whose addresses are given to the nodes; empty for all interfaces.
    std::string network_interface;
    std::map<std::string, std::string> files;  // paths of agent files, by ticket in lower-case hex
    size_t max_unclaimed = 64;  // limit of connections for which Await was not called yet
    PortRange ports = {};       // ports to choose from; any free port by default
  };
  struct Caller {
    // Decrypted stream of the connection. Closing the stream ends the connection; the node can end
    // the connection too.
    UniqueFd stream;
    std::string address;      // numeric address of the node
    std::string own_address;  // address of this machine at which the node reached it
  };

  // Starts to listen at one of `options.ports`. Returns kUnavailable if none of these ports can be
  // opened.
  static Result<std::unique_ptr<CallBackServer>> Start(Options options);
  // Ends all connections.
  ~CallBackServer();

  // Returns this server's public key, which agents pin (net/pinned_tls.h).
  const std::string& pin() const;
  // Returns the addresses at which nodes reach the port, such as "10.0.0.1:4711" or "fd00::1:4711".
  // IPv6 has no brackets, because a shell would interpret them.
  std::vector<std::string> endpoints() const;

  // Returns the connection of the agent with this public key. Blocks until the deadline at most, or
  // until Forget is called for the key. Returns kUnavailable if the agent did not connect.
  Result<Caller> Await(const std::string& pin, Deadline deadline);
  // Makes the current or next call of Await for this key return at once, because the agent has
  // ended.
  void Forget(const std::string& pin);

 private:
  class Loop;
  explicit CallBackServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
