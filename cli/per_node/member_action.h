// Defines the actions of MemberCore. MemberSession carries them out on sockets, an agent and a
// terminal; the simulator carries them out on its virtual network. If an action is answered, its
// comment names the event that answers it.
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

// An action that logs a message of dslaunch itself for the user.
struct Log {
  LogLevel level;
  std::string text;
};

// An action that connects to node 0's command; answered by OnDialed within 20 s.
struct Dial {};

// An action that sends a message to node 0's command if it is connected.
struct Send {
  pb::NodeMessage message;
};

// An action that closes the connection to node 0's command.
struct Disconnect {};

// An action that starts this node's agent and sends it the program that may run on this node;
// answered by OnAgentStarted.
struct StartAgent {
  std::string name;  // name of this node in the job
};

// An action that starts to transfer the agent's stream to node 0 and to show the agent's events.
// Answered by OnEvent, OnShown and OnAgentStreamEnd.
struct ServeAgent {};

// An action that ends the input of the agent's stream. The agent then ends once it has no
// processes.
struct EndStream {};

// An action that closes the agent's stream in both directions, which makes the agent end its ranks.
struct CloseStream {};

// An action that renews the lease that the agent holds from its front end.
struct RenewLease {};

// An action that sends a signal to the ranks of the agent.
struct SignalRanks {
  int signal_number;
};

// An action that stops this node's part of the job because of `cause`.
struct StopAgent {
  pb::Cause cause;
  bool kill_now;
};

// An action that waits for the end of the agent's supervisor, for at most `limit`; answered by
// OnAgentEnded.
struct AwaitAgentEnd {
  milliseconds limit;
};

// An action that sets the number of ranks whose output is shown from now on.
struct ShowRanks {
  size_t ranks;
};

// An action that sets a timer, replacing its earlier time; answered by OnTimer.
struct SetTimer {
  MemberTimer timer;
  Clock::time_point when;
};

// An action that ends the command. `text` is already logged; it is also written to the error file.
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
