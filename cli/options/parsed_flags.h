// Defines the values of the options as given, and resolves their combined meaning. All functions
// are pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/checkpoint_command.h"
#include "cli/options/data_command.h"
#include "cli/options/hostfile_command.h"
#include "cli/options/job_command.h"
#include "cli/options/manifest_command.h"
#include "cli/options/option_values.h"
#include "cli/options/options.h"
#include "cli/options/recipe_command.h"

namespace dslaunch {

// Returns a kUsage error that does not name a help command.
inline Error WrongUse(std::string what) { return {ExitCode::kUsage, std::move(what)}; }

struct ParsedFlags {
  LaunchOptions options;                     // values that depend on a single option
  std::set<std::string, std::less<>> given;  // names of the given options, such as "--tee"

  // Options that set the numbers of nodes and ranks.
  std::optional<int> num_nodes;
  std::optional<int> num_processes;  // total number of processes on all nodes
  std::optional<NodeRange> nnodes;
  std::optional<int> min_elastic;
  std::optional<int> max_elastic;
  bool elastic_training = false;

  // Options that determine how nodes find each other.
  bool standalone = false;
  bool no_ssh = false;
  std::optional<int> node_rank;
  std::optional<Endpoint> rdzv_endpoint;
  bool rdzv_c10d = false;
  std::string rdzv_id = "none";
  std::optional<std::string> rdzv_token_file;
  bool insecure_rdzv = false;
  RdzvConf rdzv_conf;

  std::vector<std::string> launcher_args;

  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string start_method;
  bool replaces_torchrun = false;  // whether the program on the command line is torchrun

  bool ranks_shown_given = false;  // whether --show was given on the command line
  bool quiet = false;
  std::optional<RankStreams> tee_streams;  // streams that --tee chooses
  std::optional<RankStreams> redirects;

  std::optional<std::string> launch_file;

  // Options of the command `train`.
  bool list_recipes = false;
  bool eval_only = false;
  std::vector<std::string> trainer_words;  // arguments of `bench comm`, for dslaunch-train
  bool plan_memory = false;
  bool plan_pipeline = false;
  bool compare_precision = false;
  std::string autotuning;  // value of --autotuning, "tune" or "run"; empty if not given

  // Options of commands that are not launches.
  JobCommand job;
  int64_t now_unix_ms = 0;  // current Unix time, relative to which ages such as "10m" are resolved
  HostfileCommand hostfile;
  CheckpointCommand checkpoint;
  DataCommand data;
  RecipeCommand recipe;
  ManifestCommand manifest;
  // Shell whose completion is printed (bash, zsh or fish), or "man" for the manual page.
  std::string completion;
  std::string help_topic;  // topic to print; empty to list the topics
  std::string help_action;
};

// Combines the flags into launch options. A command line is in the per-node style if --no_ssh is
// given, or if --node_rank or --rdzv_endpoint is given without --launcher and --hostfile. With one
// node, the per-node style is a job on this machine. Errors are kUsage.
Result<LaunchOptions> ResolveOptions(ParsedFlags flags);

}  // namespace dslaunch
