// Collects the steps of SessionCore's parts in order. Steps are actions, which LaunchSession
// carries out, and requests to other parts, which SessionCore carries out where they occur among
// the actions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/core/session_action.h"
#include "cli/core/session_options.h"

namespace dslaunch {

namespace session_request {

// A request to start the watch for silent nodes. Made once all nodes have received the request to
// run.
struct BeginWatch {};

// A request to stop the job if it cannot start without the node.
struct LoseAtStart {
  size_t node;
  std::string why;
};

// A request to stop every connected node except `except`, and to start the time limit for their
// ends.
struct StopJob {
  pb::Cause cause;
  size_t except;
};

// A request to try to reconnect to a lost node, unless the job is ending or continues without it.
struct Reconnect {
  size_t node;
};

// A request to stop connecting to nodes.
struct StopConnecting {};

// A request to start the time limit for the nodes' ends.
struct BoundEnd {};

// A request to stop waiting for the nodes that have not ended, and to end the session.
struct GiveUpWaiting {};

// A request to keep a node that was reported as lost but has joined the new rendezvous.
struct Keep {
  size_t node;
};

// A request to end the session. Made once no node is needed any more.
struct Finish {};

}  // namespace session_request

using SessionRequest =
    std::variant<session_request::BeginWatch, session_request::LoseAtStart,
                 session_request::StopJob, session_request::Reconnect,
                 session_request::StopConnecting, session_request::BoundEnd,
                 session_request::GiveUpWaiting, session_request::Keep, session_request::Finish>;

class SessionOutbox {
 public:
  using Step = std::variant<SessionAction, SessionRequest>;

  // Creates an empty outbox. `options` must outlive this object.
  explicit SessionOutbox(const SessionOptions& options) : options_(options) {}

  void Do(SessionAction action) { steps_.emplace_back(std::move(action)); }
  void Ask(SessionRequest request) { steps_.emplace_back(std::move(request)); }

  // Removes and returns the steps, in order.
  std::vector<Step> Take() { return std::exchange(steps_, {}); }

  // Returns whether a line of this level is written to the terminal or to a file.
  bool ShouldLog(LogLevel level) const {
    return !options_.job_folder.empty() || level <= options_.log_level;
  }
  void Log(LogLevel level, const std::string& text) {
    if (ShouldLog(level)) Do(action::Log{level, text});
  }
  void Record(action::Record::Kind kind, size_t node, const std::string& text) {
    Do(action::Record{kind, node, text});
  }

 private:
  const SessionOptions& options_;
  std::vector<Step> steps_;
};

}  // namespace dslaunch
