// Finds ranks and nodes of a job that differ from the others in a way that costs time. All
// functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/top/job_model.h"

namespace dslaunch {

// The values of a rank for tables and comparisons; nullopt if unknown.
struct RankFigures {
  std::optional<double> step;
  std::optional<double> step_s;  // median time of a step
  // Fraction of the step in which the rank waits for other ranks, from 0 to 1.
  std::optional<double> waiting;
  std::optional<double> cpu;  // number of cores in use
  std::optional<double> memory_bytes;
  std::optional<double> network_bytes;  // network traffic in bytes per second
  std::optional<double> disk_bytes;     // disk traffic in bytes per second
  std::optional<double> power_w;        // power of all GPUs of the rank
  std::optional<double> gpu_memory_bytes;
  std::optional<double> temperature_c;  // temperature of the hottest GPU
};

// Returns the figures of a rank from its newest samples and status lines.
RankFigures FiguresOf(const JobModel& model, const ModelRank& rank);

struct Outlier {
  // Rank that is the outlier; nullopt if the whole node is the outlier.
  std::optional<uint32_t> rank;
  size_t node = 0;
  std::string why;
};

// Returns whether no rank has completed a step for much longer than a step takes: for 10 s, and for
// five median steps. Returns false if no rank reports steps.
bool IsStalled(const JobModel& model, Clock::time_point now);

// Returns the outliers, the worst first:
// 1. failed ranks, lost nodes, and GPUs with memory errors or that slow down
// 2. in a stalled job, ranks whose GPUs draw less than 0.6 of the median power, because a GPU that
//    waits in a collective draws more power than a GPU that does not take part
// 3. ranks behind the others, and ranks whose own work takes longer than 1.25 of the median
std::vector<Outlier> FindOutliers(const JobModel& model, Clock::time_point now);

}  // namespace dslaunch
