// The options of a launch: what may stand before PROGRAM, `train` and `predict`.
#include <utility>

#include "base/harmless_text.h"
#include "cli/options/option_draft.h"
#include "cli/options/option_table.h"
#include "cli/options/option_values.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {
namespace {

using Group = OptionGroup;
constexpr double kDayS = 86'400;

template <class T>
T& Field(Draft& draft, T LaunchOptions::*member) {
  return draft.options.*member;
}
template <class T>
T& Field(Draft& draft, T Draft::*member) {
  return draft.*member;
}

// Readers for what many options have in common.

template <auto member>
void Set(const Given&, Draft& draft) {
  Field(draft, member) = true;
}

template <auto member>
void Text(const Given& given, Draft& draft) {
  if (given.text.empty()) {
    throw CLI::ValidationError(given.name + " needs a value that is not empty");
  }
  Field(draft, member) = given.text;
}

template <auto member, int min, int max>
void Whole(const Given& given, Draft& draft) {
  Field(draft, member) = ReadWhole<int>(given.name, given.text, min, max);
}

// Seconds from `min_ms` to `max_s`.
template <auto member, int min_ms, int max_s = 86'400>
void Seconds(const Given& given, Draft& draft) {
  Field(draft, member) = ReadSecondsAsMs(given.name, given.text, min_ms / 1000.0, max_s);
}

void Nothing(const Given&, Draft&) {}

// Readers of single options.

void NprocPerNode(const Given& given, Draft& draft) {
  if (given.text == "xpu") {
    throw CLI::ValidationError(given.name +
                               " xpu is not supported: dslaunch knows no XPUs; give "
                               "the number of processes");
  }
  if (!given.text.empty() && given.text[0] >= 'a' && given.text[0] <= 'z') {
    draft.options.slots_from = ReadChoice<SlotsFrom>(
        given.name, given.text,
        {{"auto", SlotsFrom::kAuto}, {"cpu", SlotsFrom::kCpu}, {"gpu", SlotsFrom::kGpu}});
  } else {
    draft.options.num_gpus = ReadWhole<int>(given.name, given.text, 1, kMaxSlots);
  }
}

void ReadLauncher(const Given& given, Draft& draft) {
  const std::string name = CLI::detail::to_lower(given.text);
  for (const char* other : {"pdsh", "openmpi", "mpich", "impi", "mvapich", "slurm"}) {
    if (name != other) continue;
    throw CLI::ValidationError(given.name + " " + other +
                               " is not supported: dslaunch reaches all nodes itself over SSH "
                               "(--launcher ssh)" +
                               (name == "slurm"
                                    ? "; or run this command on each node with --no_ssh under srun"
                                    : "; leave it out"));
  }
  draft.options.launcher = ReadChoice<Launcher>(
      given.name, given.text, {{"local", Launcher::kLocal}, {"ssh", Launcher::kSsh}});
}

void ReadRdzvBackend(const Given& given, Draft& draft) {
  if (given.text.starts_with("etcd")) {
    throw CLI::ValidationError(given.name + " " + Excerpt(given.text) +
                               " is not supported: nodes meet at one of them, no etcd is needed; "
                               "leave it out or give c10d");
  }
  draft.rdzv_c10d = ReadChoice<bool>(given.name, given.text, {{"static", false}, {"c10d", true}});
}

// Of ours and of torchrun's meaning; what says nothing in torchrun ("0") is rank 0 here.
void ReadTees(const Given& given, Draft& draft) {
  const bool from_torchrun = given.name == "PET_TEE";
  if (from_torchrun || given.text.find(':') != std::string::npos) {
    draft.tee_streams = ReadStreams(given.name, given.text);
    return;
  }
  draft.options.tee = ReadTee(given.text, given.name);
  draft.ranks_shown_given = true;
  if (given.text == "1" || given.text == "2" || given.text == "3") {
    draft.options.notices.push_back(given.name + " " + given.text + " shows rank " + given.text +
                                    "; torchrun's --tee " + given.text + " is -t " + given.text +
                                    " here");
  }
}

void ReadMonitorInterval(const Given& given, Draft&) {
  (void)ReadNumber(given.name, given.text, 1e-6, kDayS);
}

void ReadEventLogHandler(const Given& given, Draft&) {
  if (given.text == "null") return;
  throw CLI::ValidationError(given.name + " " + Quoted(given.text) +
                             " is not supported: handlers are Python's; events.jsonl beside the "
                             "logs has every event, leave it out");
}

void ReadLogLevel(const Given& given, Draft& draft) {
  draft.options.log_level = ReadChoice<LogLevel>(given.name, given.text,
                                                 {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warning", LogLevel::kWarning},
                                                  {"error", LogLevel::kError},
                                                  {"critical", LogLevel::kError}});
}

OptionTable MakeTable() {
  OptionTable table = {
      {.names = "-H,--hostfile",
       .value = "FILE",
       .group = Group::kWhere,
       .help = "lines 'NAME slots=N'; default /job/hostfile, else this machine",
       .read = Text<&LaunchOptions::hostfile>,
       .deepspeed = true,
       .common = true},
      {.names = "-i,--include",
       .value = "NODES",
       .group = Group::kWhere,
       .help = "only these nodes or devices of the hostfile, as w0@w1:0,2",
       .read = Text<&LaunchOptions::include>,
       .deepspeed = true,
       .common = true,
       .may_be_empty = true},
      {.names = "-e,--exclude",
       .value = "NODES",
       .group = Group::kWhere,
       .help = "all but these",
       .read = Text<&LaunchOptions::exclude>,
       .deepspeed = true,
       .common = true,
       .may_be_empty = true},
      {.names = "--num_nodes",
       .value = "N",
       .group = Group::kWhere,
       .help = "use the first N nodes of the hostfile",
       .read = Whole<&Draft::num_nodes, 1, kMaxNodes>,
       .deepspeed = true,
       .common = true},
      {.names = "--nnodes",
       .value = "N|MIN:MAX",
       .group = Group::kWhere,
       .help = "the same; MIN:MAX goes on with fewer nodes when some are lost",
       .read = [](const Given& given,
                  Draft& draft) { draft.nnodes = ReadNodes(given.name, given.text); },
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--min_elastic_nodes",
       .value = "N",
       .group = Group::kWhere,
       .help = "the same range as DeepSpeed spells it: MIN",
       .read = Whole<&Draft::min_elastic, 1, kMaxNodes>,
       .deepspeed = true},
      {.names = "--max_elastic_nodes",
       .value = "N",
       .group = Group::kWhere,
       .help = "and MAX",
       .read = Whole<&Draft::max_elastic, 1, kMaxNodes>,
       .deepspeed = true},
      {.names = "--elastic_training",
       .group = Group::kWhere,
       .help = "a range from 1 node to all, where none is given",
       .read = Set<&Draft::elastic_training>,
       .deepspeed = true},
      {.names = "--num_gpus,--num_accelerators",
       .value = "N",
       .group = Group::kWhere,
       .help = "ranks on each node; default: all its slots",
       .read = Whole<&LaunchOptions::num_gpus, 1, kMaxSlots>,
       .deepspeed = true,
       .common = true},
      {.names = "--nproc_per_node",
       .value = "N|auto|cpu|gpu",
       .group = Group::kWhere,
       .help = "the same; or count GPUs or CPUs there",
       .read = NprocPerNode,
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--launcher",
       .value = "local|ssh",
       .group = Group::kWhere,
       .help = "default: ssh with a hostfile, else local: all on this machine",
       .read = ReadLauncher,
       .deepspeed = true,
       .common = true},
      {.names = "--device",
       .value = "auto|cuda|cpu",
       .group = Group::kWhere,
       .help = "default auto: CUDA if every rank can have a GPU",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.device = ReadChoice<DeviceChoice>(given.name, given.text,
                                                             {{"auto", DeviceChoice::kAuto},
                                                              {"cuda", DeviceChoice::kCuda},
                                                              {"cpu", DeviceChoice::kCpu}});
           },
       .common = true},
      {.names = "--master_addr",
       .value = "HOST",
       .group = Group::kWhere,
       .help = "MASTER_ADDR of the ranks; default: rank 0's node, as the others reach it",
       .read = Text<&LaunchOptions::master_addr>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "--master_port",
       .value = "PORT",
       .group = Group::kWhere,
       .help = "MASTER_PORT of the ranks; default: any free port",
       .read = Whole<&LaunchOptions::master_port, 0, 65'535>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true},
      {.names = "--network_interface",
       .value = "NAME",
       .group = Group::kWhere,
       .help = "of every node, for all that they say to each other; default: by the routes",
       .read = Text<&LaunchOptions::network_interface>},
      {.names = "--rdzv_port",
       .value = "PORT",
       .group = Group::kWhere,
       .help = "where the agents meet on the first node; default: any free port",
       .read = Whole<&LaunchOptions::rdzv_port, 0, 65'535>},
      {.names = "--dry_run",
       .group = Group::kWhere,
       .help = "say all that would be done, and do nothing; also with --json",
       .read = Set<&LaunchOptions::dry_run>,
       .common = true},
      {.names = "--run_file",
       .value = "FILE",
       .group = Group::kWhere,
       .help = "YAML with these options and a recipe; default ./dslaunch.yaml",
       .read = Text<&Draft::run_file>,
       .common = true},

      {.names = "-m,--module",
       .group = Group::kProgram,
       .help = "PROGRAM is a Python module",
       .read = Set<&Draft::module>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--no_python",
       .group = Group::kProgram,
       .help = "start PROGRAM as it is, though its name ends in .py",
       .read = Set<&Draft::no_python>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true},
      {.names = "--run_path",
       .group = Group::kProgram,
       .help = "run the script by Python's runpy",
       .read = Set<&Draft::run_path>,
       .torchrun = true,
       .pet = true},
      {.names = "--env",
       .value = "NAME=VALUE",
       .group = Group::kProgram,
       .help = "for the ranks, byte for byte; may be repeated",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.env.push_back(ReadVariable(given.name, given.text));
           },
       .common = true,
       .repeatable = true},
      {.names = "--venv_script",
       .value = "FILE",
       .group = Group::kProgram,
       .help = "on the nodes, sourced before PROGRAM",
       .read = Text<&LaunchOptions::venv_script>,
       .deepspeed = true},
      {.names = "--no_local_rank",
       .group = Group::kProgram,
       .help = "give the script no --local_rank=N",
       .read = Set<&LaunchOptions::no_local_rank>,
       .deepspeed = true},
      {.names = "--virtual_local_rank",
       .group = Group::kProgram,
       .help = "each rank sees one device, and LOCAL_RANK 0",
       .read = Set<&LaunchOptions::virtual_local_rank>,
       .torchrun = true,
       .pet = true},
      {.names = "--role",
       .value = "NAME",
       .group = Group::kProgram,
       .help = "ROLE_NAME of the ranks; default 'default'",
       .read = Text<&LaunchOptions::role>,
       .torchrun = true,
       .pet = true},
      {.names = "--bind_cores_to_rank",
       .group = Group::kProgram,
       .help = "share the node's cores out among its ranks",
       .read = Set<&LaunchOptions::bind_cores_to_rank>,
       .deepspeed = true,
       .common = true},
      {.names = "--bind_core_list",
       .value = "LIST",
       .group = Group::kProgram,
       .help = "with it: only these cores, as 0,4-7",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.bind_core_list = ReadCoreList(given.name, given.text);
           },
       .deepspeed = true},
      {.names = "--numa_binding",
       .value = "node|socket|exclusive|core-complex",
       .group = Group::kProgram,
       .help = "bind each rank to CPUs near its GPU",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.numa_binding =
                 ReadChoice<NumaBinding>(given.name, given.text,
                                         {{"node", NumaBinding::kNode},
                                          {"socket", NumaBinding::kSocket},
                                          {"exclusive", NumaBinding::kExclusive},
                                          {"core-complex", NumaBinding::kCoreComplex}});
           },
       .torchrun = true},

      {.names = "--tee",
       .value = "all|none|0,3",
       .group = Group::kOutput,
       .help = "ranks whose output is shown; default 0; all is in log files",
       .read = ReadTees,
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "-t",
       .value = "STREAMS",
       .group = Group::kOutput,
       .help = "torchrun's --tee: 0 to 3, or 0:3,1:1; shows all ranks",
       .read = [](const Given& given,
                  Draft& draft) { draft.tee_streams = ReadStreams(given.name, given.text); },
       .torchrun = true},
      {.names = "-r,--redirects",
       .value = "STREAMS",
       .group = Group::kOutput,
       .help = "not shown, in the log files only: 1 stdout, 2 stderr, 3 both; or 0:3,1:1 for local "
               "ranks 0 and 1",
       .read = [](const Given& given,
                  Draft& draft) { draft.redirects = ReadStreams(given.name, given.text); },
       .torchrun = true,
       .pet = true},
      {.names = "--local_ranks_filter",
       .value = "0,1",
       .group = Group::kOutput,
       .help = "show these local ranks of each node only",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.local_ranks_shown = ReadRanks(given.name, given.text);
           },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "--duplicate_stdout_filters",
       .value = "TEXTS",
       .group = Group::kOutput,
       .help = "copy shown lines of stdout that have one of these texts (between commas) to "
               "filtered_stdout.log",
       .read = [](const Given& given,
                  Draft& draft) { draft.options.stdout_filters = ReadFilters(given.text); },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "--duplicate_stderr_filters",
       .value = "TEXTS",
       .group = Group::kOutput,
       .help = "the same of stderr, to filtered_stderr.log",
       .read = [](const Given& given,
                  Draft& draft) { draft.options.stderr_filters = ReadFilters(given.text); },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "-q,--quiet",
       .group = Group::kOutput,
       .help = "dslaunch itself says only what went wrong",
       .read = Set<&Draft::quiet>,
       .deepspeed = true,
       .common = true},
      {.names = "--log_level",
       .value = "debug|info|warning|error|critical",
       .group = Group::kOutput,
       .help = "how much it says; default info",
       .read = ReadLogLevel,
       .deepspeed = true},
      {.names = "--detach",
       .group = Group::kOutput,
       .help = "print the job's id once all ranks are started, and leave it",
       .read = Set<&LaunchOptions::detach>,
       .common = true},
      {.names = "--json",
       .group = Group::kOutput,
       .help = "how the job ended, as one JSON object on stdout's last line",
       .read = Set<&LaunchOptions::json>,
       .common = true},
      {.names = "--log_dir",
       .value = "DIR",
       .group = Group::kOutput,
       .help = "on each node; default: the user's state folder",
       .read = Text<&LaunchOptions::log_dir>,
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--enable_each_rank_log",
       .value = "DIR",
       .group = Group::kOutput,
       .help = "the same",
       .read =
           [](const Given& given, Draft& draft) {
             if (given.text != "None") Text<&LaunchOptions::log_dir>(given, draft);
           },
       .deepspeed = true},
      {.names = "--log_max_mb",
       .value = "N",
       .group = Group::kOutput,
       .help = "of each log file: beyond it the oldest part is dropped",
       .read = Whole<&LaunchOptions::log_max_mb, 0, 1'000'000'000>},
      {.names = "--save_pid",
       .group = Group::kOutput,
       .help = "write the process ids to /tmp/PID.deepspeed, as deepspeed does",
       .read = Set<&LaunchOptions::save_pid>,
       .deepspeed = true},

      {.names = "--max_restarts",
       .value = "N",
       .group = Group::kFailure,
       .help = "restarts of the ranks; default 0; 3 with spares or a range",
       .read = Whole<&LaunchOptions::max_restarts, 0, 1'000'000>,
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--restart_delay_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "before the first restart; doubles up to 30; default 1",
       .read = Seconds<&LaunchOptions::restart_delay_ms, 0, kMaxRestartDelayMs / 1000>},
      {.names = "--on_join",
       .value = "next|now",
       .group = Group::kFailure,
       .help = "a node that comes later, or comes back, gets ranks at the next restart (default), "
               "or the ranks are restarted for it",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.on_join = ReadChoice<OnJoin>(
                 given.name, given.text, {{"next", OnJoin::kNextRestart}, {"now", OnJoin::kNow}});
           }},
      {.names = "--on_hang",
       .value = "report|kill|restart",
       .group = Group::kFailure,
       .help = "when a rank's steps stop; default report",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.on_hang = ReadChoice<OnHang>(given.name, given.text,
                                                        {{"report", OnHang::kReport},
                                                         {"kill", OnHang::kKill},
                                                         {"restart", OnHang::kRestart}});
           },
       .common = true},
      {.names = "--hang_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "without a step, and 5 times the usual, is a hang; 0: never; default 60",
       .read = Seconds<&LaunchOptions::hang_ms, 0>},
      {.names = "--heartbeat_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "how often nodes are heard; default 1",
       .read = Seconds<&LaunchOptions::heartbeat_ms, 100>},
      {.names = "--suspect_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "how much silence of a node is said; default 3",
       .read = Seconds<&LaunchOptions::suspect_ms, 100>},
      {.names = "--dead_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "after how much silence a node is lost; default 6",
       .read = Seconds<&LaunchOptions::dead_ms, 100>},
      {.names = "--lease_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "silence of this machine that ends the job; default 60",
       .read = Seconds<&LaunchOptions::lease_ms, 1000>},
      {.names = "--grace",
       .value = "S",
       .group = Group::kFailure,
       .help = "seconds between SIGTERM and SIGKILL; default 10",
       .read = Seconds<&LaunchOptions::grace_ms, 0>,
       .common = true},

      {.names = "--ssh_port",
       .value = "PORT",
       .group = Group::kSsh,
       .help = "where the hostfile gives none; default: ssh_config's, or 22",
       .read = Whole<&LaunchOptions::ssh_port, 1, 65'535>,
       .deepspeed = true,
       .common = true},
      {.names = "--ssh_command",
       .value = "'ssh ...'",
       .group = Group::kSsh,
       .help = "the system's ssh in place of ours, for GSSAPI, hardware keys or ControlMaster",
       .read =
           [](const Given& given, Draft& draft) {
             draft.options.ssh_command = ReadWords(given.name, given.text);
             if (!draft.options.ssh_command.empty()) return;
             throw CLI::ValidationError(given.name + " needs a value that is not empty");
           },
       .common = true},
      {.names = "--launcher_args",
       .value = "'...'",
       .group = Group::kSsh,
       .help = "options for the system's ssh, which is then used",
       .read = [](const Given& given,
                  Draft& draft) { draft.launcher_args = ReadWords(given.name, given.text); },
       .deepspeed = true,
       .may_be_empty = true},
      {.names = "--connect_timeout",
       .value = "S",
       .group = Group::kSsh,
       .help = "seconds to reach all nodes; default 20",
       .read = Seconds<&LaunchOptions::connect_timeout_ms, 100>,
       .common = true},
      {.names = "--force_multi",
       .group = Group::kSsh,
       .help = "use SSH though the only node is this machine",
       .read = Set<&LaunchOptions::force_multi>,
       .deepspeed = true},

      {.names = "--no_ssh",
       .group = Group::kPerNode,
       .help = "this command is one node of the job",
       .read = Set<&Draft::no_ssh>,
       .deepspeed = true,
       .common = true},
      {.names = "--node_rank",
       .value = "N",
       .group = Group::kPerNode,
       .help = "which node this is; default: as they come; 0 shows the job",
       .read = Whole<&Draft::node_rank, 0, kMaxNodes - 1>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--rdzv_endpoint",
       .value = "HOST[:PORT]",
       .group = Group::kPerNode,
       .help = "node 0, where all meet; default --master_addr, port 29500",
       .read = [](const Given& given,
                  Draft& draft) { draft.rdzv_endpoint = ReadEndpoint(given.name, given.text); },
       .torchrun = true,
       .pet = true,
       .common = true,
       .may_be_empty = true},
      {.names = "--rdzv_id",
       .value = "ID",
       .group = Group::kPerNode,
       .help = "keeps two jobs apart that meet at one place",
       .read = Text<&Draft::rdzv_id>,
       .torchrun = true,
       .pet = true},
      {.names = "--rdzv_token_file",
       .value = "FILE",
       .group = Group::kPerNode,
       .help = "a secret that all nodes have: only they meet, and by TLS",
       .read = Text<&Draft::rdzv_token_file>},
      {.names = "--rdzv_backend",
       .value = "static|c10d",
       .group = Group::kPerNode,
       .help = "either: nodes meet at node 0",
       .read = ReadRdzvBackend,
       .torchrun = true,
       .pet = true},
      {.names = "--rdzv_conf",
       .value = "KEY=VALUE,...",
       .group = Group::kPerNode,
       .help = "join_timeout, last_call_timeout, is_host, keep_alive_interval, "
               "keep_alive_max_attempt",
       .read = [](const Given& given,
                  Draft& draft) { draft.rdzv_conf = ReadRdzvConf(given.name, given.text); },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "--local_addr",
       .value = "HOST",
       .group = Group::kPerNode,
       .help = "of this machine, for the other nodes",
       .read = Text<&LaunchOptions::local_addr>,
       .torchrun = true,
       .pet = true},
      {.names = "--standalone",
       .group = Group::kPerNode,
       .help = "a job of this machine alone",
       .read = Set<&Draft::standalone>,
       .torchrun = true,
       .pet = true,
       .common = true},

      {.names = "-h,--help",
       .group = Group::kOther,
       .help = "this text; also after 'train' and other commands",
       .read = Nothing,
       .common = true},
      {.names = "--help_all",
       .group = Group::kOther,
       .help = "every option, with all of deepspeed's and torchrun's",
       .read = Nothing,
       .common = true},
      {.names = "--version",
       .group = Group::kOther,
       .help = "the version",
       .read = Nothing,
       .common = true},

      {.names = "--no_ssh_check",
       .group = Group::kAccepted,
       .help = "connecting is the check, and all nodes are reached at once",
       .read = Nothing,
       .deepspeed = true},
      {.names = "--monitor_interval",
       .value = "S",
       .group = Group::kAccepted,
       .help = "a rank's end is known at once",
       .read = ReadMonitorInterval,
       .torchrun = true,
       .pet = true},
      {.names = "--start_method",
       .value = "spawn|fork|forkserver",
       .group = Group::kAccepted,
       .help = "programs are started anew, with --run_path too",
       .read =
           [](const Given& given, Draft& draft) {
             draft.start_method = ReadChoice<const char*>(
                 given.name, given.text,
                 {{"spawn", "spawn"}, {"fork", "fork"}, {"forkserver", "forkserver"}});
           },
       .torchrun = true,
       .pet = true},
      {.names = "--event_log_handler",
       .value = "null",
       .group = Group::kAccepted,
       .help = "events.jsonl beside the logs has every event",
       .read = ReadEventLogHandler,
       .torchrun = true,
       .pet = true},
      {.names = "--signals_to_handle",
       .value = "NAMES",
       .group = Group::kAccepted,
       .help =
           "SIGTERM, SIGINT, SIGHUP and SIGQUIT end the job, SIGUSR1 and SIGUSR2 go to the ranks",
       .read = [](const Given& given, Draft&) { CheckSignals(given.name, given.text); },
       .torchrun = true,
       .pet = true},

      {.names = "--autotuning",
       .value = "tune|run",
       .group = Group::kRefused,
       .help = "DeepSpeed's autotuner",
       .refusal =
           "the autotuner is a Python program of DeepSpeed; run deepspeed --autotuning once, "
           "and give dslaunch the configuration that it finds",
       .deepspeed = true,
       .may_be_empty = true},
      {.names = "--logs_specs",
       .value = "NAME",
       .group = Group::kRefused,
       .help = "a Python class that says where logs go",
       .refusal = "it names a Python class; --log_dir, --redirects and --tee say where output goes",
       .torchrun = true},
  };
  return table;
}

}  // namespace

const OptionTable& LaunchOptionTable() {
  static const OptionTable table = MakeTable();
  return table;
}

const std::vector<Exclusion>& LaunchExclusions() {
  static const std::vector<Exclusion> exclusions = [] {
    static constexpr char kWhyNoSsh[] = "without SSH each node's command starts its own node";
    static constexpr char kWhyPerNode[] =
        "it is of a job whose nodes each run this command (add --no_ssh for that)";
    std::vector<Exclusion> all = {
        {"--include", "--exclude"},
        {"--num_gpus", "--nproc_per_node"},
        {"--module", "--no_python"},
        {"--module", "--run_path"},
        {"--bind_cores_to_rank", "--numa_binding"},
        {"--tee", "-t"},
        {"--log_dir", "--enable_each_rank_log"},
        {"--hostfile", "--standalone", "a job of this machine has no hostfile"},
        {"--hostfile", "--node_rank", kWhyPerNode, "--no_ssh"},
        {"--hostfile", "--rdzv_endpoint", kWhyPerNode, "--no_ssh"},
        {"--launcher", "--node_rank", kWhyPerNode},
        {"--launcher", "--rdzv_endpoint", kWhyPerNode},
        {"--no_ssh", "--standalone", "a job of this machine needs no SSH"},
    };
    for (const char* filter : {"--include", "--exclude"}) {
      for (const char* number :
           {"--num_nodes", "--nnodes", "--min_elastic_nodes", "--max_elastic_nodes",
            "--elastic_training", "--num_gpus", "--nproc_per_node", "--standalone"}) {
        all.push_back({filter, number, "a filter says which nodes and devices, and so how many"});
      }
    }
    for (const char* nodes : {"--num_nodes", "--min_elastic_nodes", "--max_elastic_nodes"}) {
      all.push_back({"--nnodes", nodes});
    }
    for (const char* ssh : {"--launcher", "--ssh_port", "--ssh_command", "--launcher_args",
                            "--force_multi", "--include", "--exclude", "--detach"}) {
      all.push_back({"--no_ssh", ssh, kWhyNoSsh});
    }
    return all;
  }();
  return exclusions;
}

}  // namespace dslaunch
