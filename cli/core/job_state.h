// Builds the state of a job from the events of its nodes, and returns the lines to show to the user
// about each event. The session decides its next step from the queries. Performs no I/O.
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

// Returns the text for the user about the end of an attempt that is followed by another attempt.
// `node` is the name of the node of the cause.
std::string AttemptEndText(const pb::Restarting& restarting, const std::string& node);

class JobState {
 public:
  JobState(const LaunchPlan& plan, const pb::Policy& policy);

  // Returns whether the job can continue after the loss of a rank or a node.
  bool restartable() const { return restartable_; }

  // Records that the node could not be reached, so that the job starts without it.
  void OnAbsent(size_t node);
  void SetRendezvous(size_t node) { rendezvous_ = node; }
  // Records that `node` hosts the rendezvous after an attempt that `cause` ended. The previous host
  // counts as lost unless `keeps_last` is set. Returns a line for the user.
  std::string OnFailedOver(size_t node, const pb::Cause& cause, bool keeps_last);
  // Records that a node that the previous host reported as lost has joined the new rendezvous.
  void OnKept(size_t node) { given_up_.erase(node); }
  // Records that a node that was absent or lost is part of the job again.
  void OnConnected(size_t node);
  // Handles an event. Returns lines for the user, without the prefix "dslaunch: "; empty for most
  // events.
  std::vector<std::string> OnEvent(size_t node, const pb::NodeEvent& event);
  // Records that the node's stream of events has ended.
  void OnDisconnected(size_t node);
  // Records why the node's connection ended before the node was done.
  void OnLost(size_t node, const std::string& reason, const std::string& last_output);
  // Records that a node was lost before any rank ran, which ends the job.
  void OnLostAtStart(const pb::Cause& cause);
  // Records that the node's agent sent an invalid message, which ends the job. The first such cause
  // becomes the cause of the job's end.
  void OnBrokenRules(const pb::Cause& cause);
  // Records that the user requested the job's end. An earlier failure stays the cause.
  void OnInterrupted(const pb::Cause& cause);

  const NodeEnd& node(size_t index) const { return nodes_[index]; }

  // Returns whether every node is being torn down.
  bool ending() const { return ending_; }
  // Returns the members that the rendezvous declared lost, either in an attempt that ended because
  // of them or at the end of the job.
  const std::set<size_t>& given_up() const { return given_up_; }
  // Returns whether the node has ranks or may get ranks: it started with the job, or its ranks
  // started later.
  bool IsPart(size_t node) const { return part_.contains(node); }

  // Returns whether the node has ranks in the newest attempt that started; before any start,
  // whether the node is not absent.
  bool IsMember(size_t node) const;

  // Returns the newest attempt that started; 0 before the first attempt.
  uint64_t attempt() const { return attempt_; }
  // Returns the number of restarts after failures so far.
  uint32_t restarts() const { return restarts_; }
  // Returns the number of ranks of the newest attempt.
  int world_size() const { return world_size_; }
  uint32_t most_ranks() const { return most_ranks_; }

  // Returns the state of the job for DecideJobEnd().
  JobInfo Info() const;
  // The ranks that succeeded and the ranks that still run, in ascending order.
  struct RankProgress {
    std::vector<int> succeeded;
    std::vector<int> running;
  };
  // Returns the progress of the ranks of the newest attempt.
  RankProgress Progress() const;
  // Returns the ends of workers by rank and attempt, for the kNewestAttempts newest attempts of
  // each rank.
  std::vector<pb::WorkerEnded> workers_ended() const;

 private:
  static constexpr size_t kNewestAttempts = 2;
  static constexpr int kBySignal = -1;
  static constexpr int kTolerated = -2;

  // A node's reports about its own ranks in the newest attempt that the node named.
  struct OwnRanks {
    uint64_t attempt = 0;
    uint32_t first = 0;
    uint32_t count = 0;  // number of ranks; 0 until reported
    // Exit codes by rank; kBySignal after a signal, kTolerated if the other ranks continue without
    // the rank. The first report of a rank counts.
    std::map<uint32_t, int> exit_codes = {};
  };

  // Handles the start of a node's ranks. Every node with ranks reports the start; the first report
  // counts.
  void OnStarted(size_t node, const pb::Started& started);
  std::vector<std::string> OnRestarting(const pb::Restarting& restarting);
  void OnWorkerEnded(size_t node, const pb::WorkerEnded& ended);
  void OnOutcome(size_t node, const pb::Outcome& outcome);

  const bool restartable_;
  const uint32_t most_ranks_;  // largest total number of ranks of all nodes
  std::vector<NodeEnd> nodes_;
  size_t rendezvous_ = 0;
  std::set<size_t> connected_;
  std::set<size_t> part_;
  std::set<size_t> given_up_;
  std::vector<uint32_t> members_;  // indexes of the nodes with ranks, ascending
  uint64_t attempt_ = 0;
  uint64_t ended_attempt_ = 0;  // newest attempt that was followed by another attempt
  uint32_t restarts_ = 0;
  int world_size_;
  bool ending_ = false;
  std::optional<pb::Cause> interrupted_;
  std::vector<std::string> losses_;
  std::optional<pb::Cause> broke_rules_;
  std::vector<OwnRanks> own_ranks_;  // reports about ranks, indexed by node
  // Ends of workers, by rank and attempt.
  std::map<std::pair<uint32_t, uint64_t>, pb::WorkerEnded> workers_ended_;
  // Total bytes of the last lines in `workers_ended_`, by node.
  std::map<uint32_t, size_t> last_lines_bytes_;
};

}  // namespace dslaunch
