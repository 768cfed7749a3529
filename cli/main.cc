// Implements dslaunch: parses the command line, plans the job, runs it, and returns its exit code.
#include <absl/synchronization/mutex.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "base/os/process_tree.h"
#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "cli/bench/bench_nodes.h"
#include "cli/bench/preflight.h"
#include "cli/commands/doctor.h"
#include "cli/commands/dry_run.h"
#include "cli/commands/help_topics.h"
#include "cli/commands/job_commands.h"
#include "cli/commands/recipe_commands.h"
#include "cli/commands/transport_choice.h"
#include "cli/commands/version.h"
#include "cli/hostfile/hostfile_commands.h"
#include "cli/job_setup.h"
#include "cli/options/checkpoint_command.h"
#include "cli/options/completion.h"
#include "cli/options/data_command.h"
#include "cli/options/doctor_command.h"
#include "cli/options/hostfile_command.h"
#include "cli/options/job_command.h"
#include "cli/options/manifest_command.h"
#include "cli/options/options.h"
#include "cli/options/recipe_command.h"
#include "cli/output/print_text.h"
#include "cli/output/terminal.h"
#include "cli/per_node/per_node.h"
#include "cli/per_node/per_node_token.h"
#include "cli/plan/accelerate_config.h"
#include "cli/plan/job_policy.h"
#include "cli/plan/job_program.h"
#include "cli/plan/job_spec.h"
#include "cli/plan/kubernetes_manifest.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/plan_info.h"
#include "cli/plan/python_environment.h"
#include "cli/plan/recipe.h"
#include "cli/plan/recipe_catalog.h"
#include "cli/plan/safe_variables.h"
#include "cli/plan/secrets.h"
#include "cli/plan/slurm_step.h"
#include "cli/plan/user_stdin.h"
#include "cli/relay/relay_tree.h"
#include "cli/session/job_record.h"
#include "cli/session/open_files.h"
#include "cli/session/session.h"
#include "cli/transport/agent_binary.h"
#include "cli/transport/ssh/ssh_prompt.h"
#include "cli/transport/ssh/transport_ssh.h"
#include "cli/tune_main.h"

namespace dslaunch {
namespace {

// Returns a unique id for a new job. Ids sort by time.
std::string NewJobId() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::random_device random;
  char text[64];
  std::snprintf(text, sizeof text, "%04d%02d%02d-%02d%02d%02d-%06x", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                random() & 0xffffff);
  return text;
}

// Returns the value of an environment variable; "" if it is not set.
std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::unique_ptr<Transport>> TransportFor(const LaunchPlan& plan,
                                                const LaunchOptions& options, bool may_restart) {
  AgentRole role;
  if (options.detach) role.kind = AgentRole::Kind::kDetachable;
  const LauncherRow& launcher = RowOf(plan.launcher);
  role.in_step = launcher.in_step ||
                 (plan.launcher == Launcher::kLocal && std::getenv("SLURM_JOB_ID") != nullptr);
  DSL_TRY_ASSIGN(AgentBinary agent, FindAgentBinary());
  agent.node_folder = options.agent_dir;
  DSL_TRY_ASSIGN(SshOptions ssh, MakeSshOptions(options.ssh_command));
  if (options.fanout && !launcher.may_relay) {
    return Error{ExitCode::kUsage,
                 "--fanout: relays are for nodes that are reached over SSH or by Slurm; leave it "
                 "out"};
  }
  TransportChoice choice;
  choice.launcher = plan.launcher;
  choice.exec_command = plan.exec_command;
  choice.ssh = std::move(ssh);
  choice.nodes.assign(plan.nodes.begin(), plan.nodes.end());
  choice.ssh_command = options.ssh_command;
  // SSH streams are resumed only if some connections of the job survive, so SSH needs two groups
  // too.
  const bool has_two_groups = may_restart || plan.launcher == Launcher::kSsh;
  choice.fanout = RelayFanout(choice.nodes.size(), options.fanout, has_two_groups);
  choice.network_interface = options.network_interface;
  choice.slurm_shares = plan.slurm_shares;
  return MakeTransport(choice, agent, role);
}

JobRecord MakeRecord(const SessionOptions& session, const std::vector<std::string>& arguments) {
  JobRecord record;
  record.job_id = session.job.job_id();
  record.pid = getpid();
  if (const std::optional<ProcessInfo> self = ReadProcess(getpid()))
    record.start_ticks = self->id.start_ticks;
  record.launcher = session.plan.launcher;
  record.exec_command = session.plan.exec_command;
  record.nodes.assign(session.plan.nodes.begin(), session.plan.nodes.end());
  record.argv = MaskedArguments(arguments);
  record.cwd = session.job.ranks().program().cwd();
  record.log_dir = session.job.ranks().log_dir();
  record.started_unix_ms = UnixMs();
  return record;
}

// Returns the function that makes the measurements requested by the options.
std::function<Bench(const std::vector<BenchNode>&)> BenchFor(const LaunchOptions& options) {
  BenchRequest bench;
  bench.tests = MakeNodeTests(options, options.log_dir);
  if (CheckTrainer(BinaryFolder().string()).ok())
    bench.trainer = (BinaryFolder() / "dslaunch-train").string();
  return [bench](const std::vector<BenchNode>& nodes) { return BenchNodes(nodes, bench); };
}

// Measures the nodes of `plan`. Returns the plan without the nodes that were set aside.
Result<PreflightResult> Preflight(const LaunchOptions& options, LaunchPlan plan,
                                  const std::string& cwd, Terminal& terminal) {
  DoctorRequest request;
  request.plan = std::move(plan);
  request.cwd = cwd;
  request.connect_timeout = milliseconds(options.connect_timeout_ms);
  request.bench = BenchFor(options);
  DSL_TRY_ASSIGN(AgentBinary agent, FindAgentBinary());
  agent.node_folder = options.agent_dir;
  DSL_TRY_ASSIGN(request.ssh, MakeSshOptions(options.ssh_command));
  DSL_TRY_ASSIGN(request.device,
                 DeviceFor(options.mode == LaunchOptions::Mode::kTrain, options.device));
  return RunPreflight(request, agent, options.log_level, terminal);
}

Result<int> ShowDryRun(const LaunchOptions& options, const SessionOptions& session) {
  DryRunRequest request;
  request.session = session;
  request.info = ReadPlanInfo();
  request.environment = NodeEnvironment();
  if (options.mode == LaunchOptions::Mode::kTrain) {
    DSL_TRY_ASSIGN(const LoadedRecipe recipe,
                   FindRecipe(options, session.job.ranks().program().cwd()));
    request.recipe_source = recipe.source;
  }
  DSL_TRY_ASSIGN(const DryRun run, DryRun::Make(std::move(request)));
  DSL_TRY(PrintText(options.json ? run.ToJson() : run.ToText()));
  return ToInt(ExitCode::kOk);
}

void ShowNotices(const LaunchOptions& options, Terminal& terminal) {
  for (const std::string& notice : options.notices) {
    if (options.log_level >= LogLevel::kWarning) terminal.Err("dslaunch: " + notice);
  }
}

// Replaces this process by `argv`, whose first word is an absolute path. Returns only on failure,
// with errno.
int ReplaceProcess(std::vector<std::string> argv) {
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(pointers.front(), pointers.data());
  return errno;
}

// Returns whether a Slurm allocation must be created before the job.
bool WantsAllocation(const LaunchOptions& options) {
  return options.launcher == Launcher::kSlurm && !options.slurm_args.empty() && !options.dry_run &&
         std::getenv("SLURM_JOB_ID") == nullptr;
}

// Replaces this process by salloc, which runs this command in the allocation and returns its exit
// code. Returns only on failure.
Error RunInAllocation(const LaunchOptions& options, std::vector<std::string> arguments) {
  std::error_code ignored;
  arguments.front() = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  std::vector<std::string> command =
      SallocCommand(options.slurm_args, options.num_nodes, arguments);
  command.front() = FindProgram(command.front());
  if (command.front().empty()) {
    return Error{ExitCode::kUsage,
                 "--slurm_args: there is no salloc in PATH; run this where Slurm's commands are"};
  }
  const int failed = ReplaceProcess(command);
  return Error{ExitCode::kCannotExecute,
               "cannot start " + command.front() + ": " + std::strerror(failed)};
}

// A file that is deleted at the end of this object's scope; an empty path means no file.
struct OwnFile {
  std::string path;
  ~OwnFile() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

// Makes this process a node of the job if srun started this command on each node of a step, and no
// option determines where the job runs. The token is in a file in the state folder, which the nodes
// share.
Result<void> JoinSlurmStep(LaunchOptions& options, OwnFile& token) {
  if (!IsPlacedBySlurm(options)) return {};
  DSL_TRY_ASSIGN(const std::optional<SlurmStep> step,
                 ReadSlurmStep([](const char* name) { return std::getenv(name); }));
  if (!step) return {};
  DSL_TRY(PlaceInStep(*step, options));
  if (options.dry_run || std::getenv(kTokenFdVariable) != nullptr) return {};
  DSL_TRY_ASSIGN(std::string path, ShareToken(OwnJobsFolder(), "slurm-" + step->name + ".token"));
  if (step->node_id == 0) token.path = path;
  options.per_node->token_file = std::move(path);
  return {};
}

// Adds the files to copy to the nodes, and sets the folder in which PROGRAM runs there.
Result<void> AddCopies(const LaunchOptions& options, const std::string& cwd,
                       SessionOptions& session) {
  if (options.copy_files.empty() && options.copy_folders.empty()) return {};
  const std::string option = options.copy_files.empty() ? "--copy_dir" : "--copy";
  if (options.mode == LaunchOptions::Mode::kTrain || options.runs_trainer) {
    return Error{ExitCode::kUsage,
                 option +
                     ": only what a program needs is copied; dslaunch train finds its data and "
                     "checkpoints by paths that every node has"};
  }
  if (options.per_node) {
    return Error{ExitCode::kUsage,
                 option +
                     ": each node runs a command of its own, so nothing is copied to it; copy "
                     "the files before, or start all nodes from here over SSH (--hostfile)"};
  }
  DSL_TRY_ASSIGN(session.copy_list, ListCopies(options.copy_files, options.copy_folders, cwd));
  pb::Copies& copies = *session.job.mutable_copies();
  copies.set_key(session.copy_list->key);
  copies.set_run_there(options.chdir.empty());
  if (options.form != ProgramForm::kModule)
    copies.set_program(session.copy_list->PlaceOf(options.program.front(), cwd));
  return {};
}

// Plans the job and checks it as far as possible without its nodes. `per_node` is set if each node
// runs its own command.
Result<SessionOptions> MakeSession(const LaunchOptions& options, const std::string& cwd,
                                   const std::optional<PerNodeInfo>& per_node,
                                   std::optional<AccelerateConfig> accelerate,
                                   const std::vector<std::string>& arguments, Terminal& terminal) {
  SessionOptions session;
  if (options.preflight && !options.dry_run) {
    DSL_TRY_ASSIGN(LaunchPlan plan, MakePlan(options));
    DSL_TRY_ASSIGN(PreflightResult preflight, Preflight(options, std::move(plan), cwd, terminal));
    session.plan = std::move(preflight.plan);
    session.preflight = std::move(preflight.json);
  } else if (per_node) {
    DSL_TRY_ASSIGN(session.plan, DraftPerNodePlan(options, *per_node));
  } else {
    DSL_TRY_ASSIGN(session.plan, MakePlan(options));
  }
  const bool trains = options.mode == LaunchOptions::Mode::kTrain;
  session.tags = {.tag_template = FromEnvironment("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
                  .role = options.role,
                  .plain_stdout = trains && options.train.task == TrainOptions::Task::kPredict};
  JobSpecInfo info = {.job_id = NewJobId(),
                      .cwd = cwd,
                      .tag_template = session.tags.tag_template,
                      .pid = static_cast<uint32_t>(getpid())};
  for (const std::string& argument : MaskedArguments(arguments))
    info.description += (info.description.empty() ? "" : " ") + argument;
  DSL_TRY_ASSIGN(session.job, MakeJobSpec(options, session.plan, info));
  DSL_TRY_ASSIGN(
      *session.job.mutable_ranks()->mutable_program(),
      MakeProgram(options, session.plan, cwd, std::move(accelerate), arguments.front(), terminal));
  DSL_TRY(AddCopies(options, cwd, session));
  DSL_TRY_ASSIGN(const DeviceChoice device, DeviceFor(trains, options.device));
  session.job.set_device(DeviceOf(device));
  // The trainer's ranks exchange data through their agents, so they need no MPI.
  session.mpi = options.mpi == MpiChoice::kAuto && trains ? MpiChoice::kNone : options.mpi;
  const StdinPlan input = PlanStdin(options, options.per_node ? 0 : CertainRanks(session.plan),
                                    ReadUserStdin(STDIN_FILENO),
                                    {.is_output = terminal.err_is_terminal(),
                                     .columns = terminal.columns(),
                                     .rows = terminal.rows()});
  *session.job.mutable_rank_stdin() = input.rank_stdin;
  session.stdin_notice = input.notice;
  session.shown = {options.shown_ranks, options.local_ranks_shown, options.log_only};
  session.log_level = options.log_level;
  session.own_address = options.local_addr.value_or("");
  session.json = options.json;
  DSL_TRY_ASSIGN(session.metrics, MetricsFor(options));
  session.error_file = FromEnvironment("TORCHELASTIC_ERROR_FILE");
  session.connect_timeout = milliseconds(options.connect_timeout_ms);
  return session;
}

// Runs the job and keeps its record. `inbound` equals `transport` if each node runs its own
// command, and is null otherwise.
int RunSession(SessionOptions session, std::shared_ptr<Transport> transport,
               InboundTransport* inbound, const LaunchOptions& options,
               const std::vector<std::string>& arguments, Terminal& terminal) {
  const std::string jobs_folder = OwnJobsFolder();
  const std::string& log_dir = session.job.ranks().log_dir();
  session.job_folder = (log_dir.empty() ? jobs_folder : log_dir) + "/" + session.job.job_id();
  JobRecord record = MakeRecord(session, arguments);
  record.ssh_command = options.ssh_command;
  record.agent_dir = options.agent_dir;
  const Result<void> kept = WriteJobRecord(jobs_folder, record);
  if (!kept.ok() && options.log_level >= LogLevel::kWarning)
    terminal.Err("dslaunch: dslaunch ps will not list this job: " + kept.error().message);
  auto launch = std::make_unique<LaunchSession>(std::move(session), std::move(transport), terminal);
  if (inbound != nullptr) inbound->Serve(launch->Teller());
  record.exit_code = launch->Run();
  if (inbound != nullptr) inbound->Conclude(record.exit_code, launch->final_status());
  const bool detached = launch->detached();
  // The process ends now, and closing connections one by one would only cost time, so the session
  // is not destroyed.
  (void)launch.release();
  const std::string removed = RemoveOldRecords(jobs_folder);
  if (!removed.empty() && options.log_level >= LogLevel::kInfo)
    terminal.Err("dslaunch: " + removed);
  if (detached) return record.exit_code;
  record.ended_unix_ms = UnixMs();
  (void)WriteJobRecord(jobs_folder, record);  // a failure to write was reported at the start
  return record.exit_code;
}

Result<int> RunJob(LaunchOptions options, const std::vector<std::string>& arguments,
                   Terminal& terminal) {
  OwnFile token;
  DSL_TRY(JoinSlurmStep(options, token));
  TakeCompletionIndex([](const char* name) { return std::getenv(name); }, options);
  if (WantsAllocation(options)) return RunInAllocation(options, arguments);
  prctl(PR_SET_DUMPABLE, 0);  // protects the job's keys in this process's memory
  DSL_TRY_ASSIGN(const std::string cwd, WorkingDirectory());
  DSL_TRY_ASSIGN(std::optional<AccelerateConfig> accelerate,
                 TakeAccelerateConfig(CurrentEnvironment(), cwd, options));
  ShowNotices(options, terminal);
  std::optional<PerNodeInfo> per_node;
  if (options.per_node) {
    DSL_TRY_ASSIGN(per_node, ReadPerNodeInfo(options));
  }
  DSL_TRY_ASSIGN(SessionOptions session,
                 MakeSession(options, cwd, per_node, std::move(accelerate), arguments, terminal));
  if (options.dry_run) return ShowDryRun(options, session);
  DSL_TRY(CheckOpenFiles(session.plan.nodes.size(), ReadOpenFiles()));
  std::shared_ptr<Transport> transport;
  InboundTransport* inbound = nullptr;
  if (per_node) {
    std::unique_ptr<InboundTransport> others;
    DSL_TRY_ASSIGN(const std::optional<int> ended,
                   EnterPerNodeJob(options, *per_node, session, others, terminal));
    if (ended) return *ended;
    inbound = others.get();
    transport = std::move(others);
  } else {
    DSL_TRY_ASSIGN(transport,
                   TransportFor(session.plan, options, session.job.policy().max_restarts() > 0));
  }
  return RunSession(std::move(session), std::move(transport), inbound, options, arguments,
                    terminal);
}

Result<int> JobCommandMain(const std::vector<std::string>& words, Terminal& terminal) {
  DSL_TRY_ASSIGN(const JobCommand command,
                 ParseJobCommand(words, int64_t{std::time(nullptr)} * 1000));
  if (command.kind != JobCommand::Kind::kHelp) return RunJobCommand(command, terminal);
  terminal.Out(command.text);
  return ToInt(ExitCode::kOk);
}

Result<int> HostfileCommandMain(const std::vector<std::string>& words, Terminal& terminal) {
  DSL_TRY_ASSIGN(const HostfileCommand command, ParseHostfileCommand(words));
  return RunHostfileCommand(command, terminal);
}

// Runs `dslaunch doctor`. `called_as` is argv[0] of this process.
Result<int> DoctorCommandMain(const std::vector<std::string>& words, const ParseContext& context,
                              const std::string& called_as, Terminal& terminal) {
  DSL_TRY_ASSIGN(const DoctorCommand command, ParseDoctorCommand(words, context));
  if (!command.help.empty()) {
    terminal.Out(command.help);
    return ToInt(ExitCode::kOk);
  }
  ShowNotices(command.launch, terminal);
  DoctorRequest request;
  DSL_TRY_ASSIGN(request.plan, MakePlan(command.launch));
  DSL_TRY(CheckOpenFiles(request.plan.nodes.size(), ReadOpenFiles()));
  DSL_TRY_ASSIGN(request.cwd, WorkingDirectory());
  DSL_TRY_ASSIGN(AgentBinary agent, FindAgentBinary());
  agent.node_folder = command.launch.agent_dir;
  DSL_TRY_ASSIGN(request.ssh, MakeSshOptions(command.launch.ssh_command));
  DSL_TRY_ASSIGN(request.device, DeviceFor(command.trains, command.launch.device));
  request.trains = command.trains;
  if (command.has_program) {
    DSL_TRY_ASSIGN(std::optional<AccelerateConfig> accelerate,
                   ReadAccelerateConfig(command.launch, CurrentEnvironment(), request.cwd));
    DSL_TRY_ASSIGN(request.program, MakeProgram(command.launch, request.plan, request.cwd,
                                                std::move(accelerate), called_as, terminal));
  } else if (!command.trains) {
    request.python_folder =
        FindFrontPython(CurrentEnvironment(), OwnPythonFolder(called_as)).folder;
  }
  if (command.launch.preflight) request.bench = BenchFor(command.launch);
  request.json = command.launch.json;
  request.connect_timeout = milliseconds(command.launch.connect_timeout_ms);
  request.bin_dir = BinaryFolder().string();
  std::vector<std::string> hosts;
  for (const Host& node : request.plan.nodes) hosts.push_back(node.host);
  request.jobs = JobsRunningOn(hosts, agent);
  return RunDoctor(request, agent, terminal);
}

// Prints the help of a command of the trainer, or replaces this process by the trainer, which runs
// the command. `purpose` is what the command does, such as "reads checkpoints", for messages.
// Returns after a replacement only if that fails.
template <class Command>
Result<int> TrainerCommandMain(const std::string& name, const Result<Command>& parsed,
                               const std::string& purpose, Terminal& terminal) {
  DSL_TRY_ASSIGN(const Command command, parsed);
  if (!command.help.empty()) {
    terminal.Out(command.help);
    return ToInt(ExitCode::kOk);
  }
  DSL_TRY(CheckTrainer(BinaryFolder().string()));
  const std::string trainer = (BinaryFolder() / "dslaunch-train").string();
  std::vector<std::string> arguments = {trainer, name};
  arguments.insert(arguments.end(), command.words.begin(), command.words.end());
  const int failed = ReplaceProcess(std::move(arguments));
  return Error{failed == ENOENT ? ExitCode::kNotFound : ExitCode::kCannotExecute,
               "cannot start " + trainer + ", which " + purpose + ": " + std::strerror(failed)};
}

Result<int> ManifestCommandMain(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const ManifestCommand command, ParseManifestCommand(words));
  std::string text = command.help;
  if (text.empty()) {
    DSL_TRY_ASSIGN(text, KubernetesManifest(command.job));
  }
  DSL_TRY(PrintText(text));
  return ToInt(ExitCode::kOk);
}

Result<int> RecipeCommandMain(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const RecipeCommand command, ParseRecipeCommand(words));
  return RunRecipeCommand(command, RecipeFolders());
}

std::vector<Completion::Word> JobWords() {
  std::vector<Completion::Word> words;
  const Result<std::vector<JobRecord>> records = ListJobRecords(OwnJobsFolder());
  if (!records.ok()) return words;
  for (const JobRecord& record : *records) {
    std::string command;
    for (size_t i = 1; i < record.argv.size(); ++i)
      command += (command.empty() ? "" : " ") + record.argv[i];
    words.push_back({record.job_id, SanitizeForTerminal(command)});
  }
  std::ranges::reverse(words);
  return words;
}

CompletionSources Sources() {
  CompletionSources sources;
  sources.jobs = JobWords;
  sources.recipes = [] {
    std::vector<Completion::Word> words;
    for (const BuiltInRecipe& recipe : ListRecipes(RecipeFolders()))
      words.push_back({recipe.name, recipe.about});
    return words;
  };
  sources.recipe_keys = [] {
    std::vector<Completion::Word> words;
    for (const std::string& path : RecipeKeyPaths()) words.push_back({path, ""});
    return words;
  };
  return sources;
}

Result<int> CompletionMain(const std::vector<std::string>& words, Terminal& terminal) {
  DSL_TRY_ASSIGN(std::string text, CompletionText(words, Sources()));
  text.pop_back();  // drops the last newline
  terminal.Out(text);
  return ToInt(ExitCode::kOk);
}

Result<int> HelpTopicMain(const std::vector<std::string>& words) {
  constexpr size_t kMostColumns = 100;
  const size_t columns = Columns(STDOUT_FILENO);
  DSL_TRY_ASSIGN(
      const std::string text,
      HelpTopicText(words, columns > 0 ? std::min(columns, kMostColumns) : kMostColumns));
  DSL_TRY(PrintPaged(text));
  return ToInt(ExitCode::kOk);
}

int Main(int argc, char** argv) {
  OpenStandardFds();
  RaiseOpenFileLimit();
  Terminal terminal(STDOUT_FILENO, STDERR_FILENO, std::getenv("TERM"), std::getenv("NO_COLOR"));
  // On an error, the path is empty, so no files are searched in the folder.
  std::error_code no_folder;
  const ParseContext context = {environ, std::filesystem::current_path(no_folder).string(),
                                [](const std::string& name) { return !FindProgram(name).empty(); }};
  const Result<LaunchOptions> options = ParseOptions(argc, argv, context);
  Result<int> exit_code = ToInt(ExitCode::kOk);
  if (!options.ok()) {
    exit_code = options.error();
  } else if (options->mode == LaunchOptions::Mode::kHelp) {
    terminal.Out(options->text);
  } else if (options->mode == LaunchOptions::Mode::kVersion) {
    const VersionInfo info = ReadVersionInfo(BinaryFolder().string());
    terminal.Out(options->json ? VersionJson(info) : VersionText(info));
  } else if (options->mode == LaunchOptions::Mode::kTune) {
    ShowNotices(*options, terminal);
    exit_code = TuneMain(*options, terminal);
  } else if (options->mode == LaunchOptions::Mode::kJobCommand) {
    exit_code = JobCommandMain(options->program, terminal);
  } else if (options->mode == LaunchOptions::Mode::kHostfileCommand) {
    exit_code = HostfileCommandMain(options->program, terminal);
  } else if (options->mode == LaunchOptions::Mode::kManifestCommand) {
    exit_code = ManifestCommandMain(options->program);
  } else if (options->mode == LaunchOptions::Mode::kRecipeCommand) {
    exit_code = RecipeCommandMain(options->program);
  } else if (options->mode == LaunchOptions::Mode::kDoctor) {
    exit_code = DoctorCommandMain(options->program, context, argv[0], terminal);
  } else if (options->mode == LaunchOptions::Mode::kCheckpointCommand) {
    exit_code = TrainerCommandMain("checkpoint", ParseCheckpointCommand(options->program),
                                   "reads checkpoints", terminal);
  } else if (options->mode == LaunchOptions::Mode::kDataCommand) {
    exit_code =
        TrainerCommandMain("data", ParseDataCommand(options->program), "tokenizes text", terminal);
  } else if (options->mode == LaunchOptions::Mode::kCompletion) {
    exit_code = CompletionMain(options->program, terminal);
  } else if (options->mode == LaunchOptions::Mode::kHelpTopic) {
    exit_code = HelpTopicMain(options->program);
  } else {
    exit_code = RunJob(*options, {argv, argv + argc}, terminal);
  }
  if (exit_code.ok()) terminal.Drain(Deadline::After(kDrainTimeout));
  if (exit_code.ok() && *exit_code == 0) {
    if (const Result<void> written = terminal.OutResult(); !written.ok())
      exit_code = written.error();
  }
  if (!exit_code.ok()) terminal.Err("dslaunch: " + exit_code.error().message);
  terminal.Drain(Deadline::After(kDrainTimeout));
  return exit_code.ok() ? *exit_code : ToInt(exit_code.error().code);
}

}  // namespace
}  // namespace dslaunch

// Ends by _exit, because orderly destruction would cost time and the kernel frees all resources
// anyway.
int main(int argc, char** argv) {
  // Use a single heap for all threads. Otherwise login threads would get separate heaps, of which
  // each running node keeps parts in use: 30 KB per node.
  mallopt(M_ARENA_MAX, 1);
  // Debian's abseil keeps a graph of the order in which gRPC's locks are acquired, which takes 8 KB
  // per node, so the graph is turned off.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const int exit_code = dslaunch::Main(argc, argv);
  dslaunch::RestoreTerminal();
  _exit(exit_code);
}
