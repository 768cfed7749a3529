// Sends a node's reports to its front end, to viewers and to its log files, and passes events to
// AgentCore.
#pragma once

#include <asio/io_context.hpp>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "agent/core/agent_core.h"
#include "agent/logs/event_hub.h"
#include "agent/logs/filtered_log.h"
#include "base/deadline.h"
#include "base/log/log_file.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Owns the core of the agent and the outputs that all objects of the agent use. Used on the loop's
// thread.
class NodeOutput {
 public:
  // `carry_out` is called with the actions of the core after each event.
  NodeOutput(asio::io_context& loop, std::function<void(AgentActions)> carry_out)
      : loop_(loop), carry_out_(std::move(carry_out)), events_(loop) {}

  // Calls `event` with the current time, so that it passes an event to the core. Then carries out
  // the actions that follow.
  template <class Event>
  void Feed(Event event) {
    core_.front_end().SetReaders(
        {.front_end_has_all = events_.ended(), .has_viewers = events_.HasViewers()});
    const Clock::time_point now = Clock::now();
    event(now);
    carry_out_(core_.Take(now));
  }
  AgentCore& core() { return core_; }
  EventHub& events() { return events_; }
  LogFile& log() { return log_; }
  void Log(const std::string& line) { log_.Write(LogLevel::kInfo, line); }
  // Sets done.attempts to the newest starts and ends of attempts on this node.
  void AddAttempts(pb::NodeDone& done) const;
  // Logs `text` and sends it to the front end, which shows it to the user.
  void Notify(std::string text);
  // Begins to write the ranks' lines that contain given texts to one more file.
  void OpenFilteredLog(const pb::FilteredLogs& filtered) {
    filtered_log_.emplace(loop_, core_.job().node_name(), filtered);
  }

  void Do(agent_action::Log& action) { Log(action.text); }
  void Do(agent_action::EmitEvent& action);
  void Do(agent_action::EmitStatus& action) {
    events_.EmitStatus(action.rank, std::move(action.line), action.kind);
  }
  void Do(agent_action::EndEvents& action) {
    AddAttempts(action.done);
    events_.End(action.done);
  }
  void Do(agent_action::DetachFrontEnd&) { events_.Detach(); }
  void Do(agent_action::FollowRank& action);
  void Do(agent_action::EndRankOutput& action);

 private:
  asio::io_context& loop_;
  const std::function<void(AgentActions)> carry_out_;
  AgentCore core_{AgentCoreOptions(), BootClock::now()};
  EventHub events_;
  LogFile log_;
  std::optional<FilteredLog> filtered_log_;
  std::deque<pb::AttemptEvent> attempts_;
};

}  // namespace dslaunch
