// What a user asked for: the options of a job, however they were given (cli/options/options.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log_level.h"
#include "cli/launchers/launcher.h"

namespace dslaunch {

enum class DeviceChoice { kAuto, kCuda, kCpu };
enum class MpiChoice { kAuto, kPmix, kPmi, kNone };

// Whose output appears on the terminal. All output is in the log files anyway.
struct ShownRanks {
  bool all = false;
  std::vector<int> ranks = {0};  // ascending, each once; unused when `all`
  bool operator==(const ShownRanks&) const = default;
};

// Some of the ranks' streams, as torchrun names them: of all local ranks, or 0:3,1:1.
struct RankStreams {
  static constexpr unsigned kStdout = 1;
  static constexpr unsigned kStderr = 2;
  static constexpr unsigned kBoth = 3;
  unsigned of_others = 0;  // of each local rank that is not in `of_local_rank`
  std::map<int, unsigned> of_local_rank;

  unsigned Of(int local_rank) const {
    const auto found = of_local_rank.find(local_rank);
    return found == of_local_rank.end() ? of_others : found->second;
  }
  bool operator==(const RankStreams&) const = default;
};

// How PROGRAM is started. kAuto: a name that ends in .py by the node's Python, else as it is.
enum class ProgramForm {
  kAuto,
  kModule,  // --module: python -m PROGRAM
  kPlain,   // --no_python: as it is, whatever its name
  kPath,    // --run_path: by the running interpreter's runpy, which keeps sys.argv[0] as given
};

// What --nproc_per_node counts where it is no number.
enum class SlotsFrom { kAuto, kCpu, kGpu };  // kAuto: GPUs, or CPUs where there are none

// Of each rank's threads, as torchrun's --numa_binding.
enum class NumaBinding { kNode, kSocket, kExclusive, kCoreComplex };

// The per-node style: this command is one node of the job and the same command runs on each of the
// others. Node 0's is the front end too.
struct PerNode {
  std::optional<int> node_rank;  // nullopt: in the order in which nodes come
  std::string host;              // of node 0's command, where the others find it
  int port = 29'500;             // 0: any, for a job of one node
  std::string id = "none";       // two jobs that meet at one place are told apart by it
  std::optional<bool> is_host;  // of rdzv_conf: whether this command is node 0's; nullopt: find out
  std::optional<std::string> token_file;  // a secret that all have (per_node_token.h)
  bool insecure = false;                  // no token is needed, wherever the nodes are
  int64_t join_timeout_ms = 600'000;
  int64_t last_call_ms = 30'000;  // for more nodes, once the least number is there
  bool operator==(const PerNode&) const = default;
};

// When a node that comes later, or comes back, gets ranks.
enum class OnJoin { kNextRestart, kNow };

// What happens when a rank's steps stop.
enum class OnHang { kReport, kKill, kRestart };

inline constexpr int64_t kMaxRestartDelayMs = 30'000;

// What `train` and `predict` give to the embedded trainer, on top of the recipe.
struct TrainOptions {
  enum class Task { kTrain, kEvaluate, kPredict, kPlanMemory, kPlanPipeline, kComparePrecision };
  // train, --eval_only, predict, --plan_memory, --plan_pipeline, --compare_precision
  Task task = Task::kTrain;
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
  bool profile = false;
  std::optional<std::string> profile_sort;
  std::optional<int64_t> ranks;           // that --plan_memory plans for
  std::optional<int64_t> ranks_per_node;  // of these, where --num_gpus is given
  std::optional<std::string> pipeline_svg;
  std::optional<double> time_limit_s;
  bool deterministic = false;
  // predict only
  std::optional<std::string> output;
  std::optional<std::string> prompt;
  std::optional<int64_t> max_new_tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  bool operator==(const TrainOptions&) const = default;
};

struct LaunchOptions {
  enum class Mode {
    kHelp,
    kVersion,
    kTrain,
    kProgram,
    kJobCommand,
    kCheckpointCommand,
    kHostfileCommand,
    kRecipeCommand,
    kManifestCommand,
    kDoctor,
    kCompletion,
    kHelpTopic,
  };
  Mode mode = Mode::kProgram;
  std::string text;                  // for kHelp: what to print on stdout
  std::vector<std::string> notices;  // what the user should know about how this was understood

  std::optional<int> num_nodes;
  // Elastic when there is a least number of nodes; then without num_nodes.
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;  // nullopt: all of the hostfile that are no spares
  std::optional<int> num_gpus;   // ranks per node
  // By which options these two were given, for messages.
  std::string num_nodes_name = "--num_nodes";
  std::string num_gpus_name = "--num_gpus";
  std::optional<SlotsFrom> slots_from;  // excludes num_gpus; counted on each node
  std::optional<std::string> hostfile;
  bool hostfile_is_trusted = true;  // false: a run file names it that the command line does not
  // The lines of a hostfile, in place of one; empty: none. Excludes hostfile.
  std::string hosts;
  // Ranks of all nodes together, as horovodrun counts; exclude num_nodes, and a range of them.
  // num_ranks is exact, or, where there is a range of ranks, what the job must begin with.
  std::optional<int> num_ranks;
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
  bool has_rank_range() const { return min_ranks || max_ranks; }
  // DeepSpeed's filters, as typed (hostfiles/host_filter.h). They exclude each other and all
  // that says how many nodes or ranks.
  std::optional<std::string> include;
  std::optional<std::string> exclude;
  std::optional<Launcher> launcher;
  bool force_multi = false;           // SSH even where the only node is this machine
  std::optional<std::string> run_id;  // --rdzv_id, which ranks get; nullopt: the job's id
  std::optional<PerNode> per_node;    // excludes hostfile filters and a launcher; without SSH
  DeviceChoice device = DeviceChoice::kAuto;
  int master_port = 0;            // 0: any free port
  bool master_listen_fd = false;  // rank 0 gets a socket that listens there
  int rdzv_port = 0;              // the same
  std::string network_interface;  // of every node; empty: by the routes
  std::optional<std::string>
      master_addr;  // for the ranks; nullopt: rank 0's node, as the others reach it
  std::optional<std::string>
      local_addr;                // of this machine, for the other nodes; per-node style only
  std::string role = "default";  // ROLE_NAME of the ranks

  // SSH
  // The port of each node is its hostfile line's, else this, else ssh_config's, else 22. So this
  // beats ssh_config, as `ssh -p` does, and never the hostfile. 0: not given.
  int ssh_port = 0;
  std::vector<std::string> ssh_command;  // the system's ssh and its options; empty: ours
  std::string agent_dir;                 // AgentBinary::node_folder; empty: the default
  std::optional<int> fanout;             // RelayFanout's `asked`
  // A program and its arguments that run a command on {node}, in place of SSH; empty: none.
  std::vector<std::string> exec_command;
  std::vector<std::string> launcher_args;  // for the launcher's program, such as mpirun
  std::vector<std::string> slurm_args;     // for salloc, if this is in no allocation; empty: none
  bool dry_run = false;                    // prints what would be done, and does nothing

  // The program
  bool runs_trainer = false;  // program[0] is dslaunch-train, which is beside dslaunch
  bool nested = false;        // the program may be a launcher, and is started as it is
  ProgramForm form = ProgramForm::kAuto;
  bool no_local_rank = false;       // no --local_rank=N for a script that takes it
  bool virtual_local_rank = false;  // each rank sees one device and LOCAL_RANK 0
  bool mpi_env = false;             // OMPI_COMM_WORLD_RANK and the like for the ranks
  MpiChoice mpi = MpiChoice::kAuto;
  // NAME=VALUE, or NAME for the variable of this process; in the order given, the last of a name
  // counts.
  std::vector<std::string> env;
  std::string chdir;                       // where the program runs, relative to here; empty: here
  std::vector<std::string> copy_files;     // to be copied to the nodes, as typed
  std::vector<std::string> copy_folders;   // likewise
  std::optional<std::string> venv_script;  // on the nodes, sourced before the program
  std::optional<std::string> accelerate_config;  // a file, or "default"
  std::optional<NumaBinding> numa_binding;
  bool bind_cores_to_rank = false;
  std::optional<std::string> bind_core_list;  // "1,3-5": the cores to share out; needs the above

  // Output
  LogLevel log_level = LogLevel::kInfo;  // --quiet: kError
  std::optional<std::vector<int>>
      local_ranks_shown;  // of those that `shown_ranks` shows; ascending
  // Shown lines with one of these are copied to filtered_stdout.log and filtered_stderr.log.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  bool save_pid = false;  // DeepSpeed's /tmp/PID.deepspeed
  ShownRanks shown_ranks;
  RankStreams log_only;   // in the log files only, though `shown_ranks` shows the rank
  std::string log_dir;    // empty: the user's state folder on each node
  int log_max_mb = 1024;  // of each log file; 0: no limit
  bool json = false;      // the closing block on stdout too
  bool detach = false;    // the job goes on without its front end once all ranks are started
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
  std::optional<bool> stdin_to_rank_0;  // nullopt: as PlanStdin chooses
  bool pty = false;                     // rank 0 has a terminal
  int stop_signal = 0;        // the first that ranks get; 0: SIGINT on Ctrl-C, else SIGTERM
  int64_t time_limit_ms = 0;  // of a program; 0: none. The trainer's is TrainOptions'

  TrainOptions train;  // for kTrain, which `predict` is too
  // For kProgram argv, untouched, never empty; for the commands (kJobCommand, kCheckpointCommand,
  // kHostfileCommand, kRecipeCommand, kManifestCommand, kDoctor, kCompletion, kHelpTopic) the
  // command and what follows it.
  std::vector<std::string> program;
  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace dslaunch
