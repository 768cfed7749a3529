// Implements `dslaunch attach` and `dslaunch stop`, which act as a temporary front end of a
// detached job.
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

// A temporary front end that runs on the caller's thread. Separate threads connect to the nodes;
// they own their data and may outlive the session until their deadlines. Destroying a session ends
// its connections without affecting the job.
class AttachSession {
 public:
  // Prepares a session for the job of `record`. `terminal` must outlive the session.
  AttachSession(JobRecord record, AgentBinary agent, ShownRanks shown_ranks, Terminal& terminal);
  ~AttachSession();
  AttachSession(const AttachSession&) = delete;

  // Shows the job until it ends and returns its exit code, or 130 if the user leaves. Replaces a
  // broken connection and continues the output where it stopped. Call either Attach or Stop, once.
  int Attach();

  // Ends the job and waits, for `within` at most, until every node reports that no process is left.
  // `now` skips the grace period. Returns 0 if every node has reported that, or was not reached but
  // is covered by the job's final status on another node. Otherwise names the other nodes and
  // returns 69 for a lost node, or 75 for a node that did not report in time or has processes left;
  // the last such node decides.
  int Stop(bool now, milliseconds within);

  // Returns how the job ended; nullopt until every node has reported the end.
  const std::optional<JobView>& end() const { return end_; }

  const JobOutput& output() const { return output_; }

 private:
  // Identifies an output file by attempt, rank, and whether the file is stderr.
  using FileKey = std::tuple<uint64_t, uint32_t, bool>;
  struct Node {
    std::unique_ptr<NodeStream> stream;
    std::map<FileKey, uint64_t> offsets;  // offsets from which to continue reading each file
    std::optional<pb::Cause> outcome;
    // Result from the node; set once the job has ended on the node.
    std::optional<pb::JobResult> result;
    std::string lost;  // reason why the node counts as lost; empty if it is not lost
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
  // Returns whether a node has received the final status, which describes the end of all nodes.
  bool HasFinalStatus() const;
  // Sets end_ if the end of the job is known.
  void DecideEnd();

  const JobRecord record_;
  const AgentBinary agent_;
  const ShownOutput shown_;
  // Streams must outlive the loop (node_stream.h), so this member is declared first. Streams that
  // have ended are kept, because handlers that they posted may still be queued in the loop.
  std::vector<std::unique_ptr<NodeStream>> old_streams_;
  std::vector<Node> nodes_;
  asio::io_context loop_{1};
  const std::shared_ptr<LoopPoster> poster_;
  JobOutput output_;
  asio::signal_set signals_;
  asio::steady_timer limit_;
  asio::steady_timer late_;  // timer for nodes that were not reached; armed once the end is known
  bool late_armed_ = false;
  uint64_t ended_attempt_ = 0;                    // newest attempt whose end was printed
  std::map<size_t, asio::steady_timer> retries_;  // timers for reconnecting, indexed by node
  bool stopping_ = false;
  bool kill_now_ = false;
  bool left_ = false;  // whether the user has left the session
  std::optional<JobView> end_;
};

}  // namespace dslaunch
