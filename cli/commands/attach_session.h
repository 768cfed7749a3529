// `dslaunch attach` and `dslaunch stop`: a front end of a detached job for a while.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/commands/job_view.h"
#include "cli/commands/node_stream.h"
#include "cli/options/options.h"
#include "cli/output/job_output.h"
#include "cli/output/shown_output.h"
#include "cli/output/terminal.h"
#include "cli/session/job_record.h"
#include "cli/transport/agent_binary.h"
#include "net/loop_poster.h"

namespace dslaunch {

// Runs on the caller's thread. Nodes are reached by threads of their own, which own what they use
// and may outlive the session, each until its deadline. Destroying a session ends its connections
// and nothing of the job.
class AttachSession {
 public:
  // The terminal outlives the session.
  AttachSession(JobRecord record, AgentBinary agent, ShownRanks shown_ranks, Terminal& terminal);
  ~AttachSession();
  AttachSession(const AttachSession&) = delete;

  // Once, this or Stop. Shows the job until it has ended, and returns its exit code, or 130 when
  // the user leaves. A connection that breaks is made anew, and the output continues where it was.
  int Attach();

  // Ends the job and waits until every node reports that no process is left: 0. So it is where a
  // node that was not reached is part of a job's final status, and the node is named. Else, or
  // after `within`, 69 or 75, and the nodes are named. `now`: without grace.
  int Stop(bool now, milliseconds within);

  // How the job ended, once every node has reported it.
  const std::optional<JobView>& end() const { return end_; }

  const JobOutput& output() const { return output_; }

 private:
  using FileKey = std::tuple<uint64_t, uint32_t, bool>;  // attempt, rank, is_stderr
  struct Node {
    std::unique_ptr<NodeStream> stream;
    std::map<FileKey, uint64_t> offsets;  // from where each file is to be read
    std::optional<pb::Cause> outcome;
    std::optional<pb::JobResult> result;  // it has ended
    std::string lost;                     // or why nothing more is expected from it
    Clock::time_point last_seen = Clock::now();
    bool reached = false;
    bool stop_sent = false;
    bool over() const { return result.has_value() || !lost.empty(); }
  };

  void Run();
  void Open(size_t index);
  void OnEvent(size_t index, const pb::NodeEvent& event);
  void OnLog(size_t index, const pb::LogChunk& chunk, std::function<void()> go_on);
  void OnStreamOver(size_t index, const Result<void>& result);
  void OnSight(size_t index, const Result<pb::JobSight>& sight);
  void Lost(size_t index, const std::string& why);
  void SendStop(size_t index);
  void EndIfAllOver();
  // Whether a node has the final status, which says of all nodes how they ended.
  bool HasFinalStatus() const;
  // Sets end_ if it is known.
  void DecideEnd();

  const JobRecord record_;
  const AgentBinary agent_;
  const ShownOutput shown_;
  // Before the loop, because streams outlive it (node_stream.h). Those that are over are kept too:
  // acts that they posted may still be in the loop.
  std::vector<std::unique_ptr<NodeStream>> old_streams_;
  std::vector<Node> nodes_;
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  JobOutput output_;
  asio::signal_set signals_;
  asio::steady_timer limit_;
  asio::steady_timer late_;  // for nodes that were never reached, once the end is known
  bool late_armed_ = false;
  std::map<size_t, asio::steady_timer> retries_;  // by node
  bool stopping_ = false;
  bool kill_now_ = false;
  bool left_ = false;  // the user leaves
  std::optional<JobView> end_;
};

}  // namespace dslaunch
