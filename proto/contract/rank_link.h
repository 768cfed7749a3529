// Defines the messages by which a rank gets connections to other ranks. The rank requests them from
// its node's agent over a Unix socket (kRankSocketVariable) and receives a descriptor for each, so
// a rank opens no port. Between two nodes, the agents carry a connection through the job's mutual
// TLS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

inline constexpr char kRankSocketVariable[] = "DSLAUNCH_RANK_SOCKET";
// The label of connections between the PMIx servers of two nodes (agent/pmix), which are made like
// connections of ranks. A server sends kHello as the first rank of its node, and dials rank 0 with
// this label.
inline constexpr char kPmixLinkLabel[] = "pmix";
// The label of connections over which Python ranks agree on a copy of their states in memory
// (python/dslaunch/links.py). A rank sends kHello with this label, because the same process may
// also have the ordinary connections of a rank.
inline constexpr char kMemoryLinkLabel[] = "memory";

// A message of the fixed size kRankLinkMessageBytes. `label` identifies the purpose of a connection
// to both of its ranks. The dialing rank owns one direction of the connection.
struct RankLinkMessage {
  enum class Kind : uint32_t {
    // From rank to agent, the first message: `from`, `attempt`, and in `text` the network
    // interfaces that other ranks should use, separated by commas (empty for any interface).
    kHello = 1,
    // From agent to rank, the answer to kHello: `node`, and in `text` the endpoints at which other
    // nodes reach the agent.
    kWelcome = 2,
    // From rank to agent: `to`, `label`, and the `node` and `text` of the kWelcome of rank `to`
    // (`text` is empty for rank 0, whose agent is known). From agent to agent: the first message on
    // a new connection, which also has `attempt` and `from`, a rank of the node that the
    // certificate names.
    kDial = 3,
    kLink = 4,    // agent to rank: descriptor of a connection from `from` to `to`
    kFailed = 5,  // agent to rank: no connection to `to`; `text` is the reason
    kVote = 6,    // agent to agent: a vote follows (proto/rendezvous.proto)
  };
  Kind kind = Kind::kHello;
  uint32_t from = 0;  // number of the rank in the job
  uint32_t to = 0;
  uint32_t node = 0;  // index of the node in the hostfile
  uint64_t attempt = 0;
  std::string label;
  // Text of the message; endpoints are "address:port", separated by spaces, best first.
  std::string text;

  bool operator==(const RankLinkMessage&) const = default;
};

inline constexpr size_t kRankLinkMessageBytes = 1024;
inline constexpr size_t kMaxRankLinkLabel = 256;
inline constexpr size_t kMaxRankLinkText = 720;

// Encodes a message in exactly kRankLinkMessageBytes bytes. Truncates texts beyond the limits
// above.
std::string EncodeRankLink(const RankLinkMessage& message);
// Parses a message. Fails with kBadInput if `bytes` is not a valid message.
Result<RankLinkMessage> DecodeRankLink(std::string_view bytes);

}  // namespace dslaunch
