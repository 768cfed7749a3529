// The keys of an engine configuration that ask for reports: csv_monitor, tensorboard,
// flops_profiler, comms_logger and wall_clock_breakdown, with DeepSpeed's names and defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace dslaunch {

class JsonObject;

// csv_monitor and tensorboard.
struct MonitorConfig {
  // output_path/job_name; without an output_path in the working folder.
  std::string folder;
};

struct FlopsProfilerConfig {
  int64_t profile_step = 1;   // the optimizer step that is measured
  int64_t module_depth = -1;  // of the table of the costliest modules; -1: the innermost
  int64_t top_modules = 1;    // how many at each depth
  bool detailed = true;       // every module as well
  std::string output_file;    // empty: stdout
};

struct CommsLoggerConfig {
  bool verbose = false;  // a line for each operation
  // Those that are logged, by the names of CommunicationKind (profile/communication.h); nullopt:
  // all (prof_all).
  std::optional<std::set<std::string>> operations;
};

struct MonitorsConfig {
  std::optional<MonitorConfig> csv;
  std::optional<MonitorConfig> tensorboard;
  std::optional<FlopsProfilerConfig> flops_profiler;
  std::optional<CommsLoggerConfig> comms_logger;
  bool wall_clock_breakdown = false;
};

// Reads these keys of `engine`. Throws TrainError kBadInput, naming the key.
MonitorsConfig ParseMonitors(JsonObject& engine);

}  // namespace dslaunch
