// Defines the purposes for which dslaunch-agent is started on a node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct AgentRole {
  enum class Kind {
    kJob,         // runs the supervisor and agent of a new job
    kDetachable,  // like kJob, for a job that may outlive its front end and the user's login
    kAttach,      // forwards bytes to the agent of a running job
    kRead,        // serves the files of jobs that ran on the node
    kRelay,       // runs programs that reach other nodes
    kResume,      // forwards bytes to a supervisor whose connection broke
    kAwaitEnd,    // waits until no process of an earlier start is left, sends its hello, and exits
  };
  Kind kind = Kind::kJob;
  std::string job_id;       // id of the running job, for kAttach; must satisfy IsJobId
  uint32_t node_index = 0;  // index of the node in the job, for kAttach
  bool resumable = false;   // whether the stream outlives its connection, for kJob and kDetachable
  // For kResume: socket named by the supervisor's ticket (net/resumable/resume_words.h).
  std::string resume_socket = {};
  std::string start_nonce = {};  // nonce of the earlier start, for kAwaitEnd
  // For kJob and kDetachable: whether the node is part of a Slurm job, which Slurm ends by signals
  // to all processes of the job.
  bool in_step = false;
  // For kJob with the local transport only: a descriptor above 2 that the agent inherits and serves
  // in addition to its stream; -1 if none.
  int command_fd = -1;
};

// Returns the role that resumes the stream of the supervisor whose ticket names `socket`.
AgentRole ResumeRole(const std::string& socket);

// Returns the command-line arguments of an agent in `role`. They contain only lower-case letters,
// digits and '-', so a login shell does not change them.
std::vector<std::string> AgentArguments(const AgentRole& role, std::string_view nonce);

}  // namespace dslaunch
