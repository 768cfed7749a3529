// How a rank comes to its connections to other ranks. It asks its node's agent for them over a Unix
// socket (kRankSocketVariable), and gets a descriptor for each: a rank opens no port. Between two
// nodes the agents carry a connection through the job's mutual TLS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

inline constexpr char kRankSocketVariable[] = "DSLAUNCH_RANK_SOCKET";
// Of the connections between the PMIx servers of two nodes (agent/pmix), which use those of ranks:
// a server says hello as the first rank of its node, with this label, and dials rank 0.
inline constexpr char kPmixLinkLabel[] = "pmix";

// A message always takes kRankLinkMessageBytes. One direction of each connection is the dialing
// rank's; `label` says what it is for, and both ranks know it.
struct RankLinkMessage {
  enum class Kind : uint32_t {
    kHello = 1,    // rank to agent, first: `from`, `attempt`; `text`: the network interfaces that
                   // other ranks shall use, with commas between them (empty: any)
    kWelcome = 2,  // the answer: `node`; `text`: where other nodes reach its agent
    kDial = 3,     // rank to agent: `to`, `label`; `node` and `text` are from the kWelcome of rank
                   // `to` (`text` is empty for rank 0: the agent knows). Agent to agent: the first
                   // message on a new connection, with `attempt` and `from` too, which has to be a
                   // rank of the node that the certificate names
    kLink = 4,     // agent to rank, with a descriptor: connection `from` -> `to`
    kFailed = 5,   // agent to rank: no connection to `to`; `text`: why, for the user
    kVote = 6,     // agent to agent: no rank's connection; a vote follows (proto/rendezvous.proto)
  };
  Kind kind = Kind::kHello;
  uint32_t from = 0;  // ranks of the job
  uint32_t to = 0;
  uint32_t node = 0;  // index in the hostfile
  uint64_t attempt = 0;
  std::string label;
  std::string text;  // endpoints: "address:port", with spaces between them, best first

  bool operator==(const RankLinkMessage&) const = default;
};

inline constexpr size_t kRankLinkMessageBytes = 1024;
inline constexpr size_t kMaxRankLinkLabel = 256;
inline constexpr size_t kMaxRankLinkText = 720;

// Exactly kRankLinkMessageBytes; what is longer than the limits above is cut.
std::string EncodeRankLink(const RankLinkMessage& message);
// kBadInput: this is none of our messages.
Result<RankLinkMessage> DecodeRankLink(std::string_view bytes);

}  // namespace dslaunch
