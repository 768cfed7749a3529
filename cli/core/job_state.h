// The state of a job, built from the events of its nodes. Pure: each event returns the lines to
// show the user, and the queries tell the session what to do next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/core/outcome.h"
#include "cli/plan/launch_plan.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Returns the lines for a user about the end of an attempt that another one follows. `node`: name
// of the node of the cause.
std::string AttemptEndText(const pb::Restarting& restarting, const std::string& node);

class JobState {
 public:
  JobState(const LaunchPlan& plan, const pb::Policy& policy);

  // Whether the job can outlive the loss of a rank or a node.
  bool restartable() const { return restartable_; }

  // It could not be reached; the job starts without it.
  void OnAbsent(size_t node);
  void SetRendezvous(size_t node) { rendezvous_ = node; }
  // `node` hosts the rendezvous after an attempt that `cause` ended. The last host is lost, unless
  // `keeps_last`. Returns a line for the user.
  std::string OnFailedOver(size_t node, const pb::Cause& cause, bool keeps_last);
  // The last host reported the node as lost, but it follows the new one.
  void OnKept(size_t node) { given_up_.erase(node); }
  // A node that was absent or lost is part of the job again.
  void OnConnected(size_t node);
  // Returns lines for the user, without "dslaunch: "; mostly none.
  std::vector<std::string> OnEvent(size_t node, const pb::NodeEvent& event);
  // The node's stream of events has ended.
  void OnDisconnected(size_t node);
  // Why it was over before the node was done.
  void OnLost(size_t node, const std::string& reason, const std::string& last_output);
  // A node was lost before any ranks ran, and the job ends.
  void OnLostAtStart(const pb::Cause& cause);
  // Its node sent what no agent sends, and the job ends. The first such cause is the job's.
  void OnBrokenRules(const pb::Cause& cause);
  // The user wants the job to end. What went wrong before stays the cause.
  void OnInterrupted(const pb::Cause& cause);

  const NodeEnd& node(size_t index) const { return nodes_[index]; }

  // Every node is being torn down.
  bool ending() const { return ending_; }
  // Members that the rendezvous counted as lost: in an attempt that ended because of them, or at
  // the end.
  const std::set<size_t>& given_up() const { return given_up_; }
  // Has ranks, or may get some: it started with the job, or its ranks started later.
  bool IsPart(size_t node) const { return part_.contains(node); }
  bool IsMember(size_t node) const;

  uint64_t attempt() const { return attempt_; }  // newest attempt that started; 0 before the first
  uint32_t restarts() const { return restarts_; }  // before that one, for failures
  int world_size() const { return world_size_; }   // ranks of the newest attempt
  uint32_t most_ranks() const { return most_ranks_; }
  JobInfo Info() const;
  // Ranks of the newest attempt, ascending: the ones that succeeded, and the ones that run.
  struct RankProgress {
    std::vector<int> succeeded;
    std::vector<int> running;
  };
  RankProgress Progress() const;
  // By rank and attempt. Of each rank its newest attempts, kNewestAttempts of them.
  std::vector<pb::WorkerEnded> workers_ended() const;

 private:
  static constexpr size_t kNewestAttempts = 2;
  static constexpr int kBySignal = -1;
  static constexpr int kTolerated = -2;

  // Reports of a node about its own ranks in the newest attempt that it named.
  struct OwnRanks {
    uint64_t attempt = 0;
    uint32_t first = 0;
    uint32_t count = 0;  // 0: not reported yet
    // By rank; kBySignal, or kTolerated if the others continue. The first report counts.
    std::map<uint32_t, int> exit_codes = {};
  };

  // Every node with ranks reports it; the first report counts.
  void OnStarted(size_t node, const pb::Started& started);
  std::vector<std::string> OnRestarting(const pb::Restarting& restarting);
  void OnWorkerEnded(size_t node, const pb::WorkerEnded& ended);
  void OnOutcome(size_t node, const pb::Outcome& outcome);

  const bool restartable_;
  const uint32_t most_ranks_;  // largest number of ranks of all nodes together
  std::vector<NodeEnd> nodes_;
  size_t rendezvous_ = 0;
  std::set<size_t> connected_;
  std::set<size_t> part_;
  std::set<size_t> given_up_;
  std::vector<uint32_t> members_;  // ascending
  uint64_t attempt_ = 0;
  uint64_t ended_attempt_ = 0;  // the newest that ended for another one
  uint32_t restarts_ = 0;
  int world_size_;
  bool ending_ = false;
  std::optional<pb::Cause> interrupted_;
  std::vector<std::string> losses_;
  std::optional<pb::Cause> broke_rules_;
  std::vector<OwnRanks> own_ranks_;  // indexed by node
  // Ends of workers, by rank and attempt.
  std::map<std::pair<uint32_t, uint64_t>, pb::WorkerEnded> workers_ended_;
  // Size of the last lines in `workers_ended_`, by node.
  std::map<uint32_t, size_t> last_lines_bytes_;
};

}  // namespace dslaunch
