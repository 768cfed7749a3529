// How a job ended: one cause and one exit code from the reports of all nodes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

// What a node reported of its own ranks.
struct RankReports {
  uint64_t attempt = 0;    // the newest that it started
  uint32_t count = 0;      // ranks that it started there
  uint32_t succeeded = 0;  // of which each ended with exit code 0
  uint32_t saved = 0;      // of which each saved and stopped on request (ExitCode::kPreempted)
  uint32_t tolerated = 0;  // of which each was lost, while the others went on
};

// What the front end knows about one node at the end of the job.
struct NodeEnd {
  std::string name;
  bool absent = false;               // it was never reached, so nothing was started there
  std::optional<pb::NodeDone> done;  // its final status
  std::optional<pb::Cause> outcome;  // as its agent received it; kind NONE for success
  std::string lost_reason;           // when not done
  std::string last_output;           // of its supervisor, when not done; often empty
  RankReports ranks = {};
};

// What the front end knows about a job at its end.
struct JobInfo {
  // The signal that the user sent to the front end before anything else went wrong.
  std::optional<pb::Cause> interrupted;
  std::vector<NodeEnd> nodes;
  // Those with ranks in the newest attempt that was seen to start, ascending; empty: all that are
  // not absent.
  std::vector<uint32_t> members;
  std::vector<std::string> losses;  // of nodes that came back later, a sentence each
  // A node sent what no agent sends.
  std::optional<pb::Cause> broke_rules = {};
  size_t rendezvous_node = 0;
  uint32_t world_size = 0;  // of the newest attempt that was seen to start
  // How Slurm ended the job's step, in its own words; empty: it did not.
  std::string cancelled = {};
};

struct JobEnd {
  pb::Cause cause;  // kind NONE for success
  int exit_code = 0;
  std::vector<uint32_t> members;     // nodes of the final attempt, ascending
  std::vector<uint32_t> victims;     // ranks that failed because of the cause
  bool saved_on_request = false;     // every rank of the final attempt; not a failure
  std::vector<std::string> remarks;  // what else a user must know: nodes lost besides the cause
};

// "node2 was lost: " and why.
std::string LostMessage(const NodeEnd& node);

// The first cause is the user's interruption; else a node that broke the rules; else what the
// rendezvous reported at the end; else what it decided before; else a node that was lost. 0 only
// when every node of the final attempt has reported that each of its ranks succeeded, or was lost
// and is tolerated, these are all ranks, at least one has succeeded, every one of the nodes is done
// and empty and the teardown was complete; nodes lost before are remarks. Where every rank saved
// and stopped on request the exit code is 85, whichever signal asked for it. Where Slurm ended the
// job, what its signals may have done is its doing, and the exit code is SIGTERM's.
JobEnd DecideJobEnd(const JobInfo& info);

}  // namespace dslaunch
