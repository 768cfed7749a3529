// Runs the supervisor, the process on a node that is the parent of the agent and of every worker,
// and that leaves no process behind. The front end starts the supervisor over SSH; its stdin and
// stdout carry the agent's gRPC bytes. agent/supervisor/supervisor_core.h makes the decisions, and
// this file carries them out.
#pragma once

#include <functional>
#include <string>

namespace dslaunch {

struct SupervisorOptions {
  std::string nonce;     // front end's nonce, repeated in the hello line
  std::string build_id;  // build ID of this program

  // Whether the stream to the front end can be resumed when its connection breaks
  // (front_end_link.h). The ticket for resuming follows the hello line.
  bool resumable = false;

  // Whether the supervisor runs in a Slurm step, to which Slurm sends a signal when it ends the job
  // (SupervisorCore::Options).
  bool in_step = false;

  // Inherited connection of the agent to its node's own command; -1 if there is none.
  int command_fd = -1;

  // Runs the agent in a forked process and returns its exit code. The agent serves gRPC on the
  // first descriptor, and exchanges SupervisorRequest and SupervisorEvent
  // (proto/wire/framed_socket.h) on the second. Before it requests a worker with
  // WorkerSpec.takes_store_fd, it sends that worker's socket on the third, with one byte. The agent
  // owns all three descriptors. Its stdin and stdout are /dev/null. When the supervisor dies, the
  // agent reads end of file on the descriptors and ends the workers' processes
  // (agent/supervisor/orphan_sweep.h).
  std::function<int(int grpc_fd, int control_fd, int sockets_fd)> run_agent;
};

// Runs the supervisor in the calling process, which must have one thread. Returns the exit code
// once no process is left for which the supervisor is responsible:
// - 0: the agent exited with 0, or the front end disconnected (end of file on stdin)
// - 70: the agent was killed, failed or sent no heartbeat; a line on stderr has the reason
// - 128 + signal: the supervisor received SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGXCPU, not in a
//   step
//
// SIGUSR1 and SIGUSR2 are passed to the workers. The agent ignores all of these signals. After
// DetachSupervisor from the agent, neither the front end's end of file nor SIGHUP ends anything.
//
// Before the supervisor exits, the graceful kill ends every descendant except the agent, including
// those in separate sessions, because the supervisor is a sub-reaper. It also ends the workers'
// cgroup, if one can be created (agent/supervisor/cgroup.h). Then the agent has 2 s to exit. A
// watchdog (agent/supervisor/watchdog.h) ends what the workers left if supervisor and agent are
// killed together; it exits with the supervisor.
//
// Changes the process: sub-reaper, own session, umask 077, no core dumps, soft limit of
// descriptors, SIGPIPE ignored. Workers get the last four back unchanged. Never starts a thread,
// because workers are forked here and die with the thread that forked them.
int RunSupervisor(const SupervisorOptions& options);

}  // namespace dslaunch
