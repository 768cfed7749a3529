// The actions of MemberCore. MemberSession carries them out on sockets, an agent and a terminal,
// the simulator on its virtual network. Where an answer is expected, the comment names its event.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "base/deadline.h"
#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"
#include "proto/per_node.pb.h"

namespace dslaunch {

enum class MemberTimer { kDial, kGoodbye, kLimit };
inline constexpr size_t kMemberTimers = 3;

namespace member_action {

// A line of dslaunch's own for the user.
struct Log {
  LogLevel level;
  std::string text;
};

// Connects to node 0's command. Answer: OnDialed, within 20 s.
struct Dial {};

// Sends a message to node 0's command, if it is connected.
struct Send {
  pb::NodeMessage message;
};

// Closes the connection to node 0's command.
struct Disconnect {};

// Starts this node's agent, and sends it what may run here. Answer: OnAgentStarted.
struct StartAgent {
  std::string name;  // name of this node
};

// Begins to carry the agent's stream to node 0, and shows the agent's events: OnEvent, OnShown,
// OnAgentStreamEnd.
struct ServeAgent {};

// Ends what node 0 sends to the agent, which then ends once it has nothing to do.
struct EndStream {};

// Ends the stream in both directions: the agent ends its ranks.
struct CloseStream {};

// Renews the agent's lease of its front end.
struct RenewLease {};

// Sends a signal to the agent's ranks.
struct SignalRanks {
  int signal_number;
};

// Stops the agent's part of the job.
struct StopAgent {
  pb::Cause cause;
  bool kill_now;
};

// Waits for the end of the agent's supervisor. Answer: OnAgentEnded.
struct AwaitAgentEnd {
  milliseconds limit;
};

// The output of so many ranks is shown from now on.
struct ShowRanks {
  size_t ranks;
};

// Replaces what the timer was set to. Answer: OnTimer.
struct SetTimer {
  MemberTimer timer;
  Clock::time_point when;
};

// Ends the command. `text` was logged; it is for the error file too.
struct End {
  int exit_code;
  std::string text;
};

}  // namespace member_action

using MemberAction =
    std::variant<member_action::Log, member_action::Dial, member_action::Send,
                 member_action::Disconnect, member_action::StartAgent, member_action::ServeAgent,
                 member_action::EndStream, member_action::CloseStream, member_action::RenewLease,
                 member_action::SignalRanks, member_action::StopAgent, member_action::AwaitAgentEnd,
                 member_action::ShowRanks, member_action::SetTimer, member_action::End>;

using MemberActions = std::vector<MemberAction>;

}  // namespace dslaunch
