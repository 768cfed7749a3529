// The purpose for which dslaunch-agent is started on a node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct AgentRole {
  enum class Kind {
    kJob,         // supervisor and agent of a new job
    kDetachable,  // like kJob, for a job that may outlive its front end and the user's login
    kAttach,      // forwards bytes to the agent of a running job
    kRead,        // serves the files of jobs that ran there
    kRelay,       // runs programs that reach other nodes
    kResume,      // forwards bytes to a supervisor whose connection broke
    kAwaitEnd,    // sends its hello once no process of an earlier start is left, and exits
  };
  Kind kind = Kind::kJob;
  std::string job_id;       // job of kAttach; must satisfy IsJobId
  uint32_t node_index = 0;  // the node, for kAttach
  bool resumable = false;   // the stream of kJob or kDetachable outlives its connection
  // For kResume: socket of the ticket (net/resumable/resume_words.h).
  std::string resume_socket = {};
  std::string start_nonce = {};  // nonce of the earlier start, for kAwaitEnd
  // For kJob and kDetachable: the node runs in a Slurm job, which ends by signals to all its
  // processes.
  bool in_step = false;
  // For kJob with the local transport only: a descriptor above 2 that the agent inherits and also
  // serves; -1 if none.
  int command_fd = -1;
};

// Returns the role that resumes the stream of a supervisor whose ticket names `socket`.
AgentRole ResumeRole(const std::string& socket);

// Returns the agent's arguments. They contain only lower-case letters, digits and '-', so a login
// shell does not change them.
std::vector<std::string> AgentArguments(const AgentRole& role, std::string_view nonce);

}  // namespace dslaunch
