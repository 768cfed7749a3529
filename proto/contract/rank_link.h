// Defines how a rank gets connections to other ranks. The rank requests them from its node's agent
// over a Unix socket (kRankSocketVariable) and receives a descriptor for each, so a rank opens no
// port. Between two nodes, the agents carry a connection through the job's mutual TLS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

inline constexpr char kRankSocketVariable[] = "DSLAUNCH_RANK_SOCKET";
// The label of connections between the PMIx servers of two nodes (agent/pmix). They are made like
// connections of ranks: a server sends kHello as the first rank of its node, and dials rank 0 with
// this label.
inline constexpr char kPmixLinkLabel[] = "pmix";
// The label with which a Python rank agrees with the other ranks on a copy of their states in
// memory (python/dslaunch/links.py). The rank sends kHello with this label, because the process may
// also have the connections of a rank.
inline constexpr char kMemoryLinkLabel[] = "memory";

// A message of the fixed size kRankLinkMessageBytes. The dialing rank owns one direction of each
// connection. `label` identifies the purpose of the connection to both ranks.
struct RankLinkMessage {
  enum class Kind : uint32_t {
    // Rank to agent, first message: `from`, `attempt`, and `text`: the network interfaces that
    // other ranks are to use, separated by commas (empty: any).
    kHello = 1,
    // Agent to rank, the answer to kHello: `node`, and `text`: the endpoints at which other nodes
    // reach its agent.
    kWelcome = 2,
    // Rank to agent: `to`, `label`, and the `node` and `text` of the kWelcome of rank `to` (`text`
    // is empty for rank 0, whose agent is known). Agent to agent: the first message on a new
    // connection, which also has `attempt` and `from`, a rank of the node that the certificate
    // names.
    kDial = 3,
    kLink = 4,    // agent to rank, with a descriptor: connection from `from` to `to`
    kFailed = 5,  // agent to rank: no connection to `to`; `text` is the reason, for the user
    kVote = 6,    // agent to agent, not for a rank: a vote follows (proto/rendezvous.proto)
  };
  Kind kind = Kind::kHello;
  uint32_t from = 0;  // rank number in the job
  uint32_t to = 0;
  uint32_t node = 0;  // index of the node in the hostfile
  uint64_t attempt = 0;
  std::string label;
  std::string text;  // endpoints are "address:port", separated by spaces, best first

  bool operator==(const RankLinkMessage&) const = default;
};

inline constexpr size_t kRankLinkMessageBytes = 1024;
inline constexpr size_t kMaxRankLinkLabel = 256;
inline constexpr size_t kMaxRankLinkText = 720;

// Returns exactly kRankLinkMessageBytes bytes. Truncates texts beyond the limits above.
std::string EncodeRankLink(const RankLinkMessage& message);
// Parses a message. Fails with kBadInput if the bytes are not a valid message.
Result<RankLinkMessage> DecodeRankLink(std::string_view bytes);

}  // namespace dslaunch
