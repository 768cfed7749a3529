// The options of a job, however the user gave them (cli/options/options.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log_level.h"
#include "cli/launchers/launcher.h"

namespace dslaunch {

// In the order of pb::Device.
enum class DeviceChoice { kAuto, kCpu, kCuda, kRocm, kXpu, kNpu, kHpu, kMlu };
enum class MpiChoice { kAuto, kPmix, kPmi, kNone };

// Whose output appears on the terminal. All output is in the log files anyway.
struct ShownRanks {
  bool all = false;
  std::vector<int> ranks = {0};  // ascending, each once; unused when `all`
  bool operator==(const ShownRanks&) const = default;
};

// A choice of the ranks' streams in torchrun's form: one for all local ranks, or 0:3,1:1.
struct RankStreams {
  static constexpr unsigned kStdout = 1;
  static constexpr unsigned kStderr = 2;
  static constexpr unsigned kBoth = 3;
  unsigned of_others = 0;  // streams of each local rank without an entry below
  std::map<int, unsigned> of_local_rank;

  unsigned Of(int local_rank) const {
    const auto found = of_local_rank.find(local_rank);
    return found == of_local_rank.end() ? of_others : found->second;
  }
  bool operator==(const RankStreams&) const = default;
};

// How PROGRAM is started. kAuto: by the node's Python if its name ends in .py, else directly.
enum class ProgramForm {
  kAuto,
  kModule,  // --module: python -m PROGRAM
  kPlain,   // --no_python: directly, whatever its name
  kPath,    // --run_path: by the running interpreter's runpy, which keeps sys.argv[0] as given
};

// What --nproc_per_node counts if it is not a number.
enum class SlotsFrom { kAuto, kCpu, kGpu };  // kAuto: GPUs, or CPUs if there are no GPUs

// Where each rank's threads are bound; see torchrun's --numa_binding.
enum class NumaBinding { kNode, kSocket, kExclusive, kCoreComplex };

// The per-node style: the same command runs on each node of the job, and starts that node's ranks
// only. Node 0's command is also the front end.
struct PerNode {
  std::optional<int> node_rank;  // nullopt: by the order in which nodes join
  std::string host;              // host on which the other nodes reach node 0's command
  int port = 29'500;             // 0: any, for a job of one node
  std::string id = "none";       // distinguishes jobs that use the same host and port
  // This is node 0's command (is_host of rdzv_conf); nullopt: not given.
  std::optional<bool> is_host;
  // File of the secret that all nodes share (per_node_token.h).
  std::optional<std::string> token_file;
  bool insecure = false;  // no token is needed, even between machines
  int64_t join_timeout_ms = 600'000;
  int64_t last_call_ms = 30'000;  // wait for more nodes after the least number has joined
  bool operator==(const PerNode&) const = default;
};

// When a node that joins late, or joins again, gets ranks.
enum class OnJoin { kNextRestart, kNow };

// What happens when a rank's steps stop.
enum class OnHang { kReport, kKill, kRestart };

// Failures after which the ranks are started again, by whether a restart can help.
enum class RestartOn { kAny, kTransient, kUnknown, kPermanent };

inline constexpr int64_t kMaxRestartDelayMs = 30'000;

// Options of `train` and `predict` for the embedded trainer, besides the recipe.
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
  std::optional<int64_t> save_every;         // optimizer steps
  std::optional<int64_t> memory_checkpoint;  // optimizer steps
  std::optional<std::string> resume;         // "auto", "none" or a checkpoint's name
  bool async_save = false;
  bool load_module_only = false;
  std::optional<std::string> resume_from;
  std::optional<std::string> export_hf;
  std::optional<std::string> metrics_jsonl;
  std::optional<std::string> trace;
  bool profile = false;
  std::optional<std::string> profile_sort;
  std::optional<int64_t> ranks;           // number of ranks for --plan_memory
  std::optional<int64_t> ranks_per_node;  // ranks on each node, if --num_gpus is given
  std::optional<std::string> pipeline_svg;
  std::optional<double> time_limit_s;
  bool deterministic = false;
  // Files and folders for kEvaluate and kPredict.
  std::optional<std::string> eval_file;
  std::optional<std::string> tokenizer;
  // predict only
  std::optional<std::string> output;
  std::optional<std::string> prompt;   // excludes `prompts`
  std::optional<std::string> prompts;  // file
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
  std::string output;       // file of the recipe that is found; empty: named after the recipe
  bool then_train = false;  // trains with it afterwards (DeepSpeed's --autotuning run)
  // The launch options on the command line, for the jobs of the search.
  std::vector<std::string> launch_words;
  // The words after `train`, for the training afterwards.
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
  std::string text;  // text of kHelp for stdout
  // Notices for the user about choices made in reading the options.
  std::vector<std::string> notices;

  std::optional<int> num_nodes;
  // The job is elastic if min_nodes is set; num_nodes is not set then.
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;  // nullopt: all of the hostfile except spares
  std::optional<int> num_gpus;   // ranks per node
  // The options that gave these two, for messages.
  std::string num_nodes_name = "--num_nodes";
  std::string num_gpus_name = "--num_gpus";
  std::optional<SlotsFrom> slots_from;  // excludes num_gpus; counted on each node
  std::optional<std::string> hostfile;
  bool hostfile_is_trusted = true;  // false: only a run file names it, which the user did not name
  // The lines of a hostfile, as text; empty: not given. Excludes hostfile.
  std::string hosts;
  // Ranks of all nodes together, as horovodrun counts. They exclude num_nodes and a range of nodes.
  // num_ranks is exact, or with a range of ranks the number with which the job begins.
  std::optional<int> num_ranks;
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
  bool has_rank_range() const { return min_ranks || max_ranks; }
  // DeepSpeed's filters, as typed (hostfiles/host_filter.h). They exclude each other and every
  // number of nodes or ranks.
  std::optional<std::string> include;
  std::optional<std::string> exclude;
  std::optional<Launcher> launcher;
  bool force_multi = false;           // use SSH even if the only node is this machine
  std::optional<std::string> run_id;  // --rdzv_id, seen by ranks; nullopt: the job's id
  std::optional<PerNode> per_node;    // without SSH; excludes hostfile filters and a launcher
  DeviceChoice device = DeviceChoice::kAuto;
  int master_port = 0;            // 0: any free port
  bool master_listen_fd = false;  // rank 0 gets a socket that listens there
  int rdzv_port = 0;              // 0: any free port
  std::string network_interface;  // interface on every node; empty: chosen by the routes
  std::optional<std::string>
      master_addr;  // MASTER_ADDR; nullopt: the address at which other nodes reach rank 0
  std::optional<std::string>
      local_addr;  // address at which other nodes reach this machine; per-node style only
  std::string role = "default";  // ROLE_NAME of the ranks

  // SSH
  // The port of nodes whose hostfile line has none. Overrides ssh_config, as `ssh -p` does. 0: not
  // given; the port is then ssh_config's, else 22.
  int ssh_port = 0;
  std::vector<std::string>
      ssh_command;            // the system's ssh and its options; empty: dslaunch's own client
  std::string agent_dir;      // AgentBinary::node_folder; empty: the default
  std::optional<int> fanout;  // RelayFanout's `asked`
  // A program with arguments that runs a command on {node}, in place of SSH; empty: not given.
  std::vector<std::string> exec_command;
  std::vector<std::string> launcher_args;  // arguments for the launcher's program, such as mpirun
  // Arguments for salloc outside of an allocation; may be empty.
  std::vector<std::string> slurm_args;
  bool dry_run = false;  // prints what would be done, and does nothing

  // The program
  bool runs_trainer = false;  // program[0] is dslaunch-train, which is beside dslaunch
  bool nested = false;        // a program that is a launcher is started, not replaced
  ProgramForm form = ProgramForm::kAuto;
  bool no_local_rank = false;       // no --local_rank=N for a script that takes it
  bool virtual_local_rank = false;  // each rank sees one device and LOCAL_RANK 0
  bool mpi_env = false;             // ranks get OMPI_COMM_WORLD_RANK and the like
  MpiChoice mpi = MpiChoice::kAuto;
  // NAME=VALUE, or NAME for the variable of this process; in the order given. The last one of a
  // name counts.
  std::vector<std::string> env;
  std::string chdir;  // where the program runs, relative to the current folder; empty: there
  std::vector<std::string> copy_files;           // paths as typed, to be copied to the nodes
  std::vector<std::string> copy_folders;         // paths as typed, to be copied to the nodes
  std::optional<std::string> venv_script;        // sourced on the nodes before the program
  std::optional<std::string> accelerate_config;  // a file, or "default"
  std::optional<NumaBinding> numa_binding;
  bool bind_cores_to_rank = false;
  std::optional<std::string>
      bind_core_list;  // "1,3-5": the cores to distribute; needs bind_cores_to_rank

  // Output
  LogLevel log_level = LogLevel::kInfo;               // --quiet: kError
  std::optional<std::vector<int>> local_ranks_shown;  // restricts `shown_ranks` to these; ascending
  // Shown lines that contain one of these are copied to filtered_stdout.log and
  // filtered_stderr.log.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  bool save_pid = false;  // DeepSpeed's /tmp/PID.deepspeed
  ShownRanks shown_ranks;
  RankStreams log_only;   // not shown even if `shown_ranks` has the rank
  std::string log_dir;    // empty: the user's state folder on each node
  int log_max_mb = 1024;  // limit of each log file; 0: no limit
  bool json = false;      // the closing block on stdout too
  // Metrics while the job runs (cli/metrics). Empty and 0: not asked for.
  std::string metrics_file;
  std::string metrics_socket;
  int metrics_port = 0;  // on loopback; needs a token
  std::string metrics_token_file;
  bool detach = false;  // the job continues without its front end once all ranks run
  int64_t connect_timeout_ms = 20'000;
  bool preflight = false;                   // measure the nodes first; doctor measures them only
  std::vector<std::string> health_command;  // words of a program for each node; empty: none
  int64_t health_timeout_ms = 30'000;
  int64_t gpu_free_timeout_ms = 60'000;  // how long to wait for GPUs that other programs use

  std::optional<int> max_restarts;   // nullopt: MakePolicy chooses
  int64_t memory_checkpoint = 0;     // steps between copies in memory; 0: ranks get no memory
  int64_t restart_delay_ms = 1'000;  // at most kMaxRestartDelayMs
  OnJoin on_join = OnJoin::kNextRestart;
  std::vector<RestartOn> restart_on;  // empty: any
  OnHang on_hang = OnHang::kReport;
  int64_t hang_ms = 60'000;  // without a step; 0: hangs are not detected
  // Without a sign of life, before the ranks have exchanged bytes and after; 0: not detected.
  int64_t setup_hang_ms = 1'800'000;
  int64_t standstill_ms = 600'000;
  int64_t heartbeat_ms = 1'000;
  int64_t suspect_ms = 3'000;  // more than heartbeat_ms
  int64_t dead_ms = 6'000;     // more than suspect_ms
  int64_t lease_ms = 60'000;
  int64_t grace_ms = 10'000;
  std::optional<bool> stdin_to_rank_0;  // nullopt: PlanStdin chooses
  bool pty = false;                     // rank 0 has a terminal
  int stop_signal = 0;                  // sent to ranks first; 0: SIGINT on Ctrl-C, else SIGTERM
  // Time limit of a program; 0: no limit. TrainOptions has the trainer's limit.
  int64_t time_limit_ms = 0;

  TrainOptions train;  // options of kTrain, which includes `predict`, and of kTune
  TuneOptions tune;    // options of kTune
  // For kProgram its argv, unchanged, never empty. For the commands (kJobCommand,
  // kCheckpointCommand, kDataCommand, kHostfileCommand, kRecipeCommand, kManifestCommand, kDoctor,
  // kCompletion, kHelpTopic) the command and the words after it.
  std::vector<std::string> program;
  bool operator==(const LaunchOptions&) const = default;
};

}  // namespace dslaunch
