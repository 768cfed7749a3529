// The decisions of a node's own command in the per-node style: it joins node 0's job, starts its
// node's agent when asked to, and ends as the job ends. Pure: no clock, no threads, no I/O;
// MemberSession, tests and the simulator drive it.
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
  std::string host;  // where node 0's command listens
  int port = 0;
  bool has_token = false;
  milliseconds join_timeout{600'000};
  milliseconds end_timeout{30'000};  // limit for the end of the job, once it has begun
  pb::AdmissionRequest request;
  ShownOutput shown;
};

// Why node 0's command is not connected.
struct DialFailure {
  enum class Kind {
    kUnreachable,
    kNoTls,       // node 0 is reached, but does not finish the handshake
    kWrongToken,  // node 0 has another token
  };
  Kind kind;
  std::string why;
};

// Each On... returns what to do, in order; after End all of them return nothing. Not thread-safe.
class MemberCore {
 public:
  MemberCore(MemberCoreOptions options, Clock::time_point now)
      : options_(std::move(options)), join_by_(now + options_.join_timeout) {}

  MemberActions Start();
  // The answer to Dial; nullopt: node 0's command is connected.
  MemberActions OnDialed(const std::optional<DialFailure>& failure, Clock::time_point now);
  // A message of node 0's command, but for the bytes of the stream.
  MemberActions OnMessage(const pb::NodeMessage& message, Clock::time_point now);
  // The connection to node 0's command has ended, or it sends what is not a message.
  MemberActions OnClosed(const std::string& why, Clock::time_point now);

  // The answer to StartAgent.
  MemberActions OnAgentStarted(const Result<void>& started, Clock::time_point now);
  // The agent has ended its side of the stream, which was sent to node 0.
  MemberActions OnAgentStreamEnd(Clock::time_point now);
  MemberActions OnEvent(const pb::NodeEvent& event, Clock::time_point now);
  // The agent sends no more events.
  void OnShown();
  // The answer to AwaitAgentEnd. `words`: the supervisor's last, or that it did not end in time.
  MemberActions OnAgentEnded(const std::string& words, Clock::time_point now);

  MemberActions OnSignal(int signal_number, Clock::time_point now);
  // Called when a timer has expired. `reader_makes_progress`: whether the reader of the output,
  // though slow, still takes some.
  MemberActions OnTimer(MemberTimer timer, bool reader_makes_progress, Clock::time_point now);

 private:
  struct Agent {
    Clock::time_point goodbye_at;  // time at which node 0 stopped needing the agent
    bool started = false;          // the agent's ranks have started at least once
    bool is_shown = false;         // all events of the agent are shown
    bool ending = false;           // the end of the supervisor is awaited
  };

  void Reconnect(const std::string& why, Clock::time_point now);
  void Disconnected(const std::string& why, Clock::time_point now);
  // Ends the agent when node 0 no longer needs it, but not before its ranks' output is shown.
  void SayGoodbyeWhenShown(bool reader_makes_progress, Clock::time_point now);
  void AwaitAgentEnd(Clock::time_point now);
  void AwaitLostNodeZero(Clock::time_point now);
  void Interrupt(int signal_number, Clock::time_point now);
  // Returns whether this node may leave a job that continues without it.
  bool MayLeave(int signal_number) const;
  // Ends this node's ranks, and then this command; the job has other nodes.
  void Leave(bool kill_now);
  // Ends this command once nothing can follow.
  void EndIfOver();
  void End(int exit_code, const std::string& text);
  // Bounds the wait for the end.
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
  bool received_ = false;  // a message has arrived on this connection
  std::string last_logged_;
  bool wait_logged_ = false;
  std::string name_;       // name of this node in the job; empty before it has a place
  std::string front_end_;  // host name of node 0
  bool starting_ = false;
  std::optional<Agent> agent_;
  std::optional<pb::Cause> outcome_;  // outcome that this node's agent reported
  bool is_completed_ = false;         // the agent reported that the job has ended on all nodes
  std::optional<pb::JobEnded> job_ended_;
  bool node_zero_lost_ = false;
  int interrupted_by_ = 0;
  std::optional<Clock::time_point> interrupted_at_;
  bool leaving_ = false;
  int num_ranks_ = 0;  // ranks of this node in the newest attempt
  int num_saved_ = 0;  // number of these ranks that saved
  bool is_bounded_ = false;
  bool ended_ = false;
  MemberActions out_;
};

}  // namespace dslaunch
