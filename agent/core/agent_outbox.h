// Collects the steps that the components of AgentCore decide, in order. A step is an action, which
// NodeAgent carries out, or a request to another component, which AgentCore carries out where it
// occurs among the actions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/agent_action.h"
#include "base/deadline.h"
#include "proto/contract/status_line.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

namespace agent_request {

// A request to send the cause of this node's end to the rendezvous, which then stops the other
// nodes.
struct NotifyStop {
  pb::Cause cause;
};

// A request to end this node's part of the job. The first request sets the cause; later requests
// can only kill the ranks.
struct Stop {
  pb::Cause cause;
  bool kill_now = false;
};

// A request to stop waiting for the other nodes, because the rendezvous is lost for good and will
// not confirm their end.
struct EndRendezvous {};

// A request to leave this node's own rendezvous, so that the other nodes move to another
// rendezvous.
struct LeaveToOthers {};

// A request to end the agent if no process needs it any more.
struct QuitIfIdle {};

// A request to end all ranks, before the next attempt or before another rendezvous is joined.
struct DrainRanks {};

// A request to begin an election of another rendezvous, because the rendezvous is lost.
struct Elect {
  pb::Cause cause;
};

// A request to move to the elected rendezvous.
struct Follow {
  pb::FailoverRequest next;
};

// A request to handle the end of a rank, after the MPI server has answered or its answer is
// overdue.
struct EndRank {
  pb::WorkerExited exited;
  Clock::time_point noticed;
};

// A request to count the state that a rank has reported for the goodput.
struct CountStatus {
  uint32_t local_rank = 0;
  StatusLine line;
};

}  // namespace agent_request

using AgentRequest =
    std::variant<agent_request::NotifyStop, agent_request::Stop, agent_request::EndRendezvous,
                 agent_request::LeaveToOthers, agent_request::QuitIfIdle, agent_request::DrainRanks,
                 agent_request::Elect, agent_request::Follow, agent_request::EndRank,
                 agent_request::CountStatus>;

// Collects actions and requests in order. Drops messages to a supervisor or rendezvous that cannot
// be reached.
class AgentOutbox {
 public:
  using Step = std::variant<AgentAction, AgentRequest>;

  void Do(AgentAction action) { steps_.emplace_back(std::move(action)); }
  void Ask(AgentRequest request) { steps_.emplace_back(std::move(request)); }
  std::vector<Step> Take() { return std::exchange(steps_, {}); }

  void Log(std::string text) { Do(agent_action::Log{std::move(text)}); }
  void Emit(pb::NodeEvent event) { Do(agent_action::EmitEvent{std::move(event)}); }
  // Logs `text` and sends it to the front end, which shows it to the user. `standstill` states
  // whether a standstill of the job begins or ends with this message.
  void Notify(std::string text, pb::Notice::Standstill standstill = pb::Notice::UNCHANGED);
  void SendToSupervisor(pb::SupervisorRequest request);
  // Sends the message with the current attempt. Drops it if no rendezvous is joined or if the
  // rendezvous is over.
  void SendToRendezvous(pb::AgentMessage message);
  // Reports `cause` to the rendezvous and stops this node's part of the job.
  void StopJob(const pb::Cause& cause);
  // Stops this node's part of the job because of `cause`. Does not report the cause, because the
  // rendezvous is lost.
  void StopCutOff(const pb::Cause& cause);

  // Records that the supervisor has exited. Returns false if that was recorded before.
  bool OnSupervisorGone() { return std::exchange(has_supervisor_, false); }
  void OnJoined() { is_joined_ = true; }
  void OnLeft() { is_joined_ = false; }
  // Records that the rendezvous will send nothing more. Returns false if that was recorded before.
  bool OnRendezvousOver() { return !std::exchange(is_over_, true); }
  void SetAttempt(uint64_t attempt) { attempt_ = attempt; }
  uint64_t attempt() const { return attempt_; }

  // Returns whether a stream to the rendezvous is open and more messages are expected.
  bool has_rendezvous() const { return is_joined_ && !is_over_; }
  // Returns whether the rendezvous will send nothing more, because it has ended or is lost for
  // good.
  bool is_rendezvous_over() const { return is_over_; }

 private:
  std::vector<Step> steps_;
  bool has_supervisor_ = true;
  bool is_joined_ = false;
  bool is_over_ = false;
  uint64_t attempt_ = 0;  // newest attempt in which this node takes part
};

}  // namespace dslaunch
