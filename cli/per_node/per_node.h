// Implements the per-node style of torchrun and `deepspeed --no_ssh`: one command on each node,
// without SSH. Node 0's command is the front end (cli/session/session.h). It reaches the other
// agents through the connections that their commands make (cli/per_node/transport_inbound.h). Every
// other command is a MemberSession.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/per_node/per_node_admission.h"
#include "cli/per_node/transport_inbound.h"
#include "cli/plan/launch_plan.h"
#include "cli/request/launch_options.h"
#include "cli/session/session.h"
#include "hostfiles/hostfile.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Facts about this machine and the job's hostfile.
struct PerNodeInfo {
  std::string host_name;
  PlanInfo plan;
  // Nodes of the hostfile; nullopt if the job has no hostfile.
  std::optional<std::vector<Host>> hosts;
  std::string hostfile;
  bool has_token_descriptor = false;  // whether kTokenFdVariable is set
};

// Reads the facts about this machine and the hostfile. Errors are kUsage or kBadInput.
Result<PerNodeInfo> ReadPerNodeInfo(const LaunchOptions& options);

// Returns the draft of the plan, which has what is known before any node has joined: names and
// slots. Slots come from the hostfile; without a hostfile, every node has the slots of this node.
// Fails with kUsage if the options are wrong, or if a job of several nodes has no token and does
// not use a loopback address, because nodes then could not authenticate themselves.
Result<LaunchPlan> DraftPerNodePlan(const LaunchOptions& options, const PerNodeInfo& info);

// Returns the request with which this command's node joins the job. `flags` is the draft of the
// plan; `program` is the program that this node runs.
pb::AdmissionRequest MakeAdmissionRequest(const LaunchOptions& options, const PerNodeInfo& info,
                                          const LaunchPlan& flags, const pb::Program& program);

// Returns the options by which node 0's command assigns places (indexes among the job's nodes) to
// the other nodes. `flags` is the draft of the plan; `own` is the request of node 0 itself.
AdmissionOptions MakeAdmissionOptions(const LaunchOptions& options, const PerNodeInfo& info,
                                      const LaunchPlan& flags, const pb::AdmissionRequest& own);

// Returns the final plan, made from the draft once the number of ranks on each node is known.
// `slots` has these numbers, node 0 first. Errors are kUsage.
Result<LaunchPlan> FinishPerNodePlan(LaunchPlan flags, const std::vector<int>& slots,
                                     const LaunchOptions& options);

// Returns a socket that listens on the port of `place` if this command is node 0's, or an invalid
// descriptor if another command is. If neither a node rank nor is_host decides, this command is
// node 0's if place.host is this machine and no program uses the port yet. Fails with kUnavailable
// if this command is node 0's but cannot listen.
Result<UniqueFd> ListenIfNodeZero(const PerNode& place);

// Enters the job. `session` is complete except for its plan, which is the draft. If this command is
// node 0's, waits for the other nodes, completes the plan, sets `transport`, and returns nullopt.
// Otherwise runs until the job's end and returns the exit code.
Result<std::optional<int>> EnterPerNodeJob(const LaunchOptions& options, const PerNodeInfo& info,
                                           SessionOptions& session,
                                           std::unique_ptr<InboundTransport>& transport,
                                           Terminal& terminal);

}  // namespace dslaunch
