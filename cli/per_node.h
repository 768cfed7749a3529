// The per-node style, as torchrun's and as `deepspeed --no_ssh`: one command on each node, nobody
// uses SSH. Node 0's command is the front end (cli/session.h) and reaches the others' agents
// through the connections that their commands make (cli/transport_inbound.h); theirs are
// MemberSessions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch_plan.h"
#include "cli/options.h"
#include "cli/per_node_seats.h"
#include "cli/transport_inbound.h"
#include "hostfiles/hostfile.h"
#include "proto/contract/error.h"
#include "proto/contract/unique_fd.h"
#include "proto/job.pb.h"

namespace dslaunch {

// What is true of this machine and of what it would run.
struct PerNodeFacts {
  std::string host_name;
  int gpus = 0;
  int cpus = 1;
  std::optional<std::vector<Host>> hosts;  // of the hostfile
  std::string hostfile;                    // its path
};

// The nodes as they are known before any has come: names, and slots where a hostfile has them.
// Errors are kUsage.
Result<LaunchPlan> DraftPerNodePlan(const LaunchOptions& options, const PerNodeFacts& facts);

// What this command's node asks for. Errors are kUsage.
Result<pb::SeatRequest> MakeSeatRequest(const LaunchOptions& options, const PerNodeFacts& facts,
                                        const LaunchPlan& draft, const pb::Program& program);

// How node 0's command seats the others.
SeatsOptions MakeSeatsOptions(const LaunchOptions& options, const PerNodeFacts& facts,
                              const LaunchPlan& draft, const pb::SeatRequest& own);

// The draft once it is known how many ranks each node starts, node 0 first. Errors are kUsage.
Result<LaunchPlan> FinishPerNodePlan(LaunchPlan draft, const std::vector<int>& slots,
                                     const LaunchOptions& options);

// For the end of a job, once it has begun, as its nodes see it.
milliseconds EndTimeout(const pb::Timeouts& timeouts);

// A listening socket if this command is node 0's, an invalid one if another is. kUnavailable: it
// must be, but the port cannot be had.
Result<UniqueFd> ListenIfNodeZero(const PerNode& place);

}  // namespace dslaunch
