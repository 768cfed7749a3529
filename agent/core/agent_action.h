// Declares the actions that AgentCore requests. NodeAgent or a simulator carries out each action at
// once and in order. If an action has a result, its comment names the function that receives the
// result.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/attempt_workers.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/contract/status_line.h"
#include "proto/inspect.pb.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {
namespace agent_action {

// An action that writes one line to the agent's log.
struct Log {
  std::string text;
};

// An action that sends an event to the front end and to every viewer.
struct EmitEvent {
  pb::NodeEvent event;
};

// An action that sends a rank's status line to the front end and to every viewer. A reader that
// lags gets only the newest line of each kind.
struct EmitStatus {
  uint32_t rank = 0;
  std::string line;
  StatusKind kind = StatusKind::kProgress;
};

// An action that sends the last event, after the output of the ranks. A second EndEvents has no
// effect.
struct EndEvents {
  pb::NodeDone done;
};

// An action that stops sending to the front end, which has exited or detached. Viewers stay
// connected.
struct DetachFrontEnd {};

// An action that begins to send the output of a started rank, which writes to stdout.log and
// stderr.log in `folder`.
struct FollowRank {
  uint64_t attempt = 0;
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  std::string folder;
};

// An action that ends the output of all ranks with an earlier FollowRank, because these ranks write
// no more.
struct EndRankOutput {
  // True if another attempt may follow, whose ranks' output must come after this output.
  bool others_follow = false;
};

struct SendToSupervisor {
  pb::SupervisorRequest request;
};

// An action that sends a message to the rendezvous. The message already has its attempt; NodeAgent
// adds the sender.
struct SendToRendezvous {
  pb::AgentMessage message;
};

// An action that begins heartbeats: the first at once, then one every `interval`. Each heartbeat
// goes to the supervisor, and one of `ticks_per_beat` also to the rendezvous. No heartbeat is sent
// while the agent's loop has not run for `patience`.
struct StartHeart {
  milliseconds interval{0};
  milliseconds patience{0};
  uint32_t ticks_per_beat = 1;
};

// An action that looks for the rendezvous of node `node_index` at `endpoints` for at most `limit`.
// The result goes to MembershipCore::OnFound.
struct FindRendezvous {
  std::vector<std::string> endpoints;
  uint32_t node_index = 0;
  milliseconds limit{0};
};

// An action that opens the stream to the rendezvous and sends `join` first, after adding the
// identity and addresses of this machine and the port that it has reserved.
struct JoinRendezvous {
  // True to join this node's own rendezvous instead of the rendezvous that FindRendezvous found
  // last.
  bool in_process = false;
  pb::Join join;
};

// An action that closes the stream to the rendezvous. Closes this node's own rendezvous first, if
// there is one, because otherwise the other nodes would treat the disconnection as a failure.
struct LeaveRendezvous {};

// An action that plans the ranks of this node and makes their folders. The result goes to
// WorkersCore::OnPlanned.
struct PlanWorkers {
  uint64_t attempt = 0;
  pb::Assignment assignment;
};

// An action that collects the evidence about a worker that has ended. The result goes to
// AgentCore::OnWorkerDescribed.
struct DescribeWorker {
  pb::WorkerExited exited;
  Clock::time_point noticed;
  // Whether all workers have ended, and each has succeeded or its loss is tolerated.
  bool all_ended_well = false;
  bool tolerated = false;  // whether the job continues without this rank
  bool given_up = false;   // whether the other ranks had declared this rank lost
};

// An action that starts the MPI server of this node's ranks unless it runs already. Requested when
// ranks of other nodes use MPI.
struct StartMpiServer {};

// An action that asks the MPI server about a rank that has ended. The result goes to
// MpiCore::OnRank.
struct AskMpiServer {
  uint32_t local_rank = 0;
};

// An action that inspects a worker: reads its Flight Recorder if `flight`, otherwise the stacks of
// its threads. If `text` is not empty, shows that text and the stacks to the user. If `look` is not
// 0, passes the result to WorkersCore::OnInspected.
struct InspectWorker {
  RankPlace place;
  std::string text;
  uint64_t look = 0;
  // Number of times that the stacks are read, one second apart, to show them to the user. Only the
  // last stacks are passed to OnInspected.
  uint32_t looks = 1;
  bool flight = false;
};

// An action that reserves a port for rank 0 of the next attempt, and releases the port that was
// reserved before. If `check`, also runs the tests of JobSpec.node_check. A later ReservePort
// cancels tests that still run. The result goes to AgentCore::OnPortReserved.
struct ReservePort {
  bool check = false;
};

// An action that ends the processes that the workers had started, because the supervisor has
// exited. The result goes to AgentCore::OnAllReaped.
struct SweepOrphans {
  std::vector<pid_t> groups;
  std::string cgroup;  // empty if the workers had no cgroup
};

// An action that connects to the agent of `candidate` within `limit` and sends `vote`. Withdraws an
// earlier vote. If the candidate answers, the result goes to MajorityCore::OnVoteAnswer.
struct SendVote {
  uint32_t candidate = 0;
  std::string endpoint;
  milliseconds limit{0};
  pb::Vote vote;
};

// An action that withdraws the vote of the last SendVote by closing its connection.
struct WithdrawVote {};

// An action that answers the agent that sent a vote, and closes its connection.
struct AnswerVote {
  uint32_t voter = 0;
  pb::VoteAnswer answer;
};

// An action that opens a rendezvous on this node in place of the lost rendezvous. The result goes
// to MajorityCore::OnRendezvousOpened.
struct OpenRendezvous {
  pb::FailoverRequest last;
};

// An action that writes the result of the job to a file, because no front end received the result.
// NodeAgent adds the times of the job.
struct WriteResult {
  pb::JobResult result;
};

// An action that ends the agent. Carried out once.
struct Quit {};

}  // namespace agent_action

using AgentAction = std::variant<
    agent_action::Log, agent_action::EmitEvent, agent_action::EmitStatus, agent_action::EndEvents,
    agent_action::DetachFrontEnd, agent_action::FollowRank, agent_action::EndRankOutput,
    agent_action::SendToSupervisor, agent_action::SendToRendezvous, agent_action::StartHeart,
    agent_action::FindRendezvous, agent_action::JoinRendezvous, agent_action::LeaveRendezvous,
    agent_action::PlanWorkers, agent_action::DescribeWorker, agent_action::StartMpiServer,
    agent_action::AskMpiServer, agent_action::InspectWorker, agent_action::ReservePort,
    agent_action::SweepOrphans, agent_action::SendVote, agent_action::WithdrawVote,
    agent_action::AnswerVote, agent_action::OpenRendezvous, agent_action::WriteResult,
    agent_action::Quit>;

using AgentActions = std::vector<AgentAction>;

}  // namespace dslaunch
