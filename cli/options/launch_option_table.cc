// Defines the options of a launch, which precede PROGRAM, `train` or `predict`.
#include <algorithm>
#include <csignal>
#include <utility>

#include "base/text/sanitize.h"
#include "cli/options/option_readers.h"
#include "cli/options/other_launchers.h"
#include "hostfiles/hostfile.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

using Group = OptionGroup;
constexpr double kDayS = 86'400;
constexpr char kAdmitsNodes[] = "decides who may take part";

constexpr Named<DeviceChoice> kDevices[] = {
    {"auto", DeviceChoice::kAuto}, {"cuda", DeviceChoice::kCuda}, {"rocm", DeviceChoice::kRocm},
    {"xpu", DeviceChoice::kXpu},   {"npu", DeviceChoice::kNpu},   {"hpu", DeviceChoice::kHpu},
    {"mlu", DeviceChoice::kMlu},   {"cpu", DeviceChoice::kCpu}};
constexpr Named<NumaBinding> kNumaBindings[] = {{"node", NumaBinding::kNode},
                                                {"socket", NumaBinding::kSocket},
                                                {"exclusive", NumaBinding::kExclusive},
                                                {"core-complex", NumaBinding::kCoreComplex}};
constexpr Named<const char*> kAutotuning[] = {{"tune", "tune"}, {"run", "run"}};
constexpr Named<LogLevel> kLogLevels[] = {{"debug", LogLevel::kDebug},
                                          {"info", LogLevel::kInfo},
                                          {"warning", LogLevel::kWarning},
                                          {"error", LogLevel::kError},
                                          {"critical", LogLevel::kError}};
constexpr Named<OnJoin> kOnJoin[] = {{"next", OnJoin::kNextRestart}, {"now", OnJoin::kNow}};
constexpr Named<OnHang> kOnHang[] = {
    {"report", OnHang::kReport}, {"kill", OnHang::kKill}, {"restart", OnHang::kRestart}};
constexpr Named<bool> kRdzvBackends[] = {{"static", false}, {"c10d", true}};
constexpr Named<bool> kStdinRanks[] = {{"none", false}, {"0", true}};
constexpr Named<int> kStopSignals[] = {
    {"auto", 0},          {"sigint", SIGINT},   {"sigterm", SIGTERM}, {"sighup", SIGHUP},
    {"sigquit", SIGQUIT}, {"sigusr1", SIGUSR1}, {"sigusr2", SIGUSR2}};
constexpr Named<MpiChoice> kMpiChoices[] = {{"auto", MpiChoice::kAuto},
                                            {"pmix", MpiChoice::kPmix},
                                            {"pmi", MpiChoice::kPmi},
                                            {"none", MpiChoice::kNone}};
constexpr Named<const char*> kStartMethods[] = {
    {"spawn", "spawn"}, {"fork", "fork"}, {"forkserver", "forkserver"}};

// Reads time limits such as "600" or "setup=1800,600". A single time applies to the setup too.
void HangLimits(const FlagValue& given, ParsedFlags& flags) {
  constexpr std::string_view kSetup = "setup=";
  constexpr int64_t kMaxS = 86'400;
  LaunchOptions& options = flags.options;
  std::optional<int64_t> setup_ms;
  for (const std::string& part : ReadList(given.text)) {
    if (part.starts_with(kSetup)) {
      setup_ms = ReadSecondsAsMs(given.name, part.substr(kSetup.size()), 0, kMaxS);
    } else {
      options.hang_ms = ReadSecondsAsMs(given.name, part, 0, kMaxS);
      options.standstill_ms = options.setup_hang_ms = options.hang_ms;
    }
  }
  if (setup_ms) options.setup_hang_ms = *setup_ms;
}

void RestartClasses(const FlagValue& given, ParsedFlags& flags) {
  flags.options.restart_on.clear();
  for (const std::string& part : ReadList(given.text)) {
    flags.options.restart_on.push_back(
        ReadChoice<RestartOn>(given.name, part,
                              {{"any", RestartOn::kAny},
                               {"transient", RestartOn::kTransient},
                               {"unknown", RestartOn::kUnknown},
                               {"permanent", RestartOn::kPermanent}}));
  }
}

void NprocPerNode(const FlagValue& given, ParsedFlags& flags) {
  if (given.text == "xpu") {
    throw ValidationError(given.name +
                          " xpu is not supported: dslaunch cannot detect XPUs; give "
                          "the number of processes");
  }
  if (!given.text.empty() && given.text[0] >= 'a' && given.text[0] <= 'z') {
    flags.options.slots_from = ReadChoice<SlotsFrom>(
        given.name, given.text,
        {{"auto", SlotsFrom::kAuto}, {"cpu", SlotsFrom::kCpu}, {"gpu", SlotsFrom::kGpu}});
  } else {
    flags.options.num_gpus = ReadWhole<int>(given.name, given.text, 1, kMaxSlots);
  }
}

std::vector<std::string> LauncherWords() {
  std::vector<std::string> words;
  for (const LauncherRow& row : LauncherTable()) {
    if (row.is_choice) words.emplace_back(row.name);
  }
  return words;
}

void ReadLauncher(const FlagValue& given, ParsedFlags& flags) {
  const std::string name = LowerCase(given.text);
  for (const char* other : {"mpich", "impi", "mvapich"}) {
    if (name != other) continue;
    throw ValidationError(
        given.name + " " + other +
        " is not supported: dslaunch reaches the nodes over SSH, by Slurm, by Open "
        "MPI (--launcher ssh, slurm, openmpi) or by another program "
        "(--exec_command); take one of them");
  }
  std::vector<std::pair<std::string, Launcher>> choices;
  for (const std::string& word : LauncherWords())
    choices.emplace_back(word, FindLauncher(word)->launcher);
  flags.options.launcher = ReadChoice(given.name, given.text, choices);
}

void ReadRdzvBackend(const FlagValue& given, ParsedFlags& flags) {
  if (given.text.starts_with("etcd")) {
    throw ValidationError(
        given.name + " " + Truncate(given.text) +
        " is not supported: one of the nodes hosts the rendezvous, no etcd is needed; "
        "leave it out or give c10d");
  }
  ReadChoiceInto<&ParsedFlags::rdzv_c10d, kRdzvBackends>(given, flags);
}

void ReadShownRanks(const FlagValue& given, ParsedFlags& flags) {
  flags.options.shown_ranks = ReadRankChoice(given.name, given.text);
  flags.ranks_shown_given = true;
}

// Reads names of streams, as torchrun's --tee does. Rejects a list of ranks with a hint that names
// --show.
void ReadTeeStreams(const FlagValue& given, ParsedFlags& flags) {
  const bool is_list =
      given.text.size() > 1 && given.text.find_first_not_of("0123456789,") == std::string::npos;
  if (given.text == "all" || given.text == "none" || is_list) {
    throw ValidationError(given.name + " " + Truncate(given.text) +
                          " is not supported: as torchrun's, it names streams of local ranks, "
                          "such as 3 or 0:3,1:1; choose the ranks that are shown with --show " +
                          Truncate(given.text));
  }
  flags.tee_streams = ReadStreams(given.name, given.text);
}

void ReadMonitorInterval(const FlagValue& given, ParsedFlags&) {
  (void)ReadNumber(given.name, given.text, 1e-6, kDayS);
}

// Reads a list of hosts such as "w0:2,w1:2" (horovodrun's -H); reads any other text as the path of
// a hostfile (deepspeed's -H).
void ReadHostfileOrHosts(const FlagValue& given, ParsedFlags& flags) {
  if (LooksLikeHosts(given.text)) {
    flags.options.hosts = ReadHosts(given.name, given.text);
  } else {
    ReadText<&LaunchOptions::hostfile>(given, flags);
  }
}

// Sets an environment variable of the ranks that dslaunch/horovod.h and Horovod read.
void SetVariable(ParsedFlags& flags, const char* name, const std::string& value) {
  flags.options.env.push_back(std::string(name) + "=" + value);
}

template <int64_t min, int64_t max, int64_t factor>
void SetWhole(const FlagValue& given, ParsedFlags& flags, const char* name) {
  SetVariable(flags, name,
              std::to_string(factor * ReadWhole<int64_t>(given.name, given.text, min, max)));
}

void ReadEventLogHandler(const FlagValue& given, ParsedFlags&) {
  if (given.text == "null") return;
  throw ValidationError(given.name + " " + Quoted(given.text) +
                        " is not supported: handlers are Python's; events.jsonl next to the logs "
                        "has every event; leave it out");
}

OptionTable MakeTable() {
  OptionTable table = {
      {.names = "-H,--hostfile",
       .also = "-hostfile,--machinefile,-machinefile",
       .value = "FILE",
       .group = Group::kWhere,
       .help = "lines 'NAME slots=N'; default /job/hostfile, else this machine",
       .target = {ReadHostfileOrHosts, ValueKind::kFile},
       .deepspeed = true,
       .horovod = true,
       .common = true},
      {.names = "--hosts",
       .also = "-host,-hosts",
       .value = "NAME:SLOTS,...",
       .group = Group::kWhere,
       .help = "these nodes in place of a hostfile's, as w0:2,u@w1:4; -H takes them too",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             flags.options.hosts = ReadHosts(given.name, given.text);
           },
       .horovod = true},
      {.names = "-np,--num_proc",
       .value = "N",
       .group = Group::kWhere,
       .help = "ranks of all nodes together, as mpirun and horovodrun count",
       .target = kWhole<&LaunchOptions::num_ranks, 1, 1'000'000>,
       .horovod = true,
       .common = true},
      {.names = "--min_np,--min_num_proc",
       .value = "N",
       .group = Group::kWhere,
       .help = "the fewest ranks; then -np is how many the job begins with, at least",
       .target = kWhole<&LaunchOptions::min_ranks, 1, 1'000'000>,
       .horovod = true},
      {.names = "--max_np,--max_num_proc",
       .value = "N",
       .group = Group::kWhere,
       .help = "the most ranks; the job grows and shrinks by whole nodes of equal size",
       .target = kWhole<&LaunchOptions::max_ranks, 1, 1'000'000>,
       .horovod = true},
      {.names = "-i,--include",
       .value = "NODES",
       .group = Group::kWhere,
       .help = "only these nodes or devices of the hostfile, as w0@w1:0,2",
       .target = kText<&LaunchOptions::include>,
       .deepspeed = true,
       .common = true,
       .may_be_empty = true},
      {.names = "-e,--exclude",
       .value = "NODES",
       .group = Group::kWhere,
       .help = "nodes or devices to leave out, in the form of --include",
       .target = kText<&LaunchOptions::exclude>,
       .deepspeed = true,
       .common = true,
       .may_be_empty = true},
      {.names = "-N,--num_nodes",
       .also = "--num_machines",
       .value = "N",
       .group = Group::kWhere,
       .help = "use the first N nodes of the hostfile",
       .target = kWhole<&ParsedFlags::num_nodes, 1, kMaxNodes>,
       .deepspeed = true,
       .accelerate = true,
       .common = true},
      {.names = "--nnodes",
       .value = "N|MIN:MAX",
       .group = Group::kWhere,
       .help = "same as --num_nodes; with MIN:MAX the job survives lost nodes",
       .target = [](const FlagValue& given,
                    ParsedFlags& flags) { flags.nnodes = ReadNodes(given.name, given.text); },
       .torchrun = true,
       .pet = true,
       .common = true},
      {.names = "--min_elastic_nodes",
       .value = "N",
       .group = Group::kTranslated,
       .help = "the fewest nodes, as MIN of --nnodes MIN:MAX",
       .target = kWhole<&ParsedFlags::min_elastic, 1, kMaxNodes>,
       .deepspeed = true},
      {.names = "--max_elastic_nodes",
       .value = "N",
       .group = Group::kTranslated,
       .help = "the most nodes, as MAX of --nnodes MIN:MAX",
       .target = kWhole<&ParsedFlags::max_elastic, 1, kMaxNodes>,
       .deepspeed = true},
      {.names = "--elastic_training",
       .group = Group::kTranslated,
       .help = "allow 1 node to all nodes, where no range is given",
       .target = kFlag<&ParsedFlags::elastic_training>,
       .deepspeed = true},
      {.names = "-n,--num_gpus,--num_accelerators",
       .value = "N",
       .group = Group::kWhere,
       .help = "ranks on each node, not of all nodes; default: all its slots",
       .target = kWhole<&LaunchOptions::num_gpus, 1, kMaxSlots>,
       .deepspeed = true,
       .common = true},
      {.names = "--slots_per_host",
       .also = "--npernode,-npernode,-ppn",
       .value = "N",
       .group = Group::kTranslated,
       .help = "same as --num_gpus, as horovodrun's and mpirun's",
       .target = kWhole<&LaunchOptions::num_gpus, 1, kMaxSlots>,
       .horovod = true},
      {.names = "--nproc_per_node",
       .value = "N|auto|cpu|gpu",
       .group = Group::kWhere,
       .help = "same as --num_gpus; or count the GPUs or CPUs of each node",
       .target = NprocPerNode,
       .torchrun = true,
       .pet = true},
      {.names = "--launcher",
       .group = Group::kWhere,
       .help = "default: ssh with a hostfile, slurm in an allocation",
       .target = {ReadLauncher, ValueKind::kChoice, &LauncherWords},
       .deepspeed = true,
       .common = true},
      {.names = "--device",
       .value = "KIND",
       .group = Group::kWhere,
       .help = "cuda, rocm, xpu, npu, hpu, mlu, cpu",
       .target = kChoice<&LaunchOptions::device, kDevices>,
       .default_value = "auto",
       .common = true},
      {.names = "--master_addr",
       .also = "--main_process_ip",
       .value = "HOST",
       .group = Group::kWhere,
       .help = "MASTER_ADDR of the ranks; default: rank 0's node, as the others reach it",
       .target = kText<&LaunchOptions::master_addr>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .may_be_empty = true},
      {.names = "--master_port",
       .also = "--main_process_port",
       .value = "PORT",
       .group = Group::kWhere,
       .help = "MASTER_PORT of the ranks; default: any free port",
       .target = kWhole<&LaunchOptions::master_port, 0, 65'535>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .accelerate = true},
      {.names = "--master_listen_fd",
       .group = Group::kWhere,
       .help =
           "rank 0 gets a socket that listens at MASTER_PORT, as descriptor DSLAUNCH_STORE_FD (of "
           "TCPStore: master_listen_fd); no other user can listen there",
       .target = kFlag<&LaunchOptions::master_listen_fd>},
      {.names = "--network_interface,--network_interfaces",
       .value = "NAME",
       .group = Group::kWhere,
       .help =
           "interface of every node for all traffic between nodes; default: by the routing table",
       .target = kText<&LaunchOptions::network_interface>,
       .horovod = true},
      {.names = "--rdzv_port",
       .value = "PORT",
       .group = Group::kWhere,
       .help = "port of the rendezvous on the first node; default: any free port",
       .target = kWhole<&LaunchOptions::rdzv_port, 0, 65'535>},
      {.names = "--dry_run",
       .group = Group::kWhere,
       .help = "print all that would be done, and do nothing; also with --json",
       .target = kFlag<&LaunchOptions::dry_run>,
       .common = true},
      {.names = "--run_file",
       .value = "FILE",
       .group = Group::kWhere,
       .help = "YAML with these options and a recipe; default ./dslaunch.yaml",
       .target = kFile<&ParsedFlags::launch_file>,
       .common = true,
       .line_only = true},

      {.names = "-m,--module",
       .group = Group::kProgram,
       .help = "PROGRAM is a Python module",
       .target = kFlag<&ParsedFlags::module>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .common = true},
      {.names = "--no_python",
       .group = Group::kProgram,
       .help = "start PROGRAM directly even if its name ends in .py",
       .target = kFlag<&ParsedFlags::no_python>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .accelerate = true},
      {.names = "--run_path",
       .group = Group::kProgram,
       .help = "run the script with Python's runpy",
       .target = kFlag<&ParsedFlags::run_path>,
       .torchrun = true,
       .pet = true},
      {.names = "-x,--env",
       .value = "NAME[=VALUE]",
       .group = Group::kProgram,
       .help = "variable of the ranks; NAME alone takes this shell's value",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             flags.options.env.push_back(ReadVariable(given.name, given.text));
           },
       .common = true,
       .repeatable = true},
      {.names = "--chdir",
       .also = "--wdir,-wdir,-wd",
       .value = "DIR",
       .group = Group::kProgram,
       .help = "folder on the nodes in which PROGRAM runs; default: the current one",
       .target = kFolder<&LaunchOptions::chdir>},
      {.names = "--copy",
       .value = "FILE",
       .group = Group::kProgram,
       .help = "copy FILE to nodes that lack it; ranks run beside it",
       .target = {&ReadTextInto<&LaunchOptions::copy_files>, ValueKind::kFile},
       .common = true,
       .repeatable = true},
      {.names = "--copy_dir",
       .value = "DIR",
       .group = Group::kProgram,
       .help = "the same for a folder and all that is in it",
       .target = {&ReadTextInto<&LaunchOptions::copy_folders>, ValueKind::kFolder},
       .repeatable = true},
      {.names = "--venv_script",
       .value = "FILE",
       .group = Group::kProgram,
       .help = "script that each node sources before PROGRAM",
       .target = kFile<&LaunchOptions::venv_script>,
       .deepspeed = true,
       .common = true,
       .needs_trust = kRunsCode},
      {.names = "--accelerate_config",
       .value = "FILE|default",
       .group = Group::kProgram,
       .help = "ranks get the environment of accelerate's FILE, or of its default_config.yaml",
       .target = kFile<&LaunchOptions::accelerate_config>},
      {.names = "--no_local_rank",
       .group = Group::kProgram,
       .help = "do not pass --local_rank=N to the script",
       .target = kFlag<&LaunchOptions::no_local_rank>,
       .deepspeed = true},
      {.names = "--virtual_local_rank",
       .group = Group::kProgram,
       .help = "each rank sees only its own device, and LOCAL_RANK is 0",
       .target = kFlag<&LaunchOptions::virtual_local_rank>,
       .torchrun = true,
       .pet = true},
      {.names = "--mpi",
       .group = Group::kProgram,
       .help =
           "how ranks that use MPI are joined into one MPI_COMM_WORLD; pmix: by a PMI and PMIx "
           "server on each node, as Open MPI needs it; pmi: by PMI alone, which is enough for "
           "MPICH and needs nothing on the nodes; none: each is alone; auto: as pmix, or as pmi "
           "where a node has no OpenPMIx; a single rank is alone",
       .target = kChoice<&LaunchOptions::mpi, kMpiChoices>,
       .default_value = "auto",
       .horovod = true},
      {.names = "--mpi_env",
       .group = Group::kProgram,
       .help = "give ranks OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK and _LOCAL_SIZE too",
       .target = kFlag<&LaunchOptions::mpi_env>},
      {.names = "--role",
       .value = "NAME",
       .group = Group::kProgram,
       .help = "ROLE_NAME of the ranks",
       .target = kText<&LaunchOptions::role>,
       .default_value = "default",
       .torchrun = true,
       .pet = true,
       .accelerate = true},
      {.names = "--bind_cores_to_rank",
       .group = Group::kProgram,
       .help = "divide the node's cores among its ranks",
       .target = kFlag<&LaunchOptions::bind_cores_to_rank>,
       .deepspeed = true},
      {.names = "--bind_core_list",
       .value = "LIST",
       .group = Group::kProgram,
       .help = "with --bind_cores_to_rank: only these cores, as 0,4-7",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             flags.options.bind_core_list = ReadCoreList(given.name, given.text);
           },
       .deepspeed = true},
      {.names = "--timeline_filename",
       .value = "FILE",
       .group = Group::kTranslated,
       .help = "HOROVOD_TIMELINE of the ranks: a trace of what happens to each tensor",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    SetVariable(flags, "HOROVOD_TIMELINE", given.text);
                  },
                  ValueKind::kFile},
       .horovod = true},
      {.names = "--fusion_threshold_mb",
       .value = "N",
       .group = Group::kTranslated,
       .help = "HOROVOD_FUSION_THRESHOLD of the ranks, in MiB; 0: tensors are not fused",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    SetWhole<0, 1 << 20, 1 << 20>(given, flags, "HOROVOD_FUSION_THRESHOLD");
                  },
                  ValueKind::kNumber},
       .horovod = true},
      {.names = "--cycle_time_ms",
       .value = "MS",
       .group = Group::kTranslated,
       .help = "HOROVOD_CYCLE_TIME of the ranks",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    (void)ReadNumber(given.name, given.text, 1e-3, 60'000);
                    SetVariable(flags, "HOROVOD_CYCLE_TIME", given.text);
                  },
                  ValueKind::kNumber},
       .horovod = true},
      {.names = "--cache_capacity",
       .value = "N",
       .group = Group::kTranslated,
       .help = "HOROVOD_CACHE_CAPACITY of the ranks, in tensors",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    SetWhole<0, 1 << 20, 1>(given, flags, "HOROVOD_CACHE_CAPACITY");
                  },
                  ValueKind::kNumber},
       .horovod = true},
      {.names = "--no_stall_check",
       .group = Group::kTranslated,
       .help = "HOROVOD_STALL_CHECK_DISABLE of the ranks",
       .target = {[](const FlagValue&, ParsedFlags& flags) {
                    SetVariable(flags, "HOROVOD_STALL_CHECK_DISABLE", "1");
                  },
                  ValueKind::kFlag},
       .horovod = true},
      {.names = "--stall_check_warning_time_seconds",
       .value = "S",
       .group = Group::kTranslated,
       .help = "HOROVOD_STALL_CHECK_TIME_SECONDS of the ranks",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    SetWhole<0, 86'400, 1>(given, flags, "HOROVOD_STALL_CHECK_TIME_SECONDS");
                  },
                  ValueKind::kSeconds},
       .horovod = true},
      {.names = "--stall_check_shutdown_time_seconds",
       .value = "S",
       .group = Group::kTranslated,
       .help = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS of the ranks",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    SetWhole<0, 86'400, 1>(given, flags, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
                  },
                  ValueKind::kSeconds},
       .horovod = true},
      {.names = "--numa_binding",
       .group = Group::kProgram,
       .help = "bind each rank to CPUs near its GPU",
       .target = kChoice<&LaunchOptions::numa_binding, kNumaBindings>,
       .torchrun = true},

      {.names = "--show",
       .value = "all|none|0,3",
       .group = Group::kOutput,
       .help = "ranks whose output is shown; files have that of all",
       .target = ReadShownRanks,
       .default_value = "0",
       .common = true},
      {.names = "-t,--tee",
       .value = "STREAMS",
       .group = Group::kOutput,
       .help = "streams to show too: 1 stdout, 2 stderr, 3 both of all ranks; or 0:3,1:1 of local "
               "ranks, as torchrun's",
       .target = ReadTeeStreams,
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .common = true},
      {.names = "-r,--redirects",
       .value = "STREAMS",
       .group = Group::kOutput,
       .help = "streams that go to log files only, as in torchrun; values as for --tee",
       .target = [](const FlagValue& given,
                    ParsedFlags& flags) { flags.redirects = ReadStreams(given.name, given.text); },
       .torchrun = true,
       .pet = true},
      {.names = "--local_ranks_filter",
       .value = "0,1",
       .group = Group::kOutput,
       .help = "show only these local ranks of each node",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             flags.options.local_ranks_shown = ReadRanks(given.name, given.text);
           },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "--duplicate_stdout_filters",
       .value = "TEXTS",
       .group = Group::kOutput,
       .help = "copy shown lines of stdout that contain one of these texts (separated by commas) "
               "to filtered_stdout.log",
       .target = [](const FlagValue& given,
                    ParsedFlags& flags) { flags.options.stdout_filters = ReadFilters(given.text); },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "--duplicate_stderr_filters",
       .value = "TEXTS",
       .group = Group::kOutput,
       .help = "the same for stderr, to filtered_stderr.log",
       .target = [](const FlagValue& given,
                    ParsedFlags& flags) { flags.options.stderr_filters = ReadFilters(given.text); },
       .torchrun = true,
       .pet = true,
       .may_be_empty = true},
      {.names = "-q,--quiet",
       .group = Group::kOutput,
       .help = "dslaunch itself prints only what went wrong",
       .target = kFlag<&ParsedFlags::quiet>,
       .deepspeed = true,
       .accelerate = true,
       .common = true},
      {.names = "--log_level",
       .group = Group::kOutput,
       .help = "the least severe messages that dslaunch prints",
       .target = kChoice<&LaunchOptions::log_level, kLogLevels>,
       .default_value = "info",
       .deepspeed = true,
       .horovod = true},
      {.names = "--detach",
       .group = Group::kOutput,
       .help = "print the job's id once all ranks are started, and exit",
       .target = kFlag<&LaunchOptions::detach>,
       .common = true},
      {.names = "--json",
       .group = Group::kOutput,
       .help = "print the result as one JSON object on stdout's last line",
       .target = kFlag<&LaunchOptions::json>,
       .common = true},
      {.names = "--log_dir",
       .value = "DIR",
       .group = Group::kOutput,
       .help = "log folder on each node; default: the user's state folder",
       .target = kFolder<&LaunchOptions::log_dir>,
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .common = true},
      {.names = "--output_filename",
       .value = "DIR",
       .group = Group::kTranslated,
       .help = "same as --log_dir, as horovodrun's",
       .target = kFolder<&LaunchOptions::log_dir>,
       .horovod = true},
      {.names = "--stdin",
       .group = Group::kOutput,
       .help = "rank that reads stdin; default 0, on a terminal only if alone",
       .target = kChoice<&LaunchOptions::stdin_to_rank_0, kStdinRanks>,
       .common = true},
      {.names = "--pty",
       .group = Group::kOutput,
       .help =
           "give rank 0 a terminal for stdin, stdout and stderr, for programs that look for one",
       .target = kFlag<&LaunchOptions::pty>},
      {.names = "--enable_each_rank_log",
       .value = "DIR",
       .group = Group::kTranslated,
       .help = "same as --log_dir",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    if (given.text != "None") ReadText<&LaunchOptions::log_dir>(given, flags);
                  },
                  ValueKind::kFolder},
       .deepspeed = true},
      {.names = "--log_max_mb",
       .value = "N",
       .group = Group::kOutput,
       .help = "maximum size of each log file, 0 for none; the oldest part beyond it is dropped",
       .target = kWhole<&LaunchOptions::log_max_mb, 0, 1'000'000'000>,
       .default_value = "1024"},
      {.names = "--metrics_file",
       .value = "FILE",
       .group = Group::kOutput,
       .help = "write metrics every 10 s, for node_exporter's textfile collector (FILE.prom)",
       .target = kFile<&LaunchOptions::metrics_file>},
      {.names = "--metrics_socket",
       .value = "PATH",
       .group = Group::kOutput,
       .help = "serve metrics by HTTP at a Unix socket (/metrics)",
       .target = kFile<&LaunchOptions::metrics_socket>},
      {.names = "--metrics_port",
       .value = "PORT",
       .group = Group::kOutput,
       .help = "serve metrics by HTTP at 127.0.0.1:PORT; needs --metrics_token_file",
       .target = kWhole<&LaunchOptions::metrics_port, 1, 65'535>},
      {.names = "--metrics_token_file",
       .value = "FILE",
       .group = Group::kOutput,
       .help = "token that requests to --metrics_port give (Authorization: Bearer); only you may "
               "read the file",
       .target = kFile<&LaunchOptions::metrics_token_file>},
      {.names = "--save_pid",
       .group = Group::kTranslated,
       .help = "write the process ids to /tmp/PID.deepspeed, as deepspeed does",
       .target = kFlag<&LaunchOptions::save_pid>,
       .deepspeed = true},

      {.names = "--preflight,--bench",
       .group = Group::kFailure,
       .help = "measure nodes and network first; replace slow nodes by spares",
       .target = kFlag<&LaunchOptions::preflight>,
       .common = true},
      {.names = "--health_command",
       .value = "'PROGRAM ...'",
       .group = Group::kFailure,
       .help = "preflight in which each node also runs this program; a node where it does not end "
               "with 0 cannot be used. It is split at blanks; no shell runs",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             ReadCommand<&LaunchOptions::health_command>(given, flags);
             flags.options.preflight = true;
           },
       .needs_trust = kRunsCode},
      {.names = "--health_timeout",
       .value = "S",
       .group = Group::kFailure,
       .help = "seconds for the health command",
       .target = kSeconds<&LaunchOptions::health_timeout_ms, 100>,
       .default_value = "30"},
      {.names = "--gpu_free_timeout",
       .value = "S",
       .group = Group::kFailure,
       .help = "seconds that preflight waits for GPUs that other programs use",
       .target = kSeconds<&LaunchOptions::gpu_free_timeout_ms, 0>,
       .default_value = "60"},
      {.names = "--max_restarts",
       .value = "N",
       .group = Group::kFailure,
       .help = "restarts of the ranks; default 0; 3 with spares or a range",
       .target = kWhole<&LaunchOptions::max_restarts, 0, 1'000'000>,
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .common = true},
      {.names = "--reset_limit",
       .value = "N",
       .group = Group::kTranslated,
       .help = "same as --max_restarts, as horovodrun's",
       .target = kWhole<&LaunchOptions::max_restarts, 0, 1'000'000>,
       .horovod = true},
      {.names = "--restart_delay_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "delay before the first restart; doubles up to 30; none after a kill -9 or the like",
       .target = kSeconds<&LaunchOptions::restart_delay_ms, 0, kMaxRestartDelayMs / 1000>,
       .default_value = "1"},
      {.names = "--restart_on",
       .value = "CLASS[,CLASS]",
       .group = Group::kFailure,
       .help = "restart only after such failures: transient (network, lost node, hang, GPU fault), "
               "permanent (a missing module, a wrong shape, a full disk), unknown, or any; default "
               "any",
       .target = {&RestartClasses, ValueKind::kText}},
      {.names = "--memory_checkpoint",
       .value = "K",
       .group = Group::kFailure,
       .help = "provide memory for copies of each rank's state, which the program makes every K "
               "steps and continues from after a restart",
       .target = kWhole<&LaunchOptions::memory_checkpoint, 1, kMaxMemoryCheckpoint>},
      {.names = "--on_join",
       .group = Group::kFailure,
       .help = "when a node joins late or returns: give it ranks at the next restart, or restart "
               "the ranks at once",
       .target = kChoice<&LaunchOptions::on_join, kOnJoin>,
       .default_value = "next"},
      {.names = "--on_hang",
       .group = Group::kFailure,
       .help = "what to do when the ranks make no progress",
       .target = kChoice<&LaunchOptions::on_hang, kOnHang>,
       .default_value = "report",
       .common = true},
      {.names = "--hang_s",
       .value = "[setup=S,]S",
       .group = Group::kFailure,
       .help =
           "time without a step (and 5 times the usual), or without a sign of life of any rank, "
           "that is a hang; setup=S: before the ranks have exchanged bytes; 0: never; default "
           "60 for steps, setup=1800,600 for signs of life",
       .target = {&HangLimits, ValueKind::kText}},
      {.names = "--heartbeat_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "time between two heartbeats of a node",
       .target = kSeconds<&LaunchOptions::heartbeat_ms, 100>,
       .default_value = "1"},
      {.names = "--suspect_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "time without a heartbeat until a warning",
       .target = kSeconds<&LaunchOptions::suspect_ms, 100>,
       .default_value = "3"},
      {.names = "--dead_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "time without a heartbeat until a node is lost",
       .target = kSeconds<&LaunchOptions::dead_ms, 100>,
       .default_value = "6"},
      {.names = "--lease_s",
       .value = "S",
       .group = Group::kFailure,
       .help = "time without contact to this machine until the job ends",
       .target = kSeconds<&LaunchOptions::lease_ms, 1000>,
       .default_value = "60"},
      {.names = "--grace",
       .value = "S",
       .group = Group::kFailure,
       .help = "time from the first signal to the ranks to SIGKILL",
       .target = kSeconds<&LaunchOptions::grace_ms, 0>,
       .default_value = "10",
       .common = true},
      {.names = "--stop_signal",
       .group = Group::kFailure,
       .help = "first signal to the ranks when they are stopped; auto: SIGINT on Ctrl-C, else "
               "SIGTERM; SIGTERM follows 2 s before SIGKILL",
       .target = kChoice<&LaunchOptions::stop_signal, kStopSignals>,
       .default_value = "auto"},
      {.names = "--time_limit",
       .value = "S",
       .group = Group::kFailure,
       .help =
           "seconds after which the job is ended with code 75; the trainer saves first, as with "
           "'train --time_limit'",
       .target = kSeconds<&LaunchOptions::time_limit_ms, 1, 1'000'000'000>},

      {.names = "--ssh_port",
       .value = "PORT",
       .group = Group::kSsh,
       .help = "SSH port if the hostfile has none; default: ssh_config's or 22",
       .target = kWhole<&LaunchOptions::ssh_port, 1, 65'535>,
       .deepspeed = true,
       .horovod = true},
      {.names = "--ssh_command",
       .value = "'ssh ...'",
       .group = Group::kSsh,
       .help = "the system's ssh, for GSSAPI or hardware keys",
       .target = ReadCommand<&LaunchOptions::ssh_command>,
       .common = true,
       .needs_trust = kRunsCode},
      {.names = "--exec_command",
       .value = "'PROGRAM ... {node}'",
       .group = Group::kSsh,
       .help = "reach nodes by this program in place of SSH: it runs a command on {node}, or on "
               "the node with the number {index}, and connects its stdin and stdout, as 'kubectl "
               "exec -i {node} --' does",
       .target = ReadCommand<&LaunchOptions::exec_command>,
       .needs_trust = kRunsCode},
      {.names = "--agent_dir",
       .value = "DIR",
       .group = Group::kSsh,
       .help = "folder on the nodes for the agent, where their homes are mounted noexec or full; "
               "default: ~/.cache",
       .target = {[](const FlagValue& given, ParsedFlags& flags) {
                    if (!given.text.starts_with('/'))
                      throw ValidationError(given.name + " needs an absolute path");
                    flags.options.agent_dir = given.text;
                  },
                  ValueKind::kFolder},
       .needs_trust = kRunsCode},
      {.names = "--fanout",
       .value = "N",
       .group = Group::kSsh,
       .help =
           "nodes that one relay reaches: dslaunch logs in to a node of every N, which reaches "
           "the others by its own ssh, with Slurm by srun (two relays at least where the job may "
           "restart); 0: dslaunch reaches all itself, as it does by default up to 512 nodes",
       .target = kWhole<&LaunchOptions::fanout, 0, 10'000>},
      {.names = "--launcher_args",
       .value = "'...'",
       .group = Group::kSsh,
       .help = "options for the system's ssh, which implies its use; or for mpirun or pdsh",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             flags.launcher_args = ReadWords(given.name, given.text);
           },
       .deepspeed = true,
       .may_be_empty = true,
       .needs_trust = kRunsCode},
      {.names = "--slurm_args",
       .value = "'...'",
       .group = Group::kSsh,
       .help =
           "with --launcher slurm outside of an allocation: get one by salloc with these options",
       .target = ReadCommand<&LaunchOptions::slurm_args>,
       .needs_trust = kRunsCode},
      {.names = "--connect_timeout",
       .value = "S",
       .group = Group::kSsh,
       .help = "seconds to reach all nodes",
       .target = kSeconds<&LaunchOptions::connect_timeout_ms, 100>,
       .default_value = "20"},
      {.names = "--start_timeout",
       .value = "S",
       .group = Group::kTranslated,
       .help = "same as --connect_timeout, as horovodrun's",
       .target = kSeconds<&LaunchOptions::connect_timeout_ms, 100>,
       .horovod = true},
      {.names = "--force_multi",
       .group = Group::kSsh,
       .help = "use SSH even if the only node is this machine",
       .target = kFlag<&LaunchOptions::force_multi>,
       .deepspeed = true},

      {.names = "--no_ssh",
       .group = Group::kPerNode,
       .help = "this command is one node of the job",
       .target = kFlag<&ParsedFlags::no_ssh>,
       .deepspeed = true,
       .common = true},
      {.names = "--node_rank",
       .also = "--machine_rank",
       .value = "N",
       .group = Group::kPerNode,
       .help = "index of this node; default: in join order; 0 shows the job",
       .target = kWhole<&ParsedFlags::node_rank, 0, kMaxNodes - 1>,
       .deepspeed = true,
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .common = true},
      {.names = "--rdzv_endpoint",
       .value = "HOST[:PORT]",
       .group = Group::kPerNode,
       .help = "address of node 0; default --master_addr, port 29500",
       .target =
           [](const FlagValue& given, ParsedFlags& flags) {
             flags.rdzv_endpoint = ReadEndpoint(given.name, given.text);
           },
       .torchrun = true,
       .pet = true,
       .common = true,
       .may_be_empty = true},
      {.names = "--rdzv_id",
       .value = "ID",
       .group = Group::kPerNode,
       .help = "name of the job, which ranks get as TORCHELASTIC_RUN_ID; distinguishes jobs that "
               "use one endpoint",
       .target = kText<&ParsedFlags::rdzv_id>,
       .torchrun = true,
       .pet = true},
      {.names = "--rdzv_token_file",
       .value = "FILE",
       .group = Group::kPerNode,
       .help = "file with a secret of all nodes; only nodes with it may join, and connections use "
               "TLS; needed unless node 0 is at localhost",
       .target = kFile<&ParsedFlags::rdzv_token_file>,
       .needs_trust = kAdmitsNodes},
      {.names = "--insecure_rdzv",
       .group = Group::kPerNode,
       .help = "join without a token: anyone on the network may take part, and read the output",
       .target = kFlag<&ParsedFlags::insecure_rdzv>,
       .needs_trust = kAdmitsNodes},
      {.names = "--rdzv_backend",
       .group = Group::kPerNode,
       .help = "both values: node 0 hosts the rendezvous",
       .target = {ReadRdzvBackend, ValueKind::kChoice, WordsOf<kRdzvBackends>},
       .torchrun = true,
       .pet = true,
       .accelerate = true},
      {.names = "--rdzv_conf",
       .value = "KEY=VALUE,...",
       .group = Group::kPerNode,
       .help = "join_timeout, last_call_timeout, is_host, keep_alive_interval, "
               "keep_alive_max_attempt",
       .target = [](const FlagValue& given,
                    ParsedFlags& flags) { flags.rdzv_conf = ReadRdzvConf(given.name, given.text); },
       .torchrun = true,
       .pet = true,
       .accelerate = true,
       .may_be_empty = true},
      {.names = "--local_addr",
       .value = "HOST",
       .group = Group::kPerNode,
       .help = "address of this machine for the other nodes",
       .target = kText<&LaunchOptions::local_addr>,
       .torchrun = true,
       .pet = true},
      {.names = "--standalone",
       .group = Group::kPerNode,
       .help = "run the job on this machine only",
       .target = kFlag<&ParsedFlags::standalone>,
       .torchrun = true,
       .pet = true},

      {.names = "-h,--help",
       .group = Group::kOther,
       .help = "print this text; also after 'train' and other commands",
       .target = kIgnoredFlag,
       .common = true,
       .line_only = true},
      {.names = "--help_all",
       .group = Group::kOther,
       .help = "print every option of dslaunch",
       .target = kIgnoredFlag,
       .common = true,
       .line_only = true},
      {.names = "--help_launchers",
       .group = Group::kOther,
       .help = "print the options that only serve lines of other launchers",
       .target = kIgnoredFlag,
       .common = true,
       .line_only = true},
      {.names = "-V,--version",
       .group = Group::kOther,
       .help = "print the version",
       .target = kIgnoredFlag,
       .common = true,
       .line_only = true},

      {.names = "--no_ssh_check,--disable_cache",
       .group = Group::kAccepted,
       .help = "connecting is the check, and all nodes are reached in parallel",
       .target = kIgnoredFlag,
       .deepspeed = true,
       .horovod = true},
      {.names = "--gloo,--tcp",
       .group = Group::kAccepted,
       .help = "ranks on CPUs exchange tensors through shared memory and their agents' connections",
       .target = kIgnoredFlag,
       .horovod = true},
      {.names = "--monitor_interval",
       .value = "S",
       .group = Group::kAccepted,
       .help = "the end of a rank is noticed at once",
       .target = {ReadMonitorInterval, ValueKind::kSeconds},
       .torchrun = true,
       .pet = true,
       .accelerate = true},
      {.names = "--start_method",
       .group = Group::kAccepted,
       .help = "every program starts in a new process, with --run_path too",
       .target = kChoice<&ParsedFlags::start_method, kStartMethods>,
       .torchrun = true,
       .pet = true},
      {.names = "--event_log_handler",
       .value = "null",
       .group = Group::kAccepted,
       .help = "events.jsonl next to the logs has every event",
       .target = ReadEventLogHandler,
       .torchrun = true,
       .pet = true},
      {.names = "--signals_to_handle",
       .value = "NAMES",
       .group = Group::kAccepted,
       .help = "SIGTERM, SIGINT, SIGHUP and SIGXCPU end the job, SIGQUIT shows where its ranks "
               "are, SIGUSR1 and SIGUSR2 go to the ranks",
       .target = [](const FlagValue& given, ParsedFlags&) { CheckSignals(given.name, given.text); },
       .torchrun = true,
       .pet = true},

      {.names = "--autotuning",
       .group = Group::kTranslated,
       .help = "before 'train': dslaunch tune RECIPE; with run, train with what it finds",
       .target = kChoice<&ParsedFlags::autotuning, kAutotuning>,
       .deepspeed = true,
       .may_be_empty = true,
       .line_only = true},
      {.names = "--logs_specs",
       .value = "NAME",
       .group = Group::kRefused,
       .help = "a Python class that selects where logs go",
       .refusal = "it names a Python class; --log_dir, --redirects and --tee set where output goes",
       .torchrun = true},
      {.names = "--mpi_args",
       .value = "'...'",
       .group = Group::kRefused,
       .help = "options for mpirun",
       .refusal = "no mpirun is used; --bind_cores_to_rank and --numa_binding bind ranks to cores",
       .horovod = true},
      {.names = "--host_discovery_script",
       .value = "FILE",
       .group = Group::kRefused,
       .help = "a script that lists the nodes again and again",
       .refusal =
           "list all nodes in the hostfile, also those that may come later; --min_np and --max_np, "
           "or --nnodes MIN:MAX, start with those that are there",
       .horovod = true},
      {.names = "--elastic_timeout",
       .value = "S",
       .group = Group::kRefused,
       .help = "how long a restart waits for nodes",
       .refusal = "a restart waits 30 s for the nodes that it expects, and one that joins later "
                  "is accepted; leave it out",
       .horovod = true},
      {.names = "--autotune",
       .group = Group::kRefused,
       .help = "a search for Horovod's settings",
       .target = kRefusedFlag,
       .refusal = "set --fusion_threshold_mb and --cycle_time_ms; 'dslaunch bench comm' measures "
                  "messages of every size",
       .horovod = true},
      {.names = "--hierarchical_allreduce",
       .group = Group::kRefused,
       .help = "which algorithm reduces",
       .target = kRefusedFlag,
       .refusal = "the ranks' connections choose by themselves; leave it out",
       .horovod = true},
      {.names = "--config_file",
       .value = "FILE",
       .group = Group::kRefused,
       .help = "Horovod's or accelerate's settings in a file",
       .refusal = "--run_file takes a file with dslaunch's options, --accelerate_config one of "
                  "accelerate's",
       .horovod = true,
       .accelerate = true},
      {.names = "--check_build",
       .group = Group::kRefused,
       .help = "which libraries Horovod was built with",
       .target = kRefusedFlag,
       .refusal = "'dslaunch doctor' checks nodes and this machine",
       .horovod = true},
      {.names = "--ssh_identity_file",
       .value = "FILE",
       .group = Group::kRefused,
       .help = "the private key for SSH",
       .refusal = "name it in ~/.ssh/config (IdentityFile), or give --launcher_args '-i FILE'",
       .horovod = true},
  };
  for (const OptionSpec& spec : OtherLaunchersOptions()) table.push_back(spec);
  std::ranges::stable_sort(table, {}, &OptionSpec::group);
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
        "it is for a job without SSH, where each node runs this command (add --no_ssh for that)";
    std::vector<Exclusion> all = {
        {"--include", "--exclude"},
        {"--num_gpus", "--nproc_per_node"},
        {"--hostfile", "--hosts"},
        {"--num_gpus", "--slots_per_host"},
        {"--nproc_per_node", "--slots_per_host"},
        {"--log_dir", "--output_filename"},
        {"--connect_timeout", "--start_timeout"},
        {"--max_restarts", "--reset_limit"},
        {"--metrics_file", "--detach",
         "they are written while the command runs; dslaunch ps --openmetrics has those of a "
         "detached job"},
        {"--metrics_socket", "--detach",
         "they are served while the command runs; dslaunch ps --openmetrics has those of a "
         "detached job"},
        {"--metrics_port", "--detach",
         "they are served while the command runs; dslaunch ps --openmetrics has those of a "
         "detached job"},
        {"--accelerate_config", "--mixed_precision", "the file has the precision"},
        {"--num_proc", "--num_nodes", "its ranks fill the first nodes"},
        {"--num_proc", "--nnodes", "its ranks fill the first nodes"},
        {"--num_proc", "--nproc_per_node", "one counts the ranks of all nodes, one those of each"},
        {"--num_proc", "--no_ssh", "each node's command starts that node's ranks only"},
        {"--num_proc", "--node_rank", "each node's command starts that node's ranks only"},
        {"--num_proc", "--elastic_training", "a job that may lose nodes may lose ranks"},
        {"--num_proc", "--min_elastic_nodes", "a job that may lose nodes may lose ranks"},
        {"--num_proc", "--max_elastic_nodes", "a job that may lose nodes may lose ranks"},
        {"--hosts", "--standalone", "a job on this machine has no other nodes"},
        {"--hosts", "--no_ssh", "without SSH each node's command starts its own node"},
        {"--module", "--no_python"},
        {"--module", "--run_path"},
        {"--bind_cores_to_rank", "--numa_binding"},
        {"--log_dir", "--enable_each_rank_log"},
        {"--hostfile", "--standalone", "a job on this machine has no hostfile"},
        {"--hostfile", "--node_rank", kWhyPerNode, "--no_ssh"},
        {"--hostfile", "--rdzv_endpoint", kWhyPerNode, "--no_ssh"},
        {"--launcher", "--node_rank", kWhyPerNode},
        {"--launcher", "--rdzv_endpoint", kWhyPerNode},
        {"--no_ssh", "--standalone", "a job on this machine needs no SSH"},
        {"--rdzv_token_file", "--insecure_rdzv", "a token protects the nodes' connections"},
    };
    for (const char* other : {"--num_proc", "--num_gpus", "--nproc_per_node", "--slots_per_host",
                              "--include", "--exclude", "--min_np", "--max_np", "--standalone"}) {
      all.push_back({"--num_processes", other, "both set the number of ranks"});
    }
    for (const char* filter : {"--include", "--exclude"}) {
      for (const char* number :
           {"--num_nodes", "--nnodes", "--min_elastic_nodes", "--max_elastic_nodes",
            "--elastic_training", "--num_gpus", "--nproc_per_node", "--standalone"}) {
        all.push_back({filter, number, "a filter selects nodes and devices, and so their number"});
      }
    }
    for (const char* nodes : {"--num_nodes", "--min_elastic_nodes", "--max_elastic_nodes"}) {
      all.push_back({"--nnodes", nodes});
    }
    for (const char* ranks : {"--min_np", "--max_np"}) {
      for (const char* nodes : {"--num_nodes", "--nnodes", "--min_elastic_nodes",
                                "--max_elastic_nodes", "--elastic_training"}) {
        all.push_back({ranks, nodes, "one is a range of ranks, the other of nodes"});
      }
      for (const char* per_node : {"--no_ssh", "--node_rank", "--rdzv_endpoint"}) {
        all.push_back({ranks, per_node, "each node's command starts that node's ranks only"});
      }
      all.push_back({ranks, "--standalone", "a job on this machine has no other nodes"});
    }
    for (const char* ssh : {"--launcher", "--ssh_port", "--ssh_command", "--launcher_args",
                            "--slurm_args", "--force_multi", "--fanout"}) {
      all.push_back({"--exec_command", ssh, "it is the way to the nodes, in place of SSH"});
    }
    for (const char* ssh :
         {"--launcher", "--ssh_port", "--ssh_command", "--launcher_args", "--exec_command",
          "--slurm_args", "--agent_dir", "--force_multi", "--fanout", "--include", "--exclude",
          "--detach", "--preflight", "--health_command"}) {
      all.push_back({"--no_ssh", ssh, kWhyNoSsh});
    }
    return all;
  }();
  return exclusions;
}

}  // namespace dslaunch
