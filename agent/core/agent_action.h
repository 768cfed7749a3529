// Declares the actions of AgentCore. Each is carried out at once and in order. Where AgentCore
// expects an answer, the comment names the event that delivers it.
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

// Writes one line to the agent's log.
struct Log {
  std::string text;
};

// Sends an event to the front end and to every viewer.
struct EmitEvent {
  pb::NodeEvent event;
};

// Sends a rank's status line to the front end and to every viewer. A reader that lags gets only the
// newest line of each kind.
struct EmitStatus {
  uint32_t rank = 0;
  std::string line;
  StatusKind kind = StatusKind::kProgress;
};

// Sends the last event after the output of the ranks. A second EndEvents has no effect.
struct EndEvents {
  pb::NodeDone done;
};

// Stops sending to the front end, which has exited or detached. Viewers stay connected.
struct DetachFrontEnd {};

// Sends the output of a started rank, which writes to stdout.log and stderr.log in `folder`.
struct FollowRank {
  uint64_t attempt = 0;
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  std::string folder;
};

// Ends the output of the ranks followed so far.
struct EndRankOutput {
  bool others_follow = false;  // true if ranks of another attempt start after this output is sent
};

struct SendToSupervisor {
  pb::SupervisorRequest request;
};

// Sends a message to the rendezvous. The attempt is set; NodeAgent adds the sender.
struct SendToRendezvous {
  pb::AgentMessage message;
};

// Begins heartbeats: the first at once, then one every `interval`. Of `ticks_per_beat` heartbeats,
// the rendezvous gets one. None is sent while the loop has not turned for `patience`.
struct StartHeart {
  milliseconds interval{0};
  milliseconds patience{0};
  uint32_t ticks_per_beat = 1;
};

// Looks for the rendezvous of another node for at most `limit`. Answer: MembershipCore::OnFound.
struct FindRendezvous {
  std::vector<std::string> endpoints;
  uint32_t node_index = 0;
  milliseconds limit{0};
};

// Opens the stream to the rendezvous and sends `join` first, after adding the identity of this
// machine, its addresses and the port that it has reserved.
struct JoinRendezvous {
  // True to join this node's own rendezvous instead of the rendezvous that was found last.
  bool in_process = false;
  pb::Join join;
};

// Closes the stream to the rendezvous. Before that, closes this node's own rendezvous if it has
// one, because the other nodes must not see the disconnection as a failure.
struct LeaveRendezvous {};

// Plans the ranks of this node and makes their folders. Answer: WorkersCore::OnPlanned.
struct PlanWorkers {
  uint64_t attempt = 0;
  pb::Assignment assignment;
};

// Collects the evidence about a worker that has ended. Answer: OnWorkerDescribed.
struct DescribeWorker {
  pb::WorkerExited exited;
  Clock::time_point noticed;
  bool all_ended_well = false;  // true if all workers have ended, and succeeded or may be lost
  bool tolerated = false;       // true if the loss of this rank is tolerated
  bool given_up = false;        // true if the other ranks had given this rank up
};

// Starts the MPI server of this node's ranks unless it runs, because ranks of other nodes use MPI.
struct StartMpiServer {};

// Asks the MPI server about a rank that has ended. Answer: MpiCore::OnRank.
struct AskMpiServer {
  uint32_t local_rank = 0;
};

// Reads what the threads of a worker do or, with `flight`, the content of its Flight Recorder. With
// `text`, shows the user that text and the threads. With `look`, calls WorkersCore::OnInspected.
struct InspectWorker {
  RankPlace place;
  std::string text;
  uint64_t look = 0;
  uint32_t looks = 1;  // number of looks for the user, one second apart; `look` gets the last
  bool flight = false;
};

// Reserves a port for rank 0 of the next attempt, and releases the port that is held so far. With
// `check`, also runs the tests of JobSpec.node_check. A later ReservePort replaces this one.
// Answer: OnPortReserved.
struct ReservePort {
  bool check = false;
};

// Ends the processes that the workers had started, because the supervisor has ended. Answer:
// OnAllReaped.
struct SweepOrphans {
  std::vector<pid_t> groups;
  std::string cgroup;  // empty if the workers had no cgroup
};

// Connects to the agent of `candidate` within `limit`, and sends `vote`. Withdraws a vote that was
// sent before. Answer: MajorityCore::OnVoteAnswer, if the candidate answers.
struct SendVote {
  uint32_t candidate = 0;
  std::string endpoint;
  milliseconds limit{0};
  pb::Vote vote;
};

// Withdraws the vote of the last SendVote by closing its connection.
struct WithdrawVote {};

// Answers the agent that sent a vote, and closes its connection.
struct AnswerVote {
  uint32_t voter = 0;
  pb::VoteAnswer answer;
};

// Opens a rendezvous on this node in place of the lost one. Answer:
// MajorityCore::OnRendezvousOpened.
struct OpenRendezvous {
  pb::FailoverRequest last;
};

// Writes the result of the job to a file, because no front end received it. NodeAgent adds the
// times of the job.
struct WriteResult {
  pb::JobResult result;
};

// Ends the agent. Carried out once.
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
