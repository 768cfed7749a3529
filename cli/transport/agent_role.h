// What dslaunch-agent is started for on a node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct AgentRole {
  enum class Kind {
    kJob,         // supervisor and agent of a new job
    kDetachable,  // the same for one that may outlive its front end and the user's login
    kAttach,      // passes bytes to a running job's agent
    kRead,        // serves the files of jobs that ran there
    kRelay,       // runs programs there that reach other nodes
    kResume,      // passes bytes to a supervisor whose connection broke
    kAwaitEnd,    // says hello once nothing of an earlier start runs there, and ends
  };
  Kind kind = Kind::kJob;
  std::string job_id;              // for kAttach; IsJobId(job_id)
  uint32_t node_index = 0;         // for kAttach
  bool resumable = false;          // for kJob and kDetachable: its stream outlives its connection
  std::string resume_socket = {};  // for kResume: of its ticket (net/resumable/resume_words.h)
  std::string start_nonce = {};    // for kAwaitEnd: what that start was given
  // For kJob and kDetachable: in a job of Slurm's, which signals all processes of it to end it.
  bool in_step = false;
  // For kJob, by the local transport only: a descriptor that the agent inherits and serves too,
  // above 2; -1: none.
  int command_fd = -1;
};

// The role that resumes the stream of a supervisor whose ticket names `socket`.
AgentRole ResumeRole(const std::string& socket);

// The agent's arguments: lower-case letters, digits and '-' only, so that a login shell reads them
// as they are.
std::vector<std::string> AgentArguments(const AgentRole& role, std::string_view nonce);

}  // namespace dslaunch
