// Decides which ranks the connections that ranks ask for are given to (proto/contract/rank_link.h).
// Pure: it passes descriptors on, and does nothing with them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/unique_fd.h"
#include "proto/contract/rank_link.h"
#include "proto/contract/rank_numbering.h"

namespace dslaunch {

// Where the ranks of an attempt are.
struct RankLinkPlan {
  uint64_t attempt = 0;
  RankNumbering ranks;
  std::string rank_0_endpoint;  // endpoint of rank 0's agent; empty if the job has one node
};

namespace rank_link_action {

// Sends to the process of session `session`, with the descriptor `fd` if it is valid.
struct Send {
  uint64_t session = 0;
  RankLinkMessage message;
  UniqueFd fd;
};
// Make two ends of a stream within this node: OnConnected(session, message, one end), then
// OnIncoming(message, the other).
struct ConnectHere {
  uint64_t session = 0;
  RankLinkMessage message;
};
// Connect to `message.node` at the endpoints of `message.text`, send `message` first, then call
// OnConnected or OnFailed.
struct ConnectTo {
  uint64_t session = 0;
  RankLinkMessage message;
};
// End the session; `why` is for the agent's log.
struct Close {
  uint64_t session = 0;
  std::string why;
};
// For the agent's log: why a connection of another node was closed.
struct LogRefusal {
  std::string why;
};

}  // namespace rank_link_action

using RankLinkAction =
    std::variant<rank_link_action::Send, rank_link_action::ConnectHere, rank_link_action::ConnectTo,
                 rank_link_action::Close, rank_link_action::LogRefusal>;
using RankLinkActions = std::vector<RankLinkAction>;

class RankLinkCore {
 public:
  // Connections that wait for their rank to say hello; more are closed.
  static constexpr size_t kMaxWaiting = 65'536;

  explicit RankLinkCore(uint32_t node) : node_(node) {}

  // Sessions and connections of earlier attempts end.
  RankLinkActions OnAttempt(RankLinkPlan plan);

  // A message of a local process. `endpoints`: where other nodes reach this agent, on the network
  // interfaces that the rank names.
  RankLinkActions OnMessage(uint64_t session, const RankLinkMessage& message,
                            const std::string& endpoints);
  void OnSessionEnd(uint64_t session);
  // Returns the number of sessions of services: of PMIx servers, and of agreements on copies in
  // memory.
  size_t service_sessions() const;

  // The first message of a connection from node `node`, which its certificate names; this one, if a
  // rank of it dials another.
  RankLinkActions OnIncoming(const RankLinkMessage& message, uint32_t node, UniqueFd fd);
  // The results of ConnectHere and ConnectTo.
  RankLinkActions OnConnected(uint64_t session, const RankLinkMessage& message, UniqueFd fd);
  RankLinkActions OnFailed(uint64_t session, const RankLinkMessage& message, std::string why);

 private:
  struct Waiting {
    RankLinkMessage message;
    uint32_t node = 0;  // node that the connection came from
    UniqueFd fd;
  };

  // The user of a session.
  struct Speaker {
    uint32_t rank = 0;
    std::string_view service;  // label that only this service uses; empty for the rank itself
    auto operator<=>(const Speaker&) const = default;
  };

  // In this attempt.
  bool IsOn(uint32_t node, uint32_t rank) const;
  bool IsLocal(uint32_t rank) const { return IsOn(node_, rank); }
  RankLinkActions OnHello(uint64_t session, const RankLinkMessage& message,
                          const std::string& endpoints);
  RankLinkActions OnDial(uint64_t session, RankLinkMessage message);

  const uint32_t node_;
  RankLinkPlan plan_;
  std::map<uint64_t, Speaker> speaker_of_;  // speaker of each session
  std::map<Speaker, uint64_t> session_of_;  // newest session of each speaker
  std::deque<Waiting> waiting_;
};

}  // namespace dslaunch
