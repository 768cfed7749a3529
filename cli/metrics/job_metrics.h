// Computes the metrics of a job from the events and samples of its nodes. Performs no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/metrics/metrics_text.h"
#include "proto/agent.pb.h"
#include "proto/contract/status_line.h"

namespace dslaunch {

// Collects the newest state of a job. A node without samples has no metrics of its machine and
// GPUs.
class JobMetrics {
 public:
  JobMetrics(std::string job_id, std::vector<std::string> node_names, int64_t started_unix_ms);

  void OnEvent(size_t node, const pb::NodeEvent& event, Clock::time_point now);
  // Returns whether the node has sent a sample, including its GPUs if its ranks use any.
  bool HasSample(size_t node) const;

  friend std::string MetricsText(const std::vector<const JobMetrics*>& jobs, MetricsFormat format,
                                 Clock::time_point now);

 private:
  struct Node {
    std::string name;
    bool is_up = false;  // whether the node has ranks, or could get some
    std::optional<pb::NodeSample> sample;
    pb::NodeGoodput goodput;
    Clock::time_point goodput_at;
    std::map<uint32_t, StatusLine> steps;  // newest step of each rank in the attempt
    uint32_t first_rank = 0;
    uint32_t ranks = 0;
  };
  struct RankView;  // state of a rank in the form that is rendered
  class Renderer;

  void OnStep(Node& node, uint32_t rank, const std::string& line);
  std::vector<RankView> Ranks(Clock::time_point now) const;

  std::string job_id_;
  double started_unix_s_;
  uint64_t attempt_ = 0;
  uint64_t restarts_ = 0;
  uint32_t world_size_ = 0;
  std::vector<Node> nodes_;
};

// Returns the metrics of several jobs as a single text.
std::string MetricsText(const std::vector<const JobMetrics*>& jobs, MetricsFormat format,
                        Clock::time_point now);

}  // namespace dslaunch
