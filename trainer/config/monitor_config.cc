#include "trainer/config/monitor_config.h"

#include "trainer/config/communication_kinds.h"
#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

constexpr int64_t kMostModules = int64_t{1} << 20;

std::optional<MonitorConfig> ParseMonitor(JsonObject object) {
  const bool enabled = object.Bool("enabled").value_or(false);
  const std::string path = object.String("output_path").value_or("");
  const std::string job = object.String("job_name").value_or("DeepSpeedJobName");
  object.RefuseUnknown();
  if (!enabled) return std::nullopt;
  return MonitorConfig{path.empty() ? job : path + "/" + job};
}

std::optional<FlopsProfilerConfig> ParseFlopsProfiler(JsonObject object) {
  const bool enabled = object.Bool("enabled").value_or(false);
  FlopsProfilerConfig config;
  config.profile_step = object.Int("profile_step", 1).value_or(config.profile_step);
  config.module_depth = object.Int("module_depth", -1, kMostModules).value_or(config.module_depth);
  config.top_modules = object.Int("top_modules", 1, kMostModules).value_or(config.top_modules);
  config.detailed = object.Bool("detailed").value_or(config.detailed);
  config.output_file = object.String("output_file").value_or("");
  object.RefuseUnlessStandard("recompute_fwd_factor", 0,
                              "dslaunch never counts recomputation; leave it out");
  object.RefuseUnknown();
  if (!enabled) return std::nullopt;
  return config;
}

std::optional<CommsLoggerConfig> ParseCommsLogger(JsonObject object) {
  const bool enabled = object.Bool("enabled").value_or(false);
  CommsLoggerConfig config;
  config.verbose = object.Bool("verbose").value_or(false);
  const bool all = object.Bool("prof_all").value_or(true);
  const std::vector<std::string> operations = object.Strings("prof_ops", JsonLists::kMayBeEmpty);
  object.RefuseUnlessStandard(
      "debug", false,
      "it prints the calling Python function, which dslaunch does not have; leave it out");
  object.RefuseUnknown();
  const std::set<std::string> known(std::begin(kCommunicationKinds), std::end(kCommunicationKinds));
  for (const std::string& name : operations) {
    if (known.contains(name)) continue;
    const std::optional<std::string> meant = DidYouMean(name, known);
    std::string words;
    for (const std::string& word : known) words += (words.empty() ? "" : ", ") + word;
    object.Fail("prof_ops",
                "has \"" + name + "\"; " +
                    (meant ? "did you mean \"" + *meant + "\"?" : "the operations are " + words));
  }
  if (!enabled) return std::nullopt;
  if (!all) config.operations.emplace(operations.begin(), operations.end());
  return config;
}

}  // namespace

MonitorsConfig ParseMonitors(JsonObject& engine) {
  return {.csv = ParseMonitor(engine.ObjectOrEmpty("csv_monitor")),
          .tensorboard = ParseMonitor(engine.ObjectOrEmpty("tensorboard")),
          .flops_profiler = ParseFlopsProfiler(engine.ObjectOrEmpty("flops_profiler")),
          .comms_logger = ParseCommsLogger(engine.ObjectOrEmpty("comms_logger")),
          .wall_clock_breakdown = engine.Bool("wall_clock_breakdown").value_or(false)};
}

}  // namespace dslaunch
