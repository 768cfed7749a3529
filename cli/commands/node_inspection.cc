#include "cli/commands/node_inspection.h"

#include <future>
#include <utility>

#include "cli/commands/transport_choice.h"
#include "cli/transport/ssh/transport_ssh.h"
#include "proto/wire/channel.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {
namespace {

// Limit for the end of calls after their connection is shut down.
constexpr milliseconds kCallsEndWithin(10'000);

// Waits for a call until `deadline`, then aborts the inspection. The deadline of gRPC is not
// enough, because gRPC can miss it while a write blocks.
template <class Request, class Reply, class Start>
Result<Reply> CallWithin(NodeInspection& inspection, const std::string& node,
                         const Request& request, Deadline deadline, Start start) {
  struct Call {
    // Released last, because the owner of this object may wait for the call.
    std::shared_ptr<const void> counted;
    grpc::ClientContext context;
    Request request;
    Reply reply;
    std::promise<grpc::Status> status;
  };
  auto call = std::make_shared<Call>();
  call->counted = inspection.BeginCall();
  call->request = request;
  std::future<grpc::Status> status = call->status.get_future();
  start(&call->context, &call->request, &call->reply,
        [call](const grpc::Status& result) { call->status.set_value(result); });
  if (status.wait_until(deadline.when()) != std::future_status::ready) {
    inspection.End();
    return Error{ExitCode::kTimedOut, node + ": its agent did not answer in time"};
  }
  const grpc::Status result = status.get();
  if (result.ok()) {
    CutTexts(call->reply);
    return std::move(call->reply);
  }
  return Error{ExitCode::kUnavailable, node + ": " + result.error_message()};
}

}  // namespace

NodeInspection::~NodeInspection() {
  End();
  calls_.AwaitNone(Deadline::After(kCallsEndWithin));
}

Result<std::unique_ptr<NodeInspection>> NodeInspection::Open(const NodeWay& way,
                                                             const AgentRole& role,
                                                             const AgentBinary& agent,
                                                             Deadline deadline) {
  TransportChoice choice;
  choice.launcher = way.launcher;
  choice.exec_command = way.exec_command;
  choice.ssh = way.ssh;
  choice.slurm_shares = way.slurm_shares;
  // Without an explicit share, srun would allocate all resources of the job, so a share without
  // GPUs is requested.
  if (choice.slurm_shares.empty())
    choice.slurm_shares[way.target.host] = {way.target.component, 0, "none"};
  DSL_TRY_ASSIGN(const std::unique_ptr<Transport> transport, MakeTransport(choice, agent, role));
  DSL_TRY_ASSIGN(std::unique_ptr<NodeLink> link, transport->Connect(way.target, deadline));
  std::shared_ptr<grpc::Channel> channel = ChannelFromFd(way.target.name, link->TakeFd());
  return std::unique_ptr<NodeInspection>(new NodeInspection(std::move(link), std::move(channel)));
}

Result<std::unique_ptr<NodeInspection>> NodeInspection::Open(const JobRecord& record, size_t node,
                                                             AgentRole::Kind kind,
                                                             const AgentBinary& agent,
                                                             Deadline deadline) {
  const NodeTarget& at = record.nodes[node];
  if (record.launcher == Launcher::kPerNode && node > 0) {
    return Error{ExitCode::kUnavailable,
                 at.name +
                     ": its own command started this node of the job, which is not reached "
                     "from here; look at that machine's log files"};
  }
  DSL_TRY_ASSIGN(SshOptions ssh, MakeSshOptions(record.ssh_command));
  const NodeWay way{record.launcher, at, std::move(ssh), record.exec_command};
  AgentBinary placed = agent;
  placed.node_folder = record.agent_dir;
  return Open(way, {kind, record.job_id, static_cast<uint32_t>(node)}, placed, deadline);
}

Result<std::unique_ptr<NodeInspection>> NodeInspection::Open(const NodeWay& way,
                                                             const AgentBinary& agent,
                                                             Deadline deadline) {
  return Open(way, AgentRole{AgentRole::Kind::kRead, "", 0}, agent, deadline);
}

pb::JobPlace PlaceOf(const JobRecord& record, size_t node) {
  pb::JobPlace place;
  place.set_job_id(record.job_id);
  place.set_node_name(record.nodes[node].name);
  place.set_node_index(static_cast<uint32_t>(node));
  place.set_log_dir(record.log_dir);
  return place;
}

Result<pb::JobSight> InspectNode(const JobRecord& record, size_t node, const AgentBinary& agent,
                                 Deadline deadline) {
  DSL_TRY_ASSIGN(const std::unique_ptr<NodeInspection> inspection,
                 NodeInspection::Open(record, node, AgentRole::Kind::kRead, agent, deadline));
  const auto stub = pb::Inspection::NewStub(inspection->channel());
  Result<pb::JobSight> sight = CallWithin<pb::JobPlace, pb::JobSight>(
      *inspection, record.nodes[node].name, PlaceOf(record, node), deadline,
      [&](auto... arguments) { stub->async()->Look(arguments...); });
  if (!sight.ok()) return sight;
  if (const Result<void> checked = CheckJobSight(*sight); !checked.ok()) {
    return Error{checked.error().code,
                 record.nodes[node].name + ": its agent sent " + checked.error().message};
  }
  return sight;
}

Result<pb::StacksReply> StacksOfNode(const JobRecord& record, size_t node,
                                     const pb::StacksRequest& request, const AgentBinary& agent,
                                     Deadline deadline) {
  DSL_TRY_ASSIGN(const std::unique_ptr<NodeInspection> inspection,
                 NodeInspection::Open(record, node, AgentRole::Kind::kAttach, agent, deadline));
  const auto stub = pb::Agent::NewStub(inspection->channel());
  Result<pb::StacksReply> reply = CallWithin<pb::StacksRequest, pb::StacksReply>(
      *inspection, record.nodes[node].name, request, deadline,
      [&](auto... arguments) { stub->async()->GetStacks(arguments...); });
  if (!reply.ok()) return reply;
  if (const Result<void> checked = CheckStacksReply(*reply, PeerLimits()); !checked.ok()) {
    return Error{checked.error().code,
                 record.nodes[node].name + ": its agent sent " + checked.error().message};
  }
  return reply;
}

Result<void> RemoveFromNode(const JobRecord& record, size_t node, const AgentBinary& agent,
                            Deadline deadline) {
  DSL_TRY_ASSIGN(const std::unique_ptr<NodeInspection> inspection,
                 NodeInspection::Open(record, node, AgentRole::Kind::kRead, agent, deadline));
  const auto stub = pb::Inspection::NewStub(inspection->channel());
  const Result<pb::RemoveReply> reply = CallWithin<pb::JobPlace, pb::RemoveReply>(
      *inspection, record.nodes[node].name, PlaceOf(record, node), deadline,
      [&](auto... arguments) { stub->async()->Remove(arguments...); });
  if (!reply.ok()) return reply.error();
  if (!reply->refusal().empty()) return Error{ExitCode::kUnavailable, reply->refusal()};
  return {};
}

Result<pb::NodeInfo> RequestNodeInfo(NodeInspection& inspection, const std::string& node,
                                     const pb::NodeInfoRequest& request, Deadline deadline) {
  const auto stub = pb::Inspection::NewStub(inspection.channel());
  return CallWithin<pb::NodeInfoRequest, pb::NodeInfo>(
      inspection, node, request, deadline,
      [&](auto... arguments) { stub->async()->GetNodeInfo(arguments...); });
}

Result<pb::ListenReply> ListenOnNode(NodeInspection& inspection, const std::string& node,
                                     const pb::ListenRequest& request, Deadline deadline) {
  const auto stub = pb::Inspection::NewStub(inspection.channel());
  return CallWithin<pb::ListenRequest, pb::ListenReply>(
      inspection, node, request, deadline,
      [&](auto... arguments) { stub->async()->Listen(arguments...); });
}

Result<pb::ReachReply> ReachFromNode(NodeInspection& inspection, const std::string& node,
                                     const pb::ReachRequest& request, Deadline deadline) {
  const auto stub = pb::Inspection::NewStub(inspection.channel());
  return CallWithin<pb::ReachRequest, pb::ReachReply>(
      inspection, node, request, deadline,
      [&](auto... arguments) { stub->async()->Reach(arguments...); });
}

Result<pb::NodeMeasurement> MeasureOnNode(NodeInspection& inspection, const std::string& node,
                                          const pb::MeasureRequest& request, Deadline deadline) {
  const auto stub = pb::Inspection::NewStub(inspection.channel());
  return CallWithin<pb::MeasureRequest, pb::NodeMeasurement>(
      inspection, node, request, deadline,
      [&](auto... arguments) { stub->async()->MeasureNode(arguments...); });
}

Result<pb::ServeLinkReply> ServeLinkOnNode(NodeInspection& inspection, const std::string& node,
                                           const pb::ServeLinkRequest& request, Deadline deadline) {
  const auto stub = pb::Inspection::NewStub(inspection.channel());
  return CallWithin<pb::ServeLinkRequest, pb::ServeLinkReply>(
      inspection, node, request, deadline,
      [&](auto... arguments) { stub->async()->ServeLink(arguments...); });
}

Result<pb::LinkMeasurement> MeasureLinkFromNode(NodeInspection& inspection, const std::string& node,
                                                const pb::MeasureLinkRequest& request,
                                                Deadline deadline) {
  const auto stub = pb::Inspection::NewStub(inspection.channel());
  return CallWithin<pb::MeasureLinkRequest, pb::LinkMeasurement>(
      inspection, node, request, deadline,
      [&](auto... arguments) { stub->async()->MeasureLink(arguments...); });
}

}  // namespace dslaunch
