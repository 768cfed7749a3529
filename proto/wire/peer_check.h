// Checks messages from other processes of a job before they are used: from agents to the front end
// and to the rendezvous, and from the rendezvous to agents. Pure.
//
// Each function cuts texts beyond their limits, which then end with "...". It fails with
// kUnavailable if a number, address or count is one that no agent sends. The error message is one
// sentence that names the field; it follows "its agent sent" or "it sent". The caller must stop
// trusting a peer after such an error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/inspect.pb.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/node_set.h"

namespace dslaunch {

inline constexpr uint32_t kMaxJobRanks = 1u << 24;  // maximum number of ranks of a job
inline constexpr uint64_t kMaxAttempts = 1u << 30;
inline constexpr uint64_t kMaxTerms = 1u << 30;

// Maximum bytes of a text, except for last lines and output data.
inline constexpr size_t kMaxPeerTextBytes = 8 << 10;
// Maximum bytes of the last lines of a rank. Longer texts lose their beginning.
inline constexpr size_t kMaxLastLinesBytes = 64 << 10;

// Maximum entries of a list of texts or messages. Further entries are dropped.
inline constexpr int kMaxPeerEntries = 10'000;

// The limits of the job as known to the process that checks messages.
struct PeerLimits {
  uint32_t nodes = kMaxNodesInSet;
  uint32_t ranks = kMaxJobRanks;  // number of slots of the job
  uint32_t slots = kMaxJobRanks;  // number of slots of the sending node
  uint64_t attempts = kMaxAttempts;
};

// The functions below check messages from agents to the front end.
Result<void> CheckPrepareReply(pb::PrepareReply& reply);
Result<void> CheckCopyOutput(pb::CopyOutput& output);
Result<void> CheckFailoverReply(pb::FailoverReply& reply);
Result<void> CheckNodeEvent(pb::NodeEvent& event, const PeerLimits& limits);
Result<void> CheckJobSight(pb::JobSight& sight);
Result<void> CheckStacksReply(pb::StacksReply& reply, const PeerLimits& limits);

// The functions below check messages between agents and the rendezvous, in both directions.
Result<void> CheckAgentMessage(pb::AgentMessage& message, const PeerLimits& limits);
Result<void> CheckRendezvousMessage(pb::RendezvousMessage& message, const PeerLimits& limits);

// The functions below check messages between agents that elect another host of the rendezvous.
Result<void> CheckVote(pb::Vote& vote, const PeerLimits& limits);
Result<void> CheckVoteAnswer(pb::VoteAnswer& answer);

// Cuts texts and lists of a message at every depth. Used for messages that need no other check.
// Fields named `data` are not cut.
void CutTexts(google::protobuf::Message& message);

}  // namespace dslaunch
