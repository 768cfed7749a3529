// Derives the end of a job, with one cause and one exit code, from the reports of all nodes. All
// functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

// A node's reports about its own ranks.
struct RankReports {
  uint64_t attempt = 0;    // newest attempt that the node started
  uint32_t count = 0;      // number of ranks that the node started in `attempt`
  uint32_t succeeded = 0;  // number of ranks that ended with exit code 0
  uint32_t saved = 0;  // number of ranks that saved and stopped on request (ExitCode::kPreempted)
  uint32_t tolerated = 0;  // number of ranks that were lost while the other ranks continued
};

// The state of one node at the end of the job, as known to the front end.
struct NodeEnd {
  std::string name;
  bool absent = false;  // true if the node was never reached, so nothing was started on it
  std::optional<pb::NodeDone> done;  // final status of the node; nullopt if it sent none
  // The outcome that the node's agent received; of kind NONE for success.
  std::optional<pb::Cause> outcome;
  std::string lost_reason;  // cause of the loss, if `done` is not set
  std::string last_output;  // last output of the supervisor, if `done` is not set; may be empty
  RankReports ranks = {};
};

// The state of a job at its end, as known to the front end.
struct JobInfo {
  // The signal that the user sent to the front end before any other failure.
  std::optional<pb::Cause> interrupted;
  std::vector<NodeEnd> nodes;
  // Nodes with ranks in the newest attempt that was seen to start, ascending. Empty means all nodes
  // that are not absent.
  std::vector<uint32_t> members;
  // Sentences about losses of nodes that reconnected later, one for each loss.
  std::vector<std::string> losses;
  // Cause of the end if a node's agent sent an invalid message; otherwise nullopt.
  std::optional<pb::Cause> broke_rules = {};
  size_t rendezvous_node = 0;
  uint32_t world_size = 0;  // number of ranks of the newest attempt that was seen to start
  // Slurm's own description of how it ended the job's step; empty if Slurm did not end it.
  std::string cancelled = {};
};

struct JobEnd {
  pb::Cause cause;  // first cause of the end; of kind NONE for success
  int exit_code = 0;
  std::vector<uint32_t> members;  // nodes of the final attempt, ascending
  std::vector<uint32_t> victims;  // ranks that failed because of `cause`
  // True if every rank of the final attempt saved and stopped on request, which is not a failure.
  bool saved_on_request = false;
  // Further facts for the user, such as nodes lost besides the cause.
  std::vector<std::string> remarks;
};

// The result of a session.
struct SessionEnd {
  enum class Kind {
    kNotStarted,   // a node could not be reached or prepared
    kInterrupted,  // the user interrupted before anything was started
    kDetached,     // the job continues without this front end
    kEnded,
  };
  Kind kind = Kind::kEnded;
  JobEnd job = {};
  std::vector<std::string> lines = {};  // lines for the user that precede the closing block
};

// Returns "node2 was lost: " followed by the cause of the loss.
std::string LostMessage(const NodeEnd& node);

// Returns the end of the job.
//
// The cause is the first of these that exists: the user's interruption; a node that broke the
// protocol; the cause that the rendezvous reported at the end; the cause that the rendezvous
// decided before; a lost node.
//
// The exit code is 0 only if all of these hold. Every node of the final attempt has reported that
// each of its ranks succeeded, or was lost and is tolerated. The reports cover all ranks, and at
// least one rank has succeeded. Every one of these nodes is done and empty, and its teardown was
// complete. Nodes lost before are only remarks. If every rank saved and stopped on request, the
// exit code is 85, whichever signal requested it. If Slurm ended the job, failures that Slurm's
// signals can cause count as caused by Slurm, with the exit code of SIGTERM.
JobEnd DecideJobEnd(const JobInfo& info);

}  // namespace dslaunch
