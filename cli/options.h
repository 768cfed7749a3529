// The command line: dslaunch [launch options] train [RECIPE] [trainer options]
//                   dslaunch [launch options] predict [RECIPE] [prediction options]
//                   dslaunch [launch options] PROGRAM [args...]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/error.h"

namespace dslaunch {

enum class Launcher { kLocal, kSsh };
enum class DeviceChoice { kAuto, kCuda, kCpu };

// Whose output appears on the terminal. All output is in the log files anyway.
struct Tee {
  bool all = false;
  std::vector<int> ranks = {0};  // ascending, each once; unused when `all`
};

// When a node that comes later, or comes back, gets ranks.
enum class OnJoin { kNextRestart, kNow };

// What happens when a rank's steps stop.
enum class OnHang { kReport, kKill, kRestart };

inline constexpr int64_t kMaxRestartDelayMs = 30'000;

// What `train` and `predict` give to the embedded trainer, on top of the recipe.
struct TrainOptions {
  enum class Task { kTrain, kEvaluate, kPredict, kPlanMemory, kPlanPipeline };
  Task task = Task::kTrain;           // train, --eval_only, predict, --plan_memory, --plan_pipeline
  std::optional<std::string> recipe;  // name or path, as typed
  std::optional<std::string> deepspeed_config;
  std::vector<std::string> sets;  // "key.path=value", in the order given
  std::optional<int64_t> steps;   // optimizer steps; excludes `epochs`
  std::optional<int64_t> epochs;
  std::optional<int64_t> seed;
  std::optional<std::string> data;
  std::optional<std::string> plugin;
  std::optional<std::string> init_weights;
  std::optional<std::string> checkpoint_dir;
  std::optional<int64_t> save_every;  // optimizer steps
  std::optional<std::string> resume;  // "auto", "none" or a checkpoint's name
  bool async_save = false;
  bool load_module_only = false;
  std::optional<std::string> export_hf;
  std::optional<std::string> metrics_jsonl;
  std::optional<std::string> trace;
  std::optional<std::string> pipeline_svg;
  std::optional<double> time_limit_s;
  bool deterministic = false;
  // predict only
  std::optional<std::string> output;
  std::optional<std::string> prompt;
  std::optional<int64_t> max_new_tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
};

struct LaunchOptions {
  enum class Mode { kHelp, kVersion, kTrain, kProgram, kJobCommand, kCheckpointCommand };
  Mode mode = Mode::kProgram;
  std::string text;  // for kHelp and kVersion: what to print on stdout

  std::optional<int> num_nodes;
  // Elastic when there is a least number of nodes; then without num_nodes.
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;  // nullopt: all of the hostfile that are no spares
  std::optional<int> num_gpus;   // ranks per node
  std::optional<std::string> hostfile;
  std::optional<Launcher> launcher;
  DeviceChoice device = DeviceChoice::kAuto;
  int master_port = 0;  // 0: any free port
  Tee tee;
  std::string log_dir;  // empty: the user's state folder on each node
  int log_max_mb = 0;   // of each log file; 0: no limit
  bool json = false;    // the closing block on stdout too
  bool detach = false;  // the job goes on without its front end once all ranks are started
  int64_t connect_timeout_ms = 20'000;

  std::optional<int> max_restarts;   // nullopt: as MakePolicy chooses
  int64_t restart_delay_ms = 1'000;  // at most kMaxRestartDelayMs
  OnJoin on_join = OnJoin::kNextRestart;
  OnHang on_hang = OnHang::kReport;
  int64_t hang_ms = 60'000;  // 0: hangs are not looked for
  int64_t heartbeat_ms = 1'000;
  int64_t suspect_ms = 3'000;  // more than heartbeat_ms
  int64_t dead_ms = 6'000;     // more than suspect_ms
  int64_t lease_ms = 60'000;
  int64_t grace_ms = 10'000;

  TrainOptions train;  // for kTrain, which `predict` is too
  // For kProgram argv, untouched, never empty; for kJobCommand and kCheckpointCommand the command
  // and what follows it.
  std::vector<std::string> program;
};

// Parses the command line. Launch options end at the first argument that is no option (or after
// `--`); what follows a PROGRAM belongs to it byte for byte. Option names may be spelt with '-' or
// '_'; of an option given twice the last counts, but for --set. Every error is kUsage, one line
// that names the argument and the way out.
Result<LaunchOptions> ParseOptions(int argc, const char* const* argv);

}  // namespace dslaunch
