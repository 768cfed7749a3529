// Ranks and nodes of a job that differ from the others in a way that costs time. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cli/top/job_model.h"

namespace dslaunch {

// Values of one rank for tables and comparisons; nullopt: unknown.
struct RankFigures {
  std::optional<double> step;
  std::optional<double> step_s;   // median time of a step
  std::optional<double> waiting;  // share of the step in which it waits for others, 0 to 1
  std::optional<double> cpu;      // 1: one core
  std::optional<double> memory_bytes;
  std::optional<double> network_bytes;  // per second
  std::optional<double> disk_bytes;     // per second
  std::optional<double> power_w;        // sum over its GPUs
  std::optional<double> gpu_memory_bytes;
  std::optional<double> temperature_c;  // hottest GPU
};

RankFigures FiguresOf(const JobModel& model, const ModelRank& rank);

struct Outlier {
  std::optional<uint32_t> rank;  // nullopt: the whole node
  size_t node = 0;
  std::string why;
};

// Returns whether no rank has completed a step for much longer than a step takes: 10 s, and five
// median steps. False if no rank reports steps.
bool IsStalled(const JobModel& model, Clock::time_point now);

// Returns what stands out, worst first: failed ranks, lost nodes, GPUs with memory errors or that
// slow down, in a stalled job ranks whose GPUs draw less than 0.6 of the median power (those that
// wait in a collective draw more than one that does not take part), ranks behind the others, and
// ranks whose own work takes longer than 1.25 of the median.
std::vector<Outlier> FindOutliers(const JobModel& model, Clock::time_point now);

}  // namespace dslaunch
