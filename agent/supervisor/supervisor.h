// The supervisor: the process on a node that is parent of the agent and of every worker, and that
// leaves nothing behind. It is what the front end starts over SSH; its stdin and stdout carry the
// agent's gRPC bytes. What it decides is in agent/supervisor/supervisor_core.h; here is what
// carries it out: the loop, processes, descriptors and signals.
#pragma once

#include <functional>
#include <string>

namespace dslaunch {

struct SupervisorOptions {
  std::string nonce;     // the front end's, repeated in the hello line
  std::string build_id;  // of this binary

  // The stream to the front end is resumed when its connection breaks (front_end_link.h); its
  // ticket follows the hello line.
  bool resumable = false;

  // It is in a step of Slurm's, which signals the step when it ends the job: see
  // SupervisorCore::Options.
  bool in_step = false;

  int command_fd = -1;  // inherited, for the agent alone: its node's own command; -1: none

  // The agent's whole life, in a process of its own: serves gRPC on the first descriptor and speaks
  // SupervisorRequest and SupervisorEvent (proto/wire/framed_socket.h) on the second. On the third
  // it passes the socket for a worker that takes one (WorkerSpec.takes_store_fd), one byte with it,
  // before it asks to start that worker. All are its to close. What it returns is its exit code.
  // Its stdin and stdout are /dev/null. When the supervisor dies it sees end of file on them and
  // sweeps (agent/supervisor/orphan_sweep.h).
  std::function<int(int grpc_fd, int control_fd, int sockets_fd)> run_agent;
};

// Runs the supervisor in the calling process, which must have one thread, and returns its exit code
// once nothing it is responsible for is left:
//   0             the agent ended by itself with 0, or the front end went away (end of file on
//                 stdin)
//   70            the agent died, failed or fell silent; one line on stderr says how
//   128 + signal  SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGXCPU to the supervisor, not in a step
//
// SIGUSR1 and SIGUSR2 go to the workers. The agent heeds none of these signals.
// Once the agent has asked for it (DetachSupervisor), neither the front end's going nor SIGHUP ends
// anything.
//
// Whatever ends it, the graceful kill first runs over every descendant but the agent: sub-reaper
// that it is, it finds those in sessions of their own too; and over the workers' cgroup, if one can
// be made (agent/supervisor/cgroup.h). Then the agent has 2 s to end by itself. A watchdog
// (agent/supervisor/watchdog.h) ends what the workers left should supervisor and agent be killed
// together; it ends with the supervisor. Changes the process: sub-reaper, own session, umask 077,
// no core dumps, soft limit of descriptors, SIGPIPE ignored; workers get the last four back as they
// were. Never starts a thread, since workers are forked from here and die with the thread that
// forked them.
int RunSupervisor(const SupervisorOptions& options);

}  // namespace dslaunch
