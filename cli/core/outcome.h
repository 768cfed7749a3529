// How a job ended: one cause and one exit code from the reports of all nodes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

// Reports of a node about its own ranks.
struct RankReports {
  uint64_t attempt = 0;    // newest attempt that the node started
  uint32_t count = 0;      // ranks that the node started in that attempt
  uint32_t succeeded = 0;  // ranks that ended with exit code 0
  uint32_t saved = 0;      // ranks that saved and stopped on request (ExitCode::kPreempted)
  uint32_t tolerated = 0;  // ranks that were lost while the others continued
};

// State of one node at the end of the job, as the front end knows it.
struct NodeEnd {
  std::string name;
  bool absent = false;               // the node was never reached, so nothing was started on it
  std::optional<pb::NodeDone> done;  // final status of the node
  // Outcome that the node's agent received; kind NONE for success.
  std::optional<pb::Cause> outcome;
  std::string lost_reason;  // reason of the loss, if `done` is not set
  std::string last_output;  // last output of the supervisor, if `done` is not set; often empty
  RankReports ranks = {};
};

// State of a job at its end, as the front end knows it.
struct JobInfo {
  // The signal that the user sent to the front end before anything else went wrong.
  std::optional<pb::Cause> interrupted;
  std::vector<NodeEnd> nodes;
  // The nodes with ranks in the newest attempt that was seen to start, ascending; empty: all nodes
  // that are not absent.
  std::vector<uint32_t> members;
  std::vector<std::string> losses;  // a sentence for each loss of a node that reconnected
  // Set if a node's agent sent an invalid message.
  std::optional<pb::Cause> broke_rules = {};
  size_t rendezvous_node = 0;
  uint32_t world_size = 0;  // ranks of the newest attempt that was seen to start
  // How Slurm ended the job's step, in its own words; empty if it did not.
  std::string cancelled = {};
};

struct JobEnd {
  pb::Cause cause;  // kind NONE for success
  int exit_code = 0;
  std::vector<uint32_t> members;     // nodes of the final attempt, ascending
  std::vector<uint32_t> victims;     // ranks that failed because of the cause
  bool saved_on_request = false;     // whether every rank of the final attempt saved; not a failure
  std::vector<std::string> remarks;  // further facts for the user: nodes lost besides the cause
};

// How a session ended.
struct SessionEnd {
  enum class Kind {
    kNotStarted,   // a node could not be reached or prepared
    kInterrupted,  // interrupted by the user before anything was started
    kDetached,     // the job continues without this front end
    kEnded,
  };
  Kind kind = Kind::kEnded;
  JobEnd job = {};
  std::vector<std::string> lines = {};  // lines for the user before the closing block
};

// Returns "node2 was lost: " and the reason.
std::string LostMessage(const NodeEnd& node);

// Returns the end of the job. The first cause is the user's interruption; else a node that broke
// the protocol; else what the rendezvous reported at the end; else what it decided before; else a
// lost node. The exit code is 0 only if every node of the final attempt has reported that each of
// its ranks succeeded, or was lost and is tolerated, these are all ranks, at least one has
// succeeded, every one of these nodes is done and empty, and its teardown was complete; nodes lost
// before are remarks. If every rank saved and stopped on request, the exit code is 85, whichever
// signal requested it. If Slurm ended the job, failures that its signals can cause count as caused
// by Slurm, with the exit code of SIGTERM.
JobEnd DecideJobEnd(const JobInfo& info);

}  // namespace dslaunch
