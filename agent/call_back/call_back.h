// Runs the agent on a node where a launcher that starts all nodes at once (srun, mpirun, pdsh) has
// started it. The stdin and stdout of this agent do not lead to the front end, so the agent calls
// back: it connects to the front end's port (cli/call_back/call_back_server.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dslaunch {

struct CallBackOptions {
  std::string nonce;                   // nonce of the front end, repeated in every line
  std::string place;                   // index or Slurm's name of this node, repeated in every line
  std::string pin;                     // pin of the front end's public key (net/pinned_tls.h)
  std::vector<std::string> endpoints;  // "address:port" of the front end, best first
  // Runs the agent's role in a forked process whose stdin and stdout are the connection. Returns
  // the exit code of that process.
  std::function<int()> run_agent;
};

// Starts the agent in a child process, which initializes while the connection is made. Writes a
// line with its own public key to stdout (proto/contract/call_back_line.h), connects, and relays
// bytes between the front end and the agent. Forwards the signals that a launcher may send. When
// the connection ends, the agent reads end of file. Reports the agent's exit on stdout and returns
// its exit code, or 69 if the front end was not reached. Removes the launcher's variables that
// identify a process from the agent's environment, because ranks would use them as their own.
// Precondition: the process has one thread.
int RunCallBack(const CallBackOptions& options);

}  // namespace dslaunch
