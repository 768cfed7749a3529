// Checks what other processes of a job say, before anything else sees it: what agents say to the
// front end and to the rendezvous, and what the rendezvous says to agents. Pure.
//
// Texts are cut to their limit, with "..." for the rest. A number, an address or a count that no
// agent sends is an error, one sentence that names the field and follows "its agent sent" or "it
// sent": such a peer is not believed any more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/inspect.pb.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/node_set.h"

namespace dslaunch {

inline constexpr uint32_t kMaxJobRanks = 1u << 24;  // of a job
inline constexpr uint64_t kMaxAttempts = 1u << 30;
inline constexpr uint64_t kMaxTerms = 1u << 30;

// Bytes of a text, but for those of the next two kinds.
inline constexpr size_t kMaxPeerTextBytes = 8 << 10;
// Of the last lines that a rank wrote; the end of it is kept.
inline constexpr size_t kMaxLastLinesBytes = 64 << 10;

// Entries of a list of texts or messages; the others are left out.
inline constexpr int kMaxPeerEntries = 10'000;

// Of the job, as this side knows it.
struct PeerLimits {
  uint32_t nodes = kMaxNodesInSet;
  uint32_t ranks = kMaxJobRanks;  // when all slots are used
  uint32_t slots = kMaxJobRanks;  // of the node that speaks
  uint64_t attempts = kMaxAttempts;
};

// What agents say to the front end.
Result<void> CheckPrepareReply(pb::PrepareReply& reply);
Result<void> CheckCopyOutput(pb::CopyOutput& output);
Result<void> CheckFailoverReply(pb::FailoverReply& reply);
Result<void> CheckNodeEvent(pb::NodeEvent& event, const PeerLimits& limits);
Result<void> CheckJobSight(pb::JobSight& sight);

// What agents say to the rendezvous, and it to them.
Result<void> CheckAgentMessage(pb::AgentMessage& message, const PeerLimits& limits);
Result<void> CheckRendezvousMessage(pb::RendezvousMessage& message, const PeerLimits& limits);

// What agents say to each other when they elect another rendezvous.
Result<void> CheckVote(pb::Vote& vote, const PeerLimits& limits);
Result<void> CheckVoteAnswer(pb::VoteAnswer& answer);

// For messages of which only texts and lists can do harm: cuts both, at every depth. Bytes of the
// name `data` stay as they are.
void CutTexts(google::protobuf::Message& message);

}  // namespace dslaunch
