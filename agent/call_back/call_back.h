// Runs the agent on a node where a launcher that starts all nodes at once (srun, mpirun, pdsh) has
// started it. The launcher does not connect the agent's stdin and stdout to the front end, so the
// agent calls back: it connects to the front end's port (cli/call_back/call_back_server.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dslaunch {

struct CallBackOptions {
  std::string nonce;  // front end's nonce, repeated in every line on stdout
  std::string place;  // node's index or Slurm's name of the node, repeated in every line on stdout
  std::string pin;    // pin of the front end's public key (net/pinned_tls.h)
  std::vector<std::string> endpoints;  // endpoints "address:port" of the front end, best first
  // Runs the agent and returns its exit code. Called in a forked process whose stdin and stdout are
  // the connection to the front end.
  std::function<int()> run_agent;
};

// Starts the agent in a child process, which initializes while the connection is made. Writes a
// line with this node's public key to stdout (proto/contract/call_back_line.h), connects to the
// front end, and relays bytes between the front end and the agent. Passes on the signals that a
// launcher may send. When the connection ends, the agent reads end of file. Reports the agent's
// exit on stdout and returns the agent's exit code, or 69 if the front end was not reached. Removes
// the launcher's variables that identify a process from the agent's environment, because ranks
// would use them as their own. Precondition: the process has one thread.
int RunCallBack(const CallBackOptions& options);

}  // namespace dslaunch
