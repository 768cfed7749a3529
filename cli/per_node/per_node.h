// The per-node style, as torchrun's and as `deepspeed --no_ssh`: one command on each node,
// without SSH. Node 0's command is the front end (cli/session/session.h) and reaches the other
// agents through the connections that their commands make (cli/per_node/transport_inbound.h). Each
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

// Facts about this machine.
struct PerNodeInfo {
  std::string host_name;
  PlanInfo plan;
  std::optional<std::vector<Host>> hosts;  // nodes of the hostfile, if the job has one
  std::string hostfile;                    // path of the hostfile
  bool has_token_descriptor = false;       // kTokenFdVariable is set
};

// Errors are kUsage or kBadInput.
Result<PerNodeInfo> ReadPerNodeInfo(const LaunchOptions& options);

// The nodes as they are known before any has joined: names, and slots as a hostfile has them, or as
// this node's. Errors are kUsage; one is that several nodes have no token to prove who they are,
// and do not meet at this machine's loopback address.
Result<LaunchPlan> DraftPerNodePlan(const LaunchOptions& options, const PerNodeInfo& info);

// The request by which this command's node joins.
pb::AdmissionRequest MakeAdmissionRequest(const LaunchOptions& options, const PerNodeInfo& info,
                                          const LaunchPlan& flags, const pb::Program& program);

// How node 0's command places the others.
AdmissionOptions MakeAdmissionOptions(const LaunchOptions& options, const PerNodeInfo& info,
                                      const LaunchPlan& flags, const pb::AdmissionRequest& own);

// The draft once it is known how many ranks each node starts, node 0 first. Errors are kUsage.
Result<LaunchPlan> FinishPerNodePlan(LaunchPlan flags, const std::vector<int>& slots,
                                     const LaunchOptions& options);

// A listening socket if this command is node 0's, an invalid one if another command is.
// kUnavailable: this command must be node 0's, but cannot listen on the port.
Result<UniqueFd> ListenIfNodeZero(const PerNode& place);

// `session` is complete but for its plan, which is the draft. Where this command is node 0's: waits
// for the others, completes the plan, sets `transport`, and returns nullopt. Any other command runs
// to the job's end: its exit code.
Result<std::optional<int>> EnterPerNodeJob(const LaunchOptions& options, const PerNodeInfo& info,
                                           SessionOptions& session,
                                           std::unique_ptr<InboundTransport>& transport,
                                           Terminal& terminal);

}  // namespace dslaunch
