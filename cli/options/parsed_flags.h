// What the options say one by one, and what they mean together. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/checkpoint_command.h"
#include "cli/options/hostfile_command.h"
#include "cli/options/job_command.h"
#include "cli/options/manifest_command.h"
#include "cli/options/option_values.h"
#include "cli/options/options.h"
#include "cli/options/recipe_command.h"

namespace dslaunch {

// A line that is wrong; the error does not name a help.
inline Error WrongUse(std::string what) { return {ExitCode::kUsage, std::move(what)}; }

struct ParsedFlags {
  LaunchOptions options;                     // what one option says alone
  std::set<std::string, std::less<>> given;  // names of the options that were given: "--tee"

  // How many nodes and ranks.
  std::optional<int> num_nodes;
  std::optional<int> num_processes;  // of all nodes
  std::optional<NodeRange> nnodes;
  std::optional<int> min_elastic;
  std::optional<int> max_elastic;
  bool elastic_training = false;

  // Where the nodes meet.
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
  bool replaces_torchrun = false;  // the command line names torchrun as the program

  bool ranks_shown_given = false;  // by --show
  bool quiet = false;
  std::optional<RankStreams> tee_streams;  // --tee
  std::optional<RankStreams> redirects;

  std::optional<std::string> launch_file;

  // train
  bool list_recipes = false;
  bool eval_only = false;
  std::vector<std::string> trainer_words;  // of bench comm, for dslaunch-train
  bool plan_memory = false;
  bool plan_pipeline = false;
  bool compare_precision = false;

  // The commands.
  JobCommand job;
  int64_t now_unix_ms = 0;  // for times such as "10m" ago
  HostfileCommand hostfile;
  CheckpointCommand checkpoint;
  RecipeCommand recipe;
  ManifestCommand manifest;
  std::string completion;  // bash, zsh, fish or man
  std::string help_topic;  // empty: the list of topics
  std::string help_action;
};

// The launch options. A command line is in the per-node style when it says --no_ssh; or, without
// --launcher and --hostfile, --node_rank or --rdzv_endpoint. With one node that is a job on this
// machine. Errors are kUsage.
Result<LaunchOptions> ResolveOptions(ParsedFlags flags);

}  // namespace dslaunch
