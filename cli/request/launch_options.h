// Defines the options of a job, in whatever form the user gave them (cli/options/options.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log_level.h"
#include "cli/launchers/launcher.h"

namespace dslaunch {

// The kind of device for the ranks. The values are in the order of pb::Device.
enum class DeviceChoice { kAuto, kCpu, kCuda, kRocm, kXpu, kNpu, kHpu, kMlu };
enum class MpiChoice { kAuto, kPmix, kPmi, kNone };

// The ranks whose output appears on the terminal. The log files contain the output of all ranks.
struct ShownRanks {
  bool all = false;
  std::vector<int> ranks = {0};  // shown ranks, ascending, without duplicates; unused if `all`
  bool operator==(const ShownRanks&) const = default;
};

// A choice of the ranks' streams in torchrun's form: one choice for all local ranks, or a choice
// for each, such as 0:3,1:1.
struct RankStreams {
  static constexpr unsigned kStdout = 1;
  static constexpr unsigned kStderr = 2;
  static constexpr unsigned kBoth = 3;
  unsigned of_others = 0;  // streams of each local rank without an entry in of_local_rank
  std::map<int, unsigned> of_local_rank;

  unsigned Of(int local_rank) const {
    const auto found = of_local_rank.find(local_rank);
    return found == of_local_rank.end() ? of_others : found->second;
  }
  bool operator==(const RankStreams&) const = default;
};

// The way in which PROGRAM is started. kAuto: by the node's Python if the name ends in .py, else
// directly.
enum class ProgramForm {
  kAuto,
  kModule,  // --module: run as python -m PROGRAM
  kPlain,   // --no_python: run directly, whatever the name
  kPath,    // --run_path: run by the running interpreter's runpy, which keeps sys.argv[0] as given
};

// The devices that --nproc_per_node counts if its value is not a number.
enum class SlotsFrom { kAuto, kCpu, kGpu };  // kAuto counts GPUs, or CPUs without GPUs

// The processors to which each rank's threads are bound; see torchrun's --numa_binding.
enum class NumaBinding { kNode, kSocket, kExclusive, kCoreComplex };

// The per-node style: the same command runs on each node of the job, and starts only the ranks of
// that node. Node 0's command is also the front end.
struct PerNode {
  // Rank of the node; nullopt to number nodes in the order in which they join.
  std::optional<int> node_rank;
  std::string host;         // host on which the other nodes reach node 0's command
  int port = 29'500;        // port of the command of node 0; 0 for any port in a job of one node
  std::string id = "none";  // id that distinguishes jobs with the same host and port
  // True if this is node 0's command (is_host of rdzv_conf); nullopt if not given.
  std::optional<bool> is_host;
  // File with the secret that all nodes share (per_node_token.h).
  std::optional<std::string> token_file;
  bool insecure = false;  // whether no token is needed, even between machines
  int64_t join_timeout_ms = 600'000;
  int64_t last_call_ms = 30'000;  // time for more nodes to join once the minimum has joined
  bool operator==(const PerNode&) const = default;
};

// The time at which a node that joins late, or joins again, gets ranks.
enum class OnJoin { kNextRestart, kNow };

// The reaction when the steps of a rank stop.
enum class OnHang { kReport, kKill, kRestart };

// Failures after which the ranks are started again, classified by whether a restart can help.
enum class RestartOn { kAny, kTransient, kUnknown, kPermanent };

inline constexpr int64_t kMaxRestartDelayMs = 30'000;

// Options of `train` and `predict` for the embedded trainer, in addition to the recipe.
struct TrainOptions {
  enum class Task { kTrain, kEvaluate, kPredict, kPlanMemory, kPlanPipeline, kComparePrecision };
  // The tasks of train, --eval_only, predict, --plan_memory, --plan_pipeline and
  // --compare_precision, in this order.
  Task task = Task::kTrain;
  std::optional<std::string> recipe;  // name or path as typed by the user
  std::optional<std::string> deepspeed_config;
  std::vector<std::string> sets;  // "key.path=value" assignments in the order given
  std::optional<int64_t> steps;   // number of optimizer steps; excludes `epochs`
  std::optional<int64_t> epochs;
  std::optional<int64_t> seed;
  std::optional<std::string> data;
  std::optional<std::string> plugin;
  std::optional<std::string> init_weights;
  std::optional<std::string> checkpoint_dir;
  std::optional<int64_t> save_every;         // number of optimizer steps between checkpoints
  std::optional<int64_t> memory_checkpoint;  // number of optimizer steps between copies in memory
  std::optional<std::string> resume;         // checkpoint to resume from: "auto", "none" or a name
  bool async_save = false;
  bool load_module_only = false;
  std::optional<std::string> resume_from;
  std::optional<std::string> export_hf;
  std::optional<std::string> metrics_jsonl;
  std::optional<std::string> trace;
  bool profile = false;
  std::optional<std::string> profile_sort;
  std::optional<int64_t> ranks;           // number of ranks for --plan_memory
  std::optional<int64_t> ranks_per_node;  // number of ranks on each node, if --num_gpus is given
  std::optional<std::string> pipeline_svg;
  std::optional<double> time_limit_s;
  bool deterministic = false;
  // Files and folders for kEvaluate and kPredict.
  std::optional<std::string> eval_file;
  std::optional<std::string> tokenizer;
  // Options of the command `predict` only.
  std::optional<std::string> output;
  std::optional<std::string> prompt;   // text of a single prompt; excludes `prompts`
  std::optional<std::string> prompts;  // path of a file with prompts
  std::optional<int64_t> max_new_tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::vector<std::string> stop;
  bool operator==(const TrainOptions&) const = default;
};

// Options of `tune`, which also has a recipe with its options (TrainOptions).
struct TuneOptions {
  double budget_s = 600;
  std::string output;  // file for the recipe that is found; empty to name it after the recipe
  // True to train with the recipe afterwards (DeepSpeed's --autotuning run).
  bool then_train = false;
  // The launch options on the command line, for the jobs of the search.
  std::vector<std::string> launch_words;
  // The words after `train`, for the training after the search.
  std::vector<std::string> train_words;
  bool operator==(const TuneOptions&) const = default;
};

struct LaunchOptions {
  enum class Mode {
    kHelp,
    kVersion,
    kTrain,
    kTune,
    kProgram,
    kJobCommand,
    kCheckpointCommand,
    kDataCommand,
    kHostfileCommand,
    kRecipeCommand,
    kManifestCommand,
    kDoctor,
    kCompletion,
    kHelpTopic,
  };
  Mode mode = Mode::kProgram;
  std::string text;  // text to print on stdout, for kHelp
  // Notices for the user about choices that were made in reading the options.
  std::vector<std::string> notices;

  std::optional<int> num_nodes;
  // The job is elastic if min_nodes is set; num_nodes is then not set.
  std::optional<int> min_nodes;
  // Largest number of nodes; nullopt for all nodes of the hostfile except spares.
  std::optional<int> max_nodes;
  std::optional<int> num_gpus;  // number of ranks per node
  // Names of the options that gave num_nodes and num_gpus, for messages.
  std::string num_nodes_name = "--num_nodes";
  std::string num_gpus_name = "--num_gpus";
  // Devices that are counted on each node as its slots; excludes num_gpus.
  std::optional<SlotsFrom> slots_from;
  std::optional<std::string> hostfile;
  // False if only a run file that the user did not name gives the hostfile.
  bool hostfile_is_trusted = true;
  // The lines of a hostfile, as text; empty if not given. Excludes hostfile.
  std::string hosts;
  // Numbers of ranks on all nodes together, as horovodrun counts. They exclude num_nodes and a
  // range of nodes. num_ranks is exact or, with a range of ranks, the number with which the job
  // begins.
  std::optional<int> num_ranks;
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
  bool has_rank_range() const { return min_ranks || max_ranks; }
  // DeepSpeed's filters as typed by the user (hostfiles/host_filter.h). They exclude each other and
  // every number of nodes or ranks.
  std::optional<std::string> include;
  std::optional<std::string> exclude;
  std::optional<Launcher> launcher;
  bool force_multi = false;  // whether to use SSH even if the only node is this machine
  // Value of --rdzv_id, which ranks see; nullopt for the job's id.
  std::optional<std::string> run_id;
  // Per-node style, without SSH; excludes hostfile filters and a launcher.
  std::optional<PerNode> per_node;
  DeviceChoice device = DeviceChoice::kAuto;
  int master_port = 0;            // port of rank 0's store; 0 for any free port
  bool master_listen_fd = false;  // whether rank 0 gets a socket that listens on master_port
  int rdzv_port = 0;              // port of the rendezvous; 0 for any free port
  // Interface on every node; empty to choose the interface by the routes.
  std::string network_interface;
  // Value of MASTER_ADDR; nullopt for the address at which other nodes reach rank 0.
  std::optional<std::string> master_addr;
  // Address at which other nodes reach this machine; per-node style only.
  std::optional<std::string> local_addr;
  std::string role = "default";  // value of ROLE_NAME for the ranks

  // Options of SSH and other launchers.

  // The port of nodes whose hostfile line has no port. Overrides ssh_config, as `ssh -p` does. 0 if
  // not given; the port is then the port in ssh_config, else 22.
  int ssh_port = 0;
  // The system's ssh with its options; empty for dslaunch's own client.
  std::vector<std::string> ssh_command;
  std::string agent_dir;      // folder on the nodes for the agent; empty for the default
  std::optional<int> fanout;  // value of --fanout; nullopt for the default of RelayFanout
  // A program with arguments that runs a command on {node} instead of SSH; empty if not given.
  std::vector<std::string> exec_command;
  std::vector<std::string> launcher_args;  // arguments for the launcher's program, such as mpirun
  // Arguments for salloc, used outside of an allocation; may be empty.
  std::vector<std::string> slurm_args;
  bool dry_run = false;  // whether to print the plan of the job without running it

  // Options of the program that the ranks run.
  bool runs_trainer = false;  // whether program[0] is dslaunch-train, which is beside dslaunch
  bool nested = false;  // whether a program that is a launcher is started instead of being replaced
  ProgramForm form = ProgramForm::kAuto;
  bool no_local_rank = false;       // whether to omit --local_rank=N for a script that accepts it
  bool virtual_local_rank = false;  // whether each rank sees a single device and LOCAL_RANK 0
  bool mpi_env = false;             // whether ranks get OMPI_COMM_WORLD_RANK and similar variables
  MpiChoice mpi = MpiChoice::kAuto;
  // NAME=VALUE, or NAME for the variable of this process, in the order given. The last entry of a
  // name counts.
  std::vector<std::string> env;
  // Folder in which the program runs, relative to the current folder; empty for that folder.
  std::string chdir;
  std::vector<std::string> copy_files;           // paths, as typed, of files to copy to the nodes
  std::vector<std::string> copy_folders;         // paths, as typed, of folders to copy to the nodes
  std::optional<std::string> venv_script;        // script sourced on the nodes before the program
  std::optional<std::string> accelerate_config;  // path of the configuration file, or "default"
  std::optional<NumaBinding> numa_binding;
  bool bind_cores_to_rank = false;
  // Cores to distribute, such as "1,3-5"; needs bind_cores_to_rank.
  std::optional<std::string> bind_core_list;

  // Options of the terminal's output and of log files.
  LogLevel log_level = LogLevel::kInfo;  // level of messages on the terminal; kError with --quiet
  // Restricts `shown_ranks` to these local ranks; ascending.
  std::optional<std::vector<int>> local_ranks_shown;
  // Shown lines that contain one of these texts are copied to filtered_stdout.log and
  // filtered_stderr.log.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  bool save_pid = false;  // whether to write /tmp/PID.deepspeed, as DeepSpeed does
  ShownRanks shown_ranks;
  RankStreams log_only;   // streams that are not shown even if `shown_ranks` has the rank
  std::string log_dir;    // folder of the log files; empty for the user's state folder on each node
  int log_max_mb = 1024;  // limit of each log file; 0 for no limit
  bool json = false;      // whether to print the closing block as JSON on stdout too
  // Destinations of metrics while the job runs (cli/metrics); empty or 0 if not requested.
  std::string metrics_file;
  std::string metrics_socket;
  int metrics_port = 0;  // port on loopback; needs a token
  std::string metrics_token_file;
  bool detach = false;  // whether the job continues without its front end once all ranks run
  int64_t connect_timeout_ms = 20'000;
  // Whether to measure the nodes before the job, or in doctor without a job.
  bool preflight = false;
  // Words of a program to run on each node; empty for none.
  std::vector<std::string> health_command;
  int64_t health_timeout_ms = 30'000;
  int64_t gpu_free_timeout_ms = 60'000;  // longest wait for GPUs that other programs use

  std::optional<int> max_restarts;   // limit of restarts; nullopt if MakePolicy chooses the limit
  int64_t memory_checkpoint = 0;     // steps between copies in memory; 0 to give ranks no memory
  int64_t restart_delay_ms = 1'000;  // pause before a restart; at most kMaxRestartDelayMs
  OnJoin on_join = OnJoin::kNextRestart;
  // Failures after which the job restarts; empty for all failures.
  std::vector<RestartOn> restart_on;
  OnHang on_hang = OnHang::kReport;
  int64_t hang_ms = 60'000;  // time without a step that counts as a hang; 0 to detect no hangs
  // Time without a sign of life that counts as a hang before the ranks have exchanged bytes; 0 to
  // detect no such hang.
  int64_t setup_hang_ms = 1'800'000;
  // Time without a sign of life that counts as a hang after the ranks have exchanged bytes; 0 to
  // detect no such hang.
  int64_t standstill_ms = 600'000;
  int64_t heartbeat_ms = 1'000;
  int64_t suspect_ms = 3'000;  // silence after which a node is suspected; must exceed heartbeat_ms
  int64_t dead_ms = 6'000;     // silence after which a node counts as lost; must exceed suspect_ms
  int64_t lease_ms = 60'000;
  int64_t grace_ms = 10'000;
  // Whether rank 0 reads this command's stdin; nullopt if PlanStdin decides.
  std::optional<bool> stdin_to_rank_0;
  bool pty = false;     // whether rank 0 gets a terminal as its stdin and output
  int stop_signal = 0;  // signal sent to ranks first; 0 for SIGINT on Ctrl-C, else SIGTERM
  // Time limit of a program; 0 for no limit. TrainOptions has the limit of the trainer.
  int64_t time_limit_ms = 0;

  TrainOptions train;  // options of kTrain, which includes `predict`, and of kTune
  TuneOptions tune;
  // For kProgram the argv of the program, unchanged, never empty. For the commands (kJobCommand,
  // kCheckpointCommand, kDataCommand, kHostfileCommand, kRecipeCommand, kManifestCommand, kDoctor,
  // kCompletion, kHelpTopic) the command and the words after it.
  std::vector<std::string> program;
  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace dslaunch
