// Adds up the time of all ranks of a job by its use, from the reports of the nodes. Performs no
// I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "cli/output/goodput.h"
#include "cli/plan/launch_plan.h"
#include "proto/agent.pb.h"
#include "proto/contract/goodput.h"

namespace dslaunch {

// Counts the times of a job's ranks. The agent of a node counts the times of its slots from the
// agent's own start. This class adds the times before that start (connect), the times after the
// loss of a node and of ranks without a node (lost), and the times of waiting for the teardown of
// other nodes.
class JobGoodput {
 public:
  JobGoodput(const LaunchPlan& plan, Clock::time_point now);

  void OnEvent(size_t node, const pb::NodeEvent& event, Clock::time_point now);
  // Returns the times from the start of the job to `now`.
  Goodput At(Clock::time_point now) const;

 private:
  struct Slot {
    // Times of earlier agents and of the time before this agent's first report.
    GoodputTimes before;
    GoodputTimes base;    // times that this agent reported when the slot was first counted
    GoodputTimes newest;  // newest times that this agent reported
  };
  struct Node {
    std::vector<Slot> slots;
    bool counts = false;    // true if the node has ranks, or gets some at the start
    bool reported = false;  // true if an agent of the node has reported
    bool is_over = false;   // true if the node has no process left and reports no more
    Clock::time_point since;
  };

  void OnStarted(size_t node, const pb::Started& started, Clock::time_point now);
  void OnReport(Node& node, const pb::NodeGoodput& goodput, Clock::time_point now);
  // Adds the times of the node's slots up to `now` to `total`.
  void AddTimes(const Node& node, Clock::time_point now, GoodputTimes& total) const;

  const Clock::time_point started_at_;
  std::vector<Node> nodes_;
  GoodputTimes settled_;  // times of nodes that no longer count
  uint64_t attempt_ = 0;
  uint32_t ranks_ = 0;  // largest number of concurrent ranks so far; 0 before the first attempt
  const uint32_t planned_ranks_;
};

// Returns the times of a job without a front end, as the sum of the reports of its nodes; nullopt
// if no node started a rank. A node that began later than the others counts as connecting until its
// start.
std::optional<Goodput> SumOfNodes(const std::vector<const pb::NodeGoodput*>& nodes);

}  // namespace dslaunch
