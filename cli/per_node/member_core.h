// Makes the decisions of a node's own command in the per-node style. The command joins node 0's
// job, in which it gets a place (an index among the job's nodes). It starts its node's agent when
// node 0 requests it, and ends when the job ends. Uses no clock, threads or I/O; MemberSession,
// tests and the simulator drive it. The states are:
//
//   dialing -> waiting for a place -> agent starts -> up -> ending -> waiting again, or over
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/output/shown_output.h"
#include "cli/per_node/member_action.h"
#include "proto/agent.pb.h"
#include "proto/per_node.pb.h"

namespace dslaunch {

struct MemberCoreOptions {
  std::string host;  // host on which node 0's command listens
  int port = 0;
  bool has_token = false;
  milliseconds join_timeout{600'000};
  milliseconds end_timeout{30'000};  // limit for the end of the job, from the beginning of that end
  pb::AdmissionRequest request;
  ShownOutput shown;
};

// The reason why node 0's command is not connected.
struct DialFailure {
  enum class Kind {
    kUnreachable,
    kNoTls,       // node 0 is reached, but does not complete the handshake
    kWrongToken,  // node 0 has a different token
  };
  Kind kind;
  std::string why;
};

// The state machine of a node's command. Each On... function returns the actions to carry out, in
// order; after End they return no actions. Not thread-safe.
class MemberCore {
 public:
  MemberCore(MemberCoreOptions options, Clock::time_point now)
      : options_(std::move(options)), join_by_(now + options_.join_timeout) {}

  MemberActions Start();
  // Handles the answer to Dial; nullopt means that node 0's command is connected.
  MemberActions OnDialed(const std::optional<DialFailure>& failure, Clock::time_point now);

  // Handles a message of node 0's command, except the bytes that it sends to the agent.
  MemberActions OnMessage(const pb::NodeMessage& message, Clock::time_point now);
  // Handles the end of the connection to node 0's command, or an invalid message on it.
  MemberActions OnClosed(const std::string& why, Clock::time_point now);

  // Handles the answer to StartAgent.
  MemberActions OnAgentStarted(const Result<void>& started, Clock::time_point now);
  // Handles the end of the agent's side of the stream, which was forwarded to node 0.
  MemberActions OnAgentStreamEnd(Clock::time_point now);
  MemberActions OnEvent(const pb::NodeEvent& event, Clock::time_point now);
  // Records that all events of the agent are shown, because the agent sends no more.
  void OnShown();
  // Handles the answer to AwaitAgentEnd. `words` is the last output of the supervisor, or a message
  // that it did not end in time.
  MemberActions OnAgentEnded(const std::string& words, Clock::time_point now);

  MemberActions OnSignal(int signal_number, Clock::time_point now);

  // Handles the expiry of a timer. `reader_makes_progress` is true if a slow reader of the
  // output still accepts some of it.
  MemberActions OnTimer(MemberTimer timer, bool reader_makes_progress, Clock::time_point now);

 private:
  struct Agent {
    Clock::time_point goodbye_at;  // time at which node 0 stopped needing the agent
    bool started = false;          // whether the agent's ranks have started at least once
    bool is_shown = false;         // whether all events of the agent are shown
    bool ending = false;           // whether the session waits for the supervisor's end
  };

  void Reconnect(const std::string& why, Clock::time_point now);
  void Disconnected(const std::string& why, Clock::time_point now);
  // Ends the agent when node 0 no longer needs it, but only after the output of its ranks is shown.
  void SayGoodbyeWhenShown(bool reader_makes_progress, Clock::time_point now);
  void AwaitAgentEnd(Clock::time_point now);
  void AwaitLostNodeZero(Clock::time_point now);
  void Interrupt(int signal_number, Clock::time_point now);
  // Returns whether this node may leave the job because of the signal, while the job continues
  // without it.
  bool MayLeave(int signal_number) const;
  // Ends the ranks of this node, then this command; the other nodes continue the job.
  void Leave(bool kill_now);
  // Ends this command if no further event can change its result.
  void EndIfOver();
  void End(int exit_code, const std::string& text);
  // Limits the wait for the end, unless it is limited already.
  void Bound(milliseconds limit, Clock::time_point now);
  void OnLimit(bool reader_makes_progress, Clock::time_point now);
  bool IsNodeZeroLost() const;
  std::string NodeZero() const;
  std::string StartedLine(const pb::Started& started) const;

  void Do(MemberAction action) { out_.push_back(std::move(action)); }
  void Log(std::string text, LogLevel level = LogLevel::kInfo) {
    Do(member_action::Log{level, std::move(text)});
  }
  MemberActions Take() { return std::exchange(out_, {}); }

  const MemberCoreOptions options_;
  const Clock::time_point join_by_;
  milliseconds next_wait_{100};
  bool is_connected_ = false;
  bool received_ = false;  // whether a message has arrived on the current connection
  std::string last_logged_;
  bool wait_logged_ = false;
  std::string name_;       // name of this node in the job; empty until the node has a place
  std::string front_end_;  // host name of node 0
  bool starting_ = false;
  std::optional<Agent> agent_;
  std::optional<pb::Cause> outcome_;  // outcome that this node's agent reported
  bool is_completed_ = false;  // whether the agent reported that the job has ended on all nodes
  std::optional<pb::JobEnded> job_ended_;
  bool node_zero_lost_ = false;
  int interrupted_by_ = 0;
  std::optional<Clock::time_point> interrupted_at_;
  bool leaving_ = false;
  int num_ranks_ = 0;  // number of ranks of this node in the newest attempt
  int num_saved_ = 0;  // number of ranks of this node that have saved in that attempt
  bool is_bounded_ = false;
  bool ended_ = false;
  MemberActions out_;
};

}  // namespace dslaunch
