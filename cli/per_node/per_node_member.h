// Implements the command of a node other than node 0 in the per-node style. It starts its node's
// supervisor, transfers the bytes between its agent and node 0's command, shows its own ranks, and
// ends when the job ends.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/output/job_output.h"
#include "cli/output/shown_output.h"
#include "cli/per_node/member_core.h"
#include "cli/per_node/node_zero_dial.h"
#include "cli/per_node/per_node_stream.h"
#include "cli/request/launch_options.h"
#include "cli/session/event_reader.h"
#include "cli/transport/transport.h"
#include "net/loop_poster.h"
#include "net/token_tls.h"
#include "proto/agent.grpc.pb.h"
#include "proto/wire/framed_socket.h"
#include "proto/wire/open_calls.h"

namespace dslaunch {

// Starts this node's agent, which uses `command_fd` as the connection to this command. Blocks until
// the deadline at most.
using StartAgentFn = std::function<Result<std::unique_ptr<NodeLink>>(
    const NodeTarget& target, int command_fd, Deadline deadline)>;

// The options of a MemberSession, which derives `has_token` from `tls`.
struct MemberOptions : MemberCoreOptions {
  std::shared_ptr<TokenTls> tls;       // TLS with the job's token; null without a token
  milliseconds agent_timeout{20'000};  // limit for the agent's start
  pb::OwnPart own;                     // the program that may run on this node
  StartAgentFn start_agent;
  TagStyle tags;
  LogLevel log_level = LogLevel::kInfo;
  std::string error_file;  // file that also gets the first cause of a failure; may be empty
};

// Carries out the actions of a MemberCore on the connection to node 0, this node's agent and the
// terminal. Runs on the caller's thread. Separate threads resolve names, start the agent and wait
// for its end; they own the objects they use and may outlive the session, each until its deadline.
// An agent that has not ended when the session is destroyed ends its ranks by itself.
class MemberSession {
 public:
  // Prepares the command of this node. `terminal` must outlive the session.
  MemberSession(MemberOptions options, Terminal& terminal);
  ~MemberSession();
  MemberSession(const MemberSession&) = delete;

  // Runs the command. Blocks until the job has ended and no process of the job is left on this
  // node. Returns node 0's exit code. Returns 69 if node 0 was lost, 75 if node 0 was never
  // reached, and 128 + n if signal n ended this command. Returns 85 if SIGTERM made this node leave
  // and each of its ranks has saved. Call it once.
  int Run();

 private:
  // This node's agent, and this command's own connection to it. The destructor ends the connection
  // and waits for its calls, 10 s at most. It must not run on one of gRPC's threads.
  struct Agent {
    // Link to the agent; shared with the thread that waits for its end.
    std::shared_ptr<NodeLink> link;
    UniqueFd command;  // duplicate of the connection's descriptor, used to end the connection
    std::unique_ptr<pb::Agent::Stub> stub;
    OpenCalls calls;
    std::shared_ptr<CarriedStream> stream;  // stream between the agent and node 0
    std::shared_ptr<EventReader> events;

    ~Agent();
  };

  void OnDialed(std::variant<UniqueFd, DialFailure> result);
  void OnMessage(std::string_view bytes);
  // Starts the agent and sends it the program that may run on this node, before any message of node
  // 0 reaches the agent. Blocks, so it runs on a separate thread.
  static Result<std::unique_ptr<Agent>> MakeAgent(const StartAgentFn& start_agent,
                                                  const pb::OwnPart& own, const std::string& name,
                                                  Deadline deadline);
  void OnAgent(Result<std::unique_ptr<Agent>> made);

  // Carries out the core's actions in order.
  void Carry(MemberActions actions);
  void Do(const member_action::Log& line) {
    if (line.level <= options_.log_level) output_.PrintMessage("dslaunch: " + line.text);
  }
  void Do(const member_action::Dial&) { dial_.Start(); }
  void Do(const member_action::Send& send);
  void Do(const member_action::Disconnect&) { socket_.reset(); }
  void Do(const member_action::StartAgent& start);
  void Do(const member_action::ServeAgent&);
  void Do(const member_action::EndStream&) { agent_->stream->DeliverEnd(); }
  void Do(const member_action::CloseStream&) { agent_->stream->Close(); }
  void Do(const member_action::RenewLease&);
  void Do(const member_action::SignalRanks& signal);
  void Do(const member_action::StopAgent& stop);
  void Do(const member_action::AwaitAgentEnd& await);
  void Do(const member_action::ShowRanks& show) { output_.SetShownRanks(show.ranks); }
  void Do(const member_action::SetTimer& set);
  void Do(const member_action::End& end);

  const MemberOptions options_;
  MemberCore core_;
  // Handlers that the loop still holds keep the calls of the agent from ending, so this member is
  // declared before the loop.
  std::unique_ptr<Agent> agent_;
  // Earlier agents, kept because handlers that they posted may still be queued in the loop.
  std::vector<std::unique_ptr<Agent>> past_;
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  JobOutput output_;
  asio::signal_set signals_;
  NodeZeroDial dial_;
  std::map<MemberTimer, asio::steady_timer> timers_;
  std::unique_ptr<FramedSocket> socket_;  // connection to node 0; null while not connected
  std::string name_;                      // name of this node in the job
  int exit_code_ = 0;
};

}  // namespace dslaunch
