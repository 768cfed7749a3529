// Defines the sections of an engine configuration that request reports: csv_monitor, tensorboard,
// flops_profiler and comms_logger, with DeepSpeed's names and defaults.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

namespace dslaunch {

class JsonObject;

// Settings of the sections csv_monitor and tensorboard.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;  // folder for the output; empty for the working folder
  std::string job_name = "DeepSpeedJobName";

  std::string folder() const {
    return output_path.empty() ? job_name : output_path + "/" + job_name;
  }
};

struct FlopsProfilerConfig {
  bool enabled = false;
  int64_t profile_step = 1;   // number of the optimizer step that is measured
  int64_t module_depth = -1;  // depth of the modules in the table; -1 for the innermost modules
  int64_t top_modules = 1;    // number of modules listed at each depth
  bool detailed = true;       // true to list every module as well
  std::string output_file;    // path of the output file; empty for stdout
};

struct CommsLoggerConfig {
  bool enabled = false;
  bool verbose = false;  // true to print a line for each operation
  bool all = true;
  // Operations to log, by the names of CommunicationKind (profile/communication.h); nullopt for all
  // operations.
  std::optional<std::set<std::string>> operations;
};

// Settings of all sections; nullopt for a section that is not enabled.
struct MonitorsConfig {
  std::optional<MonitorConfig> csv;
  std::optional<MonitorConfig> tensorboard;
  std::optional<FlopsProfilerConfig> flops_profiler;
  std::optional<CommsLoggerConfig> comms_logger;
};

// Reads the sections of `engine` that request reports. Throws TrainError kBadInput, naming the key.
MonitorsConfig ParseMonitors(JsonObject& engine);
// Returns the sections as JSON, by their keys.
nlohmann::ordered_json ShowMonitors(const MonitorsConfig& monitors);

}  // namespace dslaunch
