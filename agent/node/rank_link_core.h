// Decides how ranks that request connections to each other (proto/contract/rank_link.h) are
// connected. Performs no I/O: descriptors are only passed on.
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

// The nodes on which the ranks of an attempt run.
struct RankLinkPlan {
  uint64_t attempt = 0;
  RankNumbering ranks;
  std::string rank_0_endpoint;  // endpoint of rank 0's agent; empty if the job has one node
};

namespace rank_link_action {

// An action that sends `message` to the process of the session, with the descriptor `fd` if it is
// valid.
struct Send {
  uint64_t session = 0;
  RankLinkMessage message;
  UniqueFd fd;
};
// An action that creates the two ends of a stream within this node. It then calls
// OnConnected(session, message, one end) and OnIncoming(message, this node, the other end).
struct ConnectHere {
  uint64_t session = 0;
  RankLinkMessage message;
};
// An action that connects to `message.node` at the endpoints in `message.text`, and sends `message`
// first. It then calls OnConnected() or OnFailed().
struct ConnectTo {
  uint64_t session = 0;
  RankLinkMessage message;
};
// An action that ends the session; `why` is for the agent's log.
struct Close {
  uint64_t session = 0;
  std::string why;
};
// An action that logs why a connection from another node was closed.
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
  // Limit of connections that wait for the first message of their rank; further connections are
  // closed.
  static constexpr size_t kMaxWaiting = 65'536;

  explicit RankLinkCore(uint32_t node) : node_(node) {}

  // Begins an attempt, which ends the sessions and connections of earlier attempts.
  RankLinkActions OnAttempt(RankLinkPlan plan);

  // Handles a message of a process on this node. `endpoints` contains the addresses at which other
  // nodes reach this agent, on the network interfaces that the rank names.
  RankLinkActions OnMessage(uint64_t session, const RankLinkMessage& message,
                            const std::string& endpoints);
  void OnSessionEnd(uint64_t session);
  // Returns the number of sessions of services, which are PMIx servers and agreements on copies in
  // memory.
  size_t service_sessions() const;

  // Handles the first message of a connection from node `node`, which its certificate names. `node`
  // is this node if a rank of this node connects to another rank of this node.
  RankLinkActions OnIncoming(const RankLinkMessage& message, uint32_t node, UniqueFd fd);
  // Handles the connection that ConnectHere or ConnectTo made.
  RankLinkActions OnConnected(uint64_t session, const RankLinkMessage& message, UniqueFd fd);
  // Handles a failure of ConnectTo; `why` is the reason for the rank.
  RankLinkActions OnFailed(uint64_t session, const RankLinkMessage& message, std::string why);

 private:
  struct Waiting {
    RankLinkMessage message;
    uint32_t node = 0;  // node at the other end of the connection
    UniqueFd fd;
  };

  // The user of a session: a rank, or a service of a rank.
  struct Speaker {
    uint32_t rank = 0;
    std::string_view service;  // label that only this service uses; empty for the rank itself
    auto operator<=>(const Speaker&) const = default;
  };

  // Returns whether the rank runs on the node in this attempt.
  bool IsOn(uint32_t node, uint32_t rank) const;
  bool IsLocal(uint32_t rank) const { return IsOn(node_, rank); }
  RankLinkActions OnHello(uint64_t session, const RankLinkMessage& message,
                          const std::string& endpoints);
  RankLinkActions OnDial(uint64_t session, RankLinkMessage message);

  const uint32_t node_;
  RankLinkPlan plan_;
  std::map<uint64_t, Speaker> speaker_of_;  // rank or service that uses each session
  std::map<Speaker, uint64_t> session_of_;  // newest session of each rank or service
  std::deque<Waiting> waiting_;
};

}  // namespace dslaunch
