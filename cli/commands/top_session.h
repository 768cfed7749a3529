// Implements `dslaunch top`: connects to the nodes of a job and shows their measurements until the
// user leaves or the job ends.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/node_stream.h"
#include "cli/output/screen_lines.h"
#include "cli/session/event_reader.h"
#include "cli/session/job_record.h"
#include "cli/stacks/stacks_text.h"
#include "cli/top/curses_terminal.h"
#include "cli/top/job_model.h"
#include "cli/top/job_screen.h"
#include "cli/top/view_keys.h"
#include "cli/transport/agent_binary.h"
#include "net/loop_poster.h"

namespace dslaunch {

// A session of `dslaunch top` on the caller's thread. Nodes measure only while the session exists.
// Destroying it ends its connections without affecting the job.
class TopSession {
 public:
  enum class End {
    kLeft,      // the user has left, or a signal arrived
    kJobEnded,  // no node will report anything more
  };

  // Prepares a session for the job of `record`. `stop_front_end` ends the job by a signal to its
  // front end. It returns false if the job has no front end on this machine.
  TopSession(JobRecord record, AgentBinary agent, std::function<bool()> stop_front_end);
  ~TopSession();
  TopSession(const TopSession&) = delete;

  // Draws on the terminal until the end of the session. Returns an error if there is no terminal to
  // draw on, or if no node can be reached. Call either Show or Measure, once.
  Result<End> Show();
  // Waits for a few samples of every node, and only briefly for nodes that do not answer. Returns
  // an error if no node answers.
  Result<void> Measure();

  const JobModel& model() const { return model_; }
  TopJob job() const { return {record_.job_id, record_.started_unix_ms}; }

 private:
  struct Node {
    std::unique_ptr<NodeStream> stream;
    Clock::time_point last_seen;
    bool reached = false;
    bool over = false;  // true if the node has ended or is permanently lost
  };
  // A pending request for the stacks of all nodes.
  struct StacksWanted {
    std::vector<NodeStacks> nodes;
    size_t missing = 0;
  };

  // Connects to all nodes and makes them sample at the interval `every`.
  void Begin(milliseconds every);
  void Open(size_t index);
  void OnEvent(size_t index, const pb::NodeEvent& event);
  void OnStreamOver(size_t index, const Result<void>& result);
  void OnLost(size_t index, const std::string& why);
  void EndIfAllOver();
  void AwaitKey();
  void AwaitResize();
  void Draw();
  void Act(TopAction action);
  const TopRow* ChosenRow() const;
  void ReadStacks();
  void OnStacks(const std::shared_ptr<StacksWanted>& wanted, size_t index, NodeStacks stacks);
  void FollowLog();
  void CloseLog();
  void StopJob();
  Error Unreachable() const;

  const JobRecord record_;
  const AgentBinary agent_;
  const std::function<bool()> stop_front_end_;
  JobModel model_;
  TopView view_;
  std::vector<TopRow> table_;
  // Streams must outlive the loop (node_stream.h), so this member is declared first. Streams that
  // have ended are kept, because handlers that they posted may still be queued in the loop.
  std::vector<std::unique_ptr<NodeStream>> old_streams_;
  std::vector<Node> nodes_;
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  asio::signal_set signals_;
  asio::signal_set resizes_;
  asio::steady_timer turn_;
  std::map<size_t, asio::steady_timer> retries_;  // timers for reconnecting, indexed by node
  std::optional<asio::posix::stream_descriptor> keys_;
  std::unique_ptr<CursesTerminal> terminal_;
  milliseconds every_{0};
  std::shared_ptr<StacksWanted> stacks_;  // pending request for stacks; null if there is none
  std::shared_ptr<EventReader> log_;      // reader of the shown log; null if no log is shown
  uint64_t log_number_ = 0;
  std::map<bool, ScreenLines> log_lines_;  // indexed by whether the lines are from stderr
  bool job_ended_ = false;
};

}  // namespace dslaunch
