// The per-node style on all nodes but node 0: this command starts its node's supervisor, carries
// the bytes between its agent and node 0's command, shows its own ranks, and ends as the job ends.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/output/job_output.h"
#include "cli/output/shown_output.h"
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

// Starts this node's agent, to which `command_fd` is the command's own connection. Blocks until the
// deadline at most.
using StartAgentFn = std::function<Result<std::unique_ptr<NodeLink>>(
    const NodeTarget& target, int command_fd, Deadline deadline)>;

struct MemberOptions {
  std::string host;  // where node 0's command listens
  int port = 0;
  std::shared_ptr<TokenTls> tls;  // null: without a token
  milliseconds join_timeout{600'000};
  milliseconds agent_timeout{20'000};  // for the agent's start
  milliseconds end_timeout{30'000};    // for the end of the job, once it has begun
  pb::AdmissionRequest request;
  pb::OwnPart own;  // what may run here
  StartAgentFn start_agent;
  ShownOutput shown;
  TagStyle tags;
  LogLevel log_level = LogLevel::kInfo;
  std::string error_file;  // as SessionOptions has it
};

// Runs on the caller's thread. Names are resolved, the agent is started and its end is awaited by
// threads of their own, which own what they use and may outlive the session, each until its
// deadline. An agent that has not ended when the session is destroyed ends its ranks by itself.
class MemberSession {
 public:
  // The terminal outlives the session.
  MemberSession(MemberOptions options, Terminal& terminal);
  ~MemberSession();
  MemberSession(const MemberSession&) = delete;

  // Once. Blocks until the job has ended and no process of it is left on this node. Returns node
  // 0's exit code; 69 when node 0 was lost, 75 when it was never reached, 128 + n when signal n
  // ended this command, 85 when SIGTERM made its node leave and each of its ranks has saved.
  int Run();

 private:
  // This node's agent, and this command's own connection to it. Destroying it ends the connection
  // and waits for its calls, 10 s at most. Not on a thread of gRPC's.
  struct Agent {
    std::shared_ptr<NodeLink> link;  // shared with the thread that awaits its end
    UniqueFd command;  // a second descriptor of the command's connection, to end it with
    std::unique_ptr<pb::Agent::Stub> stub;
    OpenCalls calls;
    std::shared_ptr<CarriedStream> stream;  // to node 0
    std::shared_ptr<EventReader> events;
    Clock::time_point goodbye_at;  // node 0 no longer needs it
    bool started = false;          // its ranks, once at least
    bool is_shown = false;         // its events are over
    bool ending = false;           // its supervisor's end is awaited

    ~Agent();
  };

  using Endpoints = asio::ip::tcp::resolver::results_type;

  // Reaching node 0.
  void Dial();
  void OnResolved(const asio::error_code& error, const Endpoints& found);
  void OnDialed(const asio::error_code& error);
  void OnWrapped(Result<UniqueFd> plain);
  void Open(UniqueFd fd);
  void Reconnect(const std::string& why);
  void OnMessage(std::string_view bytes);
  void OnClosed(const std::string& why);

  // The agent.
  void StartAgent(const pb::AdmissionAccepted& accepted);
  static Result<std::unique_ptr<Agent>> MakeAgent(const StartAgentFn& start_agent,
                                                  const pb::OwnPart& own, const std::string& name,
                                                  Deadline deadline);
  void OnAgent(Result<std::unique_ptr<Agent>> agent);
  void ShowEvents();
  void OnEvent(const pb::NodeEvent& event);
  std::string StartedLine(const pb::Started& started) const;
  void SendToNodeZero(const pb::NodeMessage& message);
  void SayGoodbyeWhenShown();
  void AwaitAgentEnd();
  void OnAgentEnded(const std::string& words);
  void AwaitLostNodeZero();

  void OnSignal(int signal_number);
  void Interrupt(int signal_number);
  // Whether this node may leave a job that goes on without it.
  bool MayLeave(int signal_number) const;
  // Ends this node's ranks, and then this command; the job has other nodes.
  void Leave(bool kill_now);
  void EndAfterLeave();
  // Once nothing can follow: ends Run.
  void EndIfOver();
  void End(int exit_code, const std::string& words);
  void ArmLimit(milliseconds limit);
  bool IsNodeZeroLost() const;

  void Log(LogLevel level, const std::string& text) {
    if (level <= options_.log_level) output_.PrintMessage("dslaunch: " + text);
  }
  void Log(const std::string& text) { Log(LogLevel::kInfo, text); }
  std::string NodeZero() const;

  const MemberOptions options_;
  const Deadline join_deadline_;
  // Before the loop, because what the loop still holds keeps their calls from ending.
  std::unique_ptr<Agent> agent_;
  std::vector<std::unique_ptr<Agent>> past_;  // acts that they posted may still be in the loop
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  JobOutput output_;
  asio::signal_set signals_;
  uint64_t dial_ = 0;  // the number of the try; answers to earlier ones are ignored
  asio::ip::tcp::socket dialed_;
  asio::steady_timer dial_timer_;
  asio::steady_timer goodbye_timer_;
  asio::steady_timer limit_;  // of the end
  milliseconds next_wait_{100};
  std::unique_ptr<FramedSocket> socket_;  // to node 0, once connected
  bool received_ = false;                 // a message, on this connection
  std::string last_logged_;
  bool wait_logged_ = false;

  std::string name_;       // of this node in the job; empty: no place yet
  std::string front_end_;  // host name of node 0
  bool starting_ = false;
  std::optional<pb::Cause> outcome_;  // as this node's agent reported it
  std::optional<pb::JobEnded> job_ended_;
  bool node_zero_lost_ = false;
  int interrupted_by_ = 0;
  bool leaving_ = false;
  int num_ranks_ = 0;  // of this node, in the newest attempt
  int num_saved_ = 0;  // of those
  Clock::time_point interrupted_at_;
  int exit_code_ = 0;
};

}  // namespace dslaunch
