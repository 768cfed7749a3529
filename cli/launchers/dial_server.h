// Where the agents of an engine connect to: a port of this machine, open as long as the job runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/launchers/slurm_ports.h"

namespace dslaunch {

// Takes TCP connections from anywhere. One that speaks TLS waits until Await asks for its key; the
// oldest give way where too many wait. One that begins with the ticket, on a line,
// gets the agent's file, which is no secret. All others are closed. A thread of its own does the
// work. Thread-safe.
class DialServer {
 public:
  struct Options {
    std::string network_interface;  // whose addresses the nodes get; empty: of all
    std::string ticket;             // lower-case hex
    std::string file;               // the agent's
    size_t max_unclaimed = 64;      // connections that Await has not asked for
    PortRange ports = {};           // to listen at
  };
  struct Caller {
    UniqueFd stream;          // decrypted; closing it ends the connection, and so does the node
    std::string address;      // numeric, of the node
    std::string own_address;  // of this machine, as the node reached it
  };

  // kUnavailable: no port can be had, or none of the range.
  static Result<std::unique_ptr<DialServer>> Start(Options options);
  // Ends all connections.
  ~DialServer();

  // This end's public key (net/pinned_tls.h).
  const std::string& pin() const;
  // "10.0.0.1:4711", "fd00::1:4711": IPv6 without brackets, which a shell would read.
  std::vector<std::string> endpoints() const;

  // The connection of the agent whose public key this is. Blocks until the deadline at most, or
  // until GiveUp.
  Result<Caller> Await(const std::string& pin, Deadline deadline);
  // The agent whose public key this is has ended: one Await for it, now or later, does not wait.
  void GiveUp(const std::string& pin);

 private:
  class Loop;
  explicit DialServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dslaunch
