// The agent where an engine that starts one program on all nodes has started it (mpirun, pdsh): its
// stdin and stdout lead nowhere, so it connects to the front end instead.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dslaunch {

struct DialOptions {
  std::string nonce;                   // the front end's, repeated in every line
  std::string place;                   // of this node, likewise
  std::string pin;                     // the front end's public key (net/pinned_tls.h)
  std::vector<std::string> endpoints;  // of the front end: "address:port", best first
  // What to be for the front end, in a process of its own with the connection as its stdin and
  // stdout. What it returns is its exit code.
  std::function<int()> run_agent;
};

// Starts the agent in a child, which gets ready while the connection is made. Writes a line with
// its own public key to stdout (proto/contract/engine_line.h), connects, and carries the bytes.
// Passes the signals on that an engine may send; the end of the connection is end of file for the
// agent. Once the agent has ended it says so on stdout, and returns the agent's exit code; 69 where
// it did not reach the front end. The agent does not get the variables by which its engine's
// programs know their own place: ranks would take it for theirs. To be called in a process with one
// thread.
int RunDial(const DialOptions& options);

}  // namespace dslaunch
