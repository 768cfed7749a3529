// The agent on a node where a launcher that starts all nodes at once has started it (srun, mpirun,
// pdsh). Its stdin and stdout do not lead to the front end, so it calls back: it connects to the
// front end's port (cli/call_back/call_back_server.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dslaunch {

struct CallBackOptions {
  std::string nonce;                   // the front end's, repeated in every line
  std::string place;                   // place of this node, repeated in every line
  std::string pin;                     // the front end's public key (net/pinned_tls.h)
  std::vector<std::string> endpoints;  // "address:port" of the front end, best first
  // The agent's role, run in a process of its own with the connection as its stdin and stdout.
  // Returns its exit code.
  std::function<int()> run_agent;
};

// Starts the agent in a child, which gets ready while the connection is made. Writes a line with
// its own public key to stdout (proto/contract/call_back_line.h), connects, and carries the bytes.
// Forwards the signals that a launcher may send; the end of the connection is end of file for the
// agent. Reports the agent's end on stdout and returns its exit code, or 69 if the front end was
// not reached. Removes the variables by which the launcher's programs know their own place from the
// agent's environment, because ranks would take it for theirs. Precondition: the process has one
// thread.
int RunCallBack(const CallBackOptions& options);

}  // namespace dslaunch
