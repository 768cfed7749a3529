// Connects the agent to its supervisor: sends requests, receives events, and requests the stacks of
// ranks, which the supervisor reads.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <string_view>
#include <vector>

#include "agent/core/agent_action.h"
#include "agent/flight/flight_requests.h"
#include "agent/flight/ras_client.h"
#include "agent/node/node_output.h"
#include "agent/node/stack_requests.h"
#include "proto/agent.pb.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {

// The agent's end of the control socket. Passes all events to the core, except answers to looks.
// Used on the loop's thread, except for Send().
class SupervisorLink {
 public:
  SupervisorLink(asio::io_context& loop, int control_fd, NodeOutput& out);

  void Send(const pb::SupervisorRequest& request) { socket_.Send(request); }  // thread-safe

  StackRequests& stacks() { return stacks_; }
  const FlightRequests& flights() const { return flights_; }
  // Reads the stacks of the ranks that `request` names. Calls `done` once, within
  // StackRequests::kLimit.
  void GetStacks(const pb::StacksRequest& request, std::function<void(pb::StacksReply)> done);

  void Do(agent_action::SendToSupervisor& action) { Send(action.request); }
  void Do(agent_action::InspectWorker& action);

 private:
  void OnMessage(std::string_view bytes);
  void OnGone();
  // Looks at a rank repeatedly until `seen` has action.looks entries, and then reports the entries.
  void Inspect(agent_action::InspectWorker action, std::vector<pb::RankStacks> seen);
  // Reads the content of a rank's Flight Recorder. For the node's first rank, also reads the report
  // of NCCL's RAS.
  void ReadFlight(const agent_action::InspectWorker& action);
  void ReadRas(pb::Inspected inspected);
  void SendInspected(pb::Inspected inspected);

  asio::io_context& loop_;
  NodeOutput& out_;
  FramedSocket socket_;
  StackRequests stacks_;
  FlightRequests flights_;
  RasClient ras_;
};

}  // namespace dslaunch
