#include "trainer/config/monitor_config.h"

#include "trainer/config/json/key_table.h"
#include "trainer/config/profile_names.h"

namespace dslaunch {
namespace {

constexpr int64_t kMostModules = int64_t{1} << 20;

constexpr char kEnabled[] = "turns the section on";

const KeyTable<MonitorConfig>& MonitorKeys() {
  using C = MonitorConfig;
  static const KeyTable<C> kKeys = {
      BoolKey("enabled", &C::enabled, kEnabled),
      TextKey("output_path", &C::output_path, "a folder; default: the current one"),
      TextKey("job_name", &C::job_name, "a folder in `output_path`")};
  return kKeys;
}

const KeyTable<FlopsProfilerConfig>& FlopsProfilerKeys() {
  using C = FlopsProfilerConfig;
  static const KeyTable<C> kKeys = {
      BoolKey("enabled", &C::enabled, kEnabled),
      IntKey("profile_step", &C::profile_step, {1}, "the optimizer step that is measured"),
      IntKey("module_depth", &C::module_depth, {-1, kMostModules},
             "depth of the table of the most expensive modules; -1: the innermost"),
      IntKey("top_modules", &C::top_modules, {1, kMostModules}, "number of modules at each depth"),
      BoolKey("detailed", &C::detailed, "print a row for every module as well"),
      TextKey("output_file", &C::output_file, "file to write the table to; default: stdout")};
  return kKeys;
}

const KeyTable<CommsLoggerConfig>& CommsLoggerKeys() {
  using C = CommsLoggerConfig;
  static const KeyTable<C> kKeys = {
      BoolKey("enabled", &C::enabled, kEnabled),
      BoolKey("verbose", &C::verbose, "print a line for each operation"),
      BoolKey("prof_all", &C::all, "include all operations"),
      {"prof_ops",
       [](JsonObject& object, const char* key, C& config) {
         const std::vector<std::string> names = object.Strings(key, JsonLists::kMayBeEmpty);
         config.operations.emplace(names.begin(), names.end());
       },
       [](const C& config) { return ValueJson(config.operations); },
       "operations to include if `prof_all` is false"}};
  return kKeys;
}

void CheckOperations(const JsonObject& object, const std::set<std::string>& operations) {
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
}

// Returns the settings in a section; nullopt if the section is not enabled. `check` refuses values
// that no single row of the table can refuse.
template <class Config>
std::optional<Config> ReadSection(JsonObject object, const KeyTable<Config>& table,
                                  const std::function<void(JsonObject&, Config&)>& check) {
  Config config = ReadKeys(object, table);
  if (check) check(object, config);
  object.RefuseUnknown();
  if (!config.enabled) return std::nullopt;
  return config;
}

template <class Config>
nlohmann::ordered_json ShowSection(const KeyTable<Config>& table,
                                   const std::optional<Config>& config) {
  if (!config) return {{"enabled", false}};
  return ShowKeys(table, *config);
}

}  // namespace

MonitorsConfig ParseMonitors(JsonObject& engine) {
  MonitorsConfig monitors;
  monitors.csv = ReadSection<MonitorConfig>(
      engine.ObjectOrEmpty("csv_monitor", "Loss, learning rate and loss scale as CSV files."),
      MonitorKeys(), nullptr);
  monitors.tensorboard = ReadSection<MonitorConfig>(
      engine.ObjectOrEmpty("tensorboard", "The same for TensorBoard."), MonitorKeys(), nullptr);
  monitors.flops_profiler = ReadSection<FlopsProfilerConfig>(
      engine.ObjectOrEmpty("flops_profiler",
                           "FLOPs and time of each module in the forward passes of one step."),
      FlopsProfilerKeys(), [](JsonObject& object, FlopsProfilerConfig&) {
        object.RefuseUnlessStandard("recompute_fwd_factor", 0,
                                    "dslaunch never counts recomputation; leave it out");
      });
  monitors.comms_logger = ReadSection<CommsLoggerConfig>(
      engine.ObjectOrEmpty("comms_logger",
                           "A table of what the ranks exchanged, by operation and size, with "
                           "bandwidths."),
      CommsLoggerKeys(), [](JsonObject& object, CommsLoggerConfig& config) {
        object.RefuseUnlessStandard(
            "debug", false,
            "it prints the calling Python function, which dslaunch does not have; leave it out");
        CheckOperations(object, *config.operations);
        if (config.all) config.operations.reset();
      });
  return monitors;
}

nlohmann::ordered_json ShowMonitors(const MonitorsConfig& monitors) {
  return {{"csv_monitor", ShowSection(MonitorKeys(), monitors.csv)},
          {"tensorboard", ShowSection(MonitorKeys(), monitors.tensorboard)},
          {"flops_profiler", ShowSection(FlopsProfilerKeys(), monitors.flops_profiler)},
          {"comms_logger", ShowSection(CommsLoggerKeys(), monitors.comms_logger)}};
}

}  // namespace dslaunch
