// The sections of an engine configuration that request reports: csv_monitor, tensorboard,
// flops_profiler and comms_logger, with DeepSpeed's names and defaults.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

namespace dslaunch {

class JsonObject;

// The sections csv_monitor and tensorboard.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;  // empty: the working folder
  std::string job_name = "DeepSpeedJobName";

  std::string folder() const {
    return output_path.empty() ? job_name : output_path + "/" + job_name;
  }
};

struct FlopsProfilerConfig {
  bool enabled = false;
  int64_t profile_step = 1;   // number of the optimizer step that is measured
  int64_t module_depth = -1;  // depth of the table's modules; -1: innermost modules
  int64_t top_modules = 1;    // number of modules listed at each depth
  bool detailed = true;       // whether to list every module as well
  std::string output_file;    // empty: stdout
};

struct CommsLoggerConfig {
  bool enabled = false;
  bool verbose = false;  // whether to print a line for each operation
  bool all = true;
  // The operations to log, by the names of CommunicationKind (profile/communication.h); nullopt:
  // all.
  std::optional<std::set<std::string>> operations;
};

// A section that is not enabled is nullopt.
struct MonitorsConfig {
  std::optional<MonitorConfig> csv;
  std::optional<MonitorConfig> tensorboard;
  std::optional<FlopsProfilerConfig> flops_profiler;
  std::optional<CommsLoggerConfig> comms_logger;
};

// Reads these sections of `engine`. Throws TrainError kBadInput, naming the key.
MonitorsConfig ParseMonitors(JsonObject& engine);
// Returns the sections by their keys.
nlohmann::ordered_json ShowMonitors(const MonitorsConfig& monitors);

}  // namespace dslaunch
