// The port of this machine to which agents call back (agent/call_back/call_back.h). It is open as
// long as the job runs.
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

// Accepts TCP connections from anywhere. One that speaks TLS waits until Await asks for its key; if
// too many wait, the oldest is closed. One that begins with a ticket, on a line, gets its agent's
// file, which is not secret. All others are closed. A thread of its own does the work. Thread-safe.
class CallBackServer {
 public:
  struct Options {
    // Interface whose addresses the nodes get; empty for all interfaces.
    std::string network_interface;
    std::map<std::string, std::string> files;  // paths of agents, keyed by ticket (lower-case hex)
    size_t max_unclaimed = 64;                 // connections for which Await was not called yet
    PortRange ports = {};                      // ports at which to listen
  };
  struct Caller {
    UniqueFd stream;          // decrypted; closing it ends the connection, and so does the node
    std::string address;      // numeric, of the node
    std::string own_address;  // address of this machine that the node reached
  };

  // kUnavailable: no port can be opened, or none of the range.
  static Result<std::unique_ptr<CallBackServer>> Start(Options options);
  // Ends all connections.
  ~CallBackServer();

  // This end's public key (net/pinned_tls.h).
  const std::string& pin() const;
  // "10.0.0.1:4711", "fd00::1:4711": IPv6 without brackets, which a shell would read.
  std::vector<std::string> endpoints() const;

  // Returns the connection of the agent with this public key. Blocks until the deadline at most, or
  // until Forget. kUnavailable: it did not connect.
  Result<Caller> Await(const std::string& pin, Deadline deadline);
  // Makes one Await for this key, now or later, return at once, because its agent has ended.
  void Forget(const std::string& pin);

 private:
  class Loop;
  explicit CallBackServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
