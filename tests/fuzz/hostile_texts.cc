#include "tests/fuzz/hostile_texts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/host/launcher_use.h"
#include "agent/samples/device_samples.h"
#include "base/os/build_id.h"
#include "base/os/exported_symbols.h"
#include "base/text/cpu_list.h"
#include "cli/hostfile/hostfile_sources.h"
#include "cli/launchers/start_all.h"
#include "cli/metrics/metrics_request.h"
#include "cli/options/checkpoint_command.h"
#include "cli/options/completion.h"
#include "cli/options/data_command.h"
#include "cli/options/doctor_command.h"
#include "cli/options/hostfile_command.h"
#include "cli/options/job_command.h"
#include "cli/options/launch_file.h"
#include "cli/options/option_layers.h"
#include "cli/options/options.h"
#include "cli/options/parsed_flags.h"
#include "cli/plan/accelerate_config.h"
#include "cli/plan/batch_nodes.h"
#include "cli/plan/env_file.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/recipe.h"
#include "cli/plan/slurm_allocation.h"
#include "cli/plan/slurm_node_list.h"
#include "cli/report/report_compare.h"
#include "cli/report/report_files.h"
#include "cli/report/report_page.h"
#include "cli/session/job_record.h"
#include "cli/transport/ssh/ssh_agent.h"
#include "cli/transport/ssh/ssh_config.h"
#include "cli/transport/ssh/ssh_config_rules.h"
#include "cli/transport/ssh/ssh_known_hosts.h"
#include "cli/tune/trial_output.h"
#include "cli/tune/tune_state.h"
#include "hostfiles/host_filter.h"
#include "hostfiles/hostfile.h"
#include "proto/contract/call_back_line.h"
#include "proto/contract/worker_env.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/requirement.h"
#include "tests/support/report_document.h"
#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

// Limit for planned nodes, because a million nodes would take too long.
constexpr int kMaxPlannedNodes = 100;

// Splits at zero bytes. The text after the last zero byte is the last piece.
std::vector<std::string> Words(std::string_view bytes) {
  std::vector<std::string> words;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\0'), bytes.size());
    words.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return words;
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool IsPort(int port) { return port >= 1 && port <= 65'535; }

void CheckHosts(const std::vector<Host>& hosts) {
  Require(!hosts.empty(), "a hostfile without hosts is accepted");
  std::set<std::string> names;
  for (const Host& host : hosts) {
    Require(names.insert(host.name).second, "a name is there twice");
    Require(!host.name.empty() && host.name == SanitizeForTerminal(host.name),
            "a name cannot be shown");
    Require(!host.host.empty() && host.host.front() != '-', "ssh would take a host for an option");
    Require(host.user.empty() || host.user.front() != '-', "ssh would take a user for an option");
    Require(host.port == 0 || IsPort(host.port), "a port is none");
    Require(host.slots >= 1 && host.slots <= kMaxSlots, "a node has no or too many slots");
    for (const auto& [name, value] : host.env) {
      Require(!name.empty() && (name + value).find('\0') == std::string::npos,
              "a variable is none");
    }
  }
}

bool AreHosts(const Result<std::vector<Host>>& hosts) {
  if (!IsTaken(hosts)) return false;
  CheckHosts(*hosts);
  return true;
}

int SlotsOf(const std::vector<Host>& hosts, const std::string& name) {
  const auto found = std::ranges::find(hosts, name, &Host::name);
  return found == hosts.end() ? 0 : found->slots;
}

void RequireRecipe(const std::string& json) {
  Require(json.size() <= kMaxRecipeJsonBytes && json.find('\n') == std::string::npos,
          "a recipe does not fit into a variable");
  Require(nlohmann::json::parse(json).is_object(), "a recipe is no object");
}

bool IsRecipe(const Result<LoadedRecipe>& recipe) {
  if (!IsTaken(recipe)) return false;
  RequireRecipe(recipe->json);
  IsTaken(CheckContent(*recipe, 2));
  return true;
}

PlanInfo SomeMachine() {
  PlanInfo info;
  info.local_gpus = info.installed_gpus = 2;
  info.cores = 8;
  info.own_names = {"node1"};
  info.user = "alice";
  return info;
}

const std::vector<Host>& SomeHosts() {
  static const std::vector<Host> hosts = *ParseHostfile(
      "node1 slots=4\nalice@node2:2222 slots=2\n[2001:db8::7]:22 slots=3\n"
      "bob@node2 slots=1\nnode3 slots=4 spare=true\n",
      "hosts");
  return hosts;
}

bool IsPlanned(const LaunchOptions& options) {
  const PlanInfo info = SomeMachine();
  if (std::max(options.num_nodes.value_or(0), options.max_nodes.value_or(0)) > kMaxPlannedNodes)
    return true;
  std::optional<std::vector<Host>> hosts;
  if (HostfileFor(options, info)) hosts = SomeHosts();
  const Result<LaunchPlan> plan = MakeLaunchPlan(options, hosts, info);
  if (!IsTaken(plan)) return false;
  int ranks = 0;
  for (const Host& node : plan->nodes) {
    Require(node.slots >= 1, "a node without slots is planned");
    if (!node.spare) ranks += node.slots;
  }
  Require(plan->world_size() == ranks && ranks >= 1, "the plan miscounts its ranks");
  Require(plan->min_nodes >= 1 && plan->min_nodes <= plan->max_nodes, "the plan wants no nodes");
  const std::string line = PlanLine(*plan, "cpu");
  Require(line == SanitizeForTerminal(line), "the plan could steer a terminal");
  return true;
}

bool IsCommandTaken(const LaunchOptions& options) {
  using Mode = LaunchOptions::Mode;
  constexpr int64_t kNowMs = 1'700'000'000'000;
  switch (options.mode) {
    case Mode::kJobCommand:
      return IsTaken(ParseJobCommand(options.program, kNowMs));
    case Mode::kCheckpointCommand:
      return IsTaken(ParseCheckpointCommand(options.program));
    case Mode::kDataCommand:
      return IsTaken(ParseDataCommand(options.program));
    case Mode::kHostfileCommand: {
      const Result<HostfileCommand> command = ParseHostfileCommand(options.program);
      if (!IsTaken(command)) return false;
      return command->hosts.empty() || IsTaken(HostsFromNames(command->hosts, "--hosts"));
    }
    case Mode::kDoctor: {
      const Result<DoctorCommand> command = ParseDoctorCommand(options.program);
      if (!IsTaken(command)) return false;
      return !command->help.empty() || IsPlanned(command->launch);
    }
    case Mode::kCompletion:
      return IsTaken(CompletionText(options.program));
    default:
      return options.per_node || IsPlanned(options);
  }
}

const NodeTarget& SomeTarget() {
  static const NodeTarget target = {"node1", "node1.example", 0, ""};
  return target;
}

void CheckHops(const std::vector<SshHop>& hops) {
  for (const SshHop& hop : hops) {
    Require(!hop.host.empty() && hop.host.front() != '-', "ssh would take a jump for an option");
    Require(hop.port == 0 || IsPort(hop.port), "a jump's port is none");
  }
}

}  // namespace

bool ReadsHostfile(const std::string& bytes) { return AreHosts(ParseHostfile(bytes, "hosts")); }

bool ReadsYamlHostfile(const std::string& bytes) {
  return AreHosts(ParseHostfile(bytes, "hosts.yaml"));
}

bool ReadsHostFilter(const std::string& bytes) {
  Input input(bytes);
  const bool include = input.Flag();
  const std::string filter(input.Rest());
  const auto chosen =
      FilterHosts(SomeHosts(), include ? FilterKind::kInclude : FilterKind::kExclude, filter, "h");
  if (!IsTaken(chosen)) return false;
  Require(!chosen->empty(), "a filter leaves nothing");
  const auto others =
      FilterHosts(SomeHosts(), include ? FilterKind::kExclude : FilterKind::kInclude, filter, "h");
  IsTaken(others);
  for (const Host& host : *chosen) {
    const int all = SlotsOf(SomeHosts(), host.name);
    Require(host.slots >= 1 && host.slots <= all, "a filter makes slots up");
    Require(host.devices.empty() || std::cmp_equal(host.devices.size(), host.slots),
            "slots and devices differ");
    Require(std::ranges::is_sorted(host.devices) &&
                std::ranges::adjacent_find(host.devices) == host.devices.end() &&
                (host.devices.empty() || (host.devices.front() >= 0 && host.devices.back() < all)),
            "a device is not one of the node");
    if (filter.empty() || !others.ok()) continue;
    Require(host.slots + SlotsOf(*others, host.name) == all,
            "a slot is neither included nor excluded");
  }
  return true;
}

bool ReadsNodeList(const std::string& bytes) {
  // ExpandNodeList limits the number of names, not their length, so the input is cut.
  constexpr size_t kMaxListBytes = 200;
  const auto names = ExpandNodeList(bytes.substr(0, kMaxListBytes));
  if (!IsTaken(names)) return false;
  Require(names->size() <= kMaxListedNodes, "a list stands for too many nodes");
  for (const std::string& name : *names)
    Require(name.find_first_of(",[]") == std::string::npos, "a name is not written out");
  return true;
}

bool ReadsSlurmJob(const std::string& bytes) {
  // Cut, because only the number of names is limited, not their length.
  constexpr size_t kMaxJobBytes = 400;
  SlurmAllocation allocation;
  allocation.nodes.resize(3);
  for (size_t i = 0; i < allocation.nodes.size(); ++i)
    allocation.nodes[i].name = "n" + std::to_string(i + 1);
  ReadGres(bytes.substr(0, kMaxJobBytes), allocation);
  bool any = false;
  for (const SlurmNode& node : allocation.nodes) {
    Require(node.gpus >= 0, "a node has less than no GPUs");
    Require(node.gres.find_first_of(" \n()[]$;'\"") == std::string::npos,
            "a resource is not a plain word");
    any |= !node.gres.empty();
  }
  return any;
}

bool ReadsBatchNodes(const std::string& bytes) {
  bool any = false;
  for (const auto& parse : {ParseSlotLines, ParseSlotCounts}) {
    const auto hosts = parse(bytes, "nodes");
    if (!IsTaken(hosts)) continue;
    any = true;
    for (const Host& host : *hosts)
      Require(host.slots >= 1 && host.slots <= kMaxSlots, "a node has no valid number of slots");
  }
  return any;
}

bool ReadsCallBackLine(const std::string& bytes) {
  const auto line = ReadCallBackLine(bytes, "5eed");
  if (!line) return false;
  Require(!line->place.empty() && line->place.find(' ') == std::string::npos, "a place is no word");
  const std::vector<NodeTarget> nodes(3, NodeTarget{"n1", "n1", 0, ""});
  for (const Launcher launcher :
       {Launcher::kOpenMpi, Launcher::kPdsh, Launcher::kPbs, Launcher::kSlurm})
    Require(NodeOfPlace(launcher, line->place, nodes).value_or(0) < 3, "a place is of no node");
  if (line->text.ends_with('\r')) return true;  // one carriage return is removed
  const std::string again = FormatCallBackLine(*line, "5eed");
  Require(ReadCallBackLine(again.substr(0, again.size() - 1), "5eed") == line,
          "what is read is not what is written");
  return true;
}

bool ReadsPdshFailure(const std::string& bytes) {
  const std::vector<NodeTarget> nodes(3, NodeTarget{"n1", "n1", 0, ""});
  const auto failure = kPdsh.read_failure(bytes, nodes);
  if (!failure) return false;
  Require(failure->index < 3, "a failure is of no node");
  return true;
}

bool ReadsHostNames(const std::string& bytes) {
  std::vector<std::string> names;
  for (const SshConfigName& found : ParseSshConfigNames(bytes)) {
    Require(found.name.find('\n') == std::string::npos, "a name has several lines");
    if (!found.is_include) names.push_back(found.name);
  }
  if (!names.empty()) IsTaken(HostsFromNames(names, "--ssh_config"));
  const auto hosts = HostsFromNames(Lines(bytes), "--hosts");
  if (!IsTaken(hosts)) return false;
  for (const Host& host : *hosts)
    Require(!host.host.empty() && host.name == SanitizeForTerminal(host.name),
            "a host cannot be shown");
  return true;
}

bool ReadsLaunchFile(const std::string& bytes) {
  const OptionTable& table = LaunchOptionTable();
  const Result<LaunchFile> file = ParseLaunchFile(bytes, "dslaunch.yaml", table);
  if (!IsTaken(file)) return false;
  ParsedFlags flags;
  if (!IsTaken(ReadLayers({file->launch}, LaunchExclusions(), flags))) return false;
  const Result<LaunchOptions> options = ResolveOptions(std::move(flags));
  if (!IsTaken(options)) return false;
  if (file->has_recipe && !IsRecipe(ReadRecipe(bytes, "/nowhere/dslaunch.yaml", {}, "/nowhere")))
    return false;
  return options->per_node || IsPlanned(*options);
}

bool ReadsRecipe(const std::string& bytes) {
  return IsRecipe(ReadRecipe(bytes, "/nowhere/recipe.yaml", {}, "/nowhere"));
}

bool ReadsEngineConfig(const std::string& bytes) {
  const MemoryFile file(bytes);
  TrainOptions options;
  options.deepspeed_config = file.path();
  return IsRecipe(ReadRecipe("model: {type: mlp}\n", "/nowhere/recipe.yaml", options, "/nowhere"));
}

bool ReadsRecipeChanges(const std::string& bytes) {
  TrainOptions options;
  options.sets = Lines(bytes);
  return IsRecipe(ReadRecipe("model: {type: mlp, params: {layers: [1, 2]}}\nrun: {steps: 3}\n",
                             "/nowhere/recipe.yaml", options, "/nowhere"));
}

bool ReadsEnvFile(const std::string& bytes) {
  const Result<EnvFile> file = ParseEnvFile(bytes, ".deepspeed_env");
  if (!IsTaken(file)) return false;
  for (const auto& [name, value] : file->variables) {
    Require(!name.empty() && name.find_first_of("= \t\n") == std::string::npos,
            "a variable has no name");
    Require(value.find('\0') == std::string::npos, "a variable ends too early");
  }
  for (const std::string& notice : file->notices)
    Require(notice == SanitizeForTerminal(notice), "a notice could steer a terminal");
  return true;
}

bool ReadsAccelerateConfig(const std::string& bytes) {
  const std::string module = HuggingFaceImport(bytes);
  Require(module.empty() || bytes.find(module) != std::string::npos, "a module is not in there");
  const Result<AccelerateConfig> config = ParseAccelerateConfig(bytes, "f.yaml");
  if (!IsTaken(config)) return false;
  Require(config->text == bytes, "the text has changed");
  Require(config->num_processes.value_or(1) > 0 && config->num_machines.value_or(1) > 0,
          "a number is not positive");
  return true;
}

bool ReadsCommandLine(const std::string& bytes) {
  std::vector<const char*> argv = {"dslaunch"};
  std::vector<const char*> environment;
  const std::vector<std::string> words = Words(bytes);
  for (const std::string& word : words)
    (word.starts_with("PET_") ? environment : argv).push_back(word.c_str());
  environment.push_back(nullptr);
  const Result<LaunchOptions> options =
      ParseOptions(static_cast<int>(argv.size()), argv.data(), {environment.data(), ""});
  if (!IsTaken(options)) return false;
  using Mode = LaunchOptions::Mode;
  if (options->mode == Mode::kHelp || options->mode == Mode::kVersion) {
    Require(options->text.empty() == (options->mode == Mode::kVersion),
            "there is no help, or the version has been written too early");
    return true;
  }
  Require(options->mode == Mode::kTrain || !options->program.empty(), "nothing is to be run");
  if (options->mode == Mode::kTrain && !options->train.sets.empty())
    IsTaken(ReadRecipe("{}", "/nowhere/recipe.yaml", options->train, "/nowhere"));
  return IsCommandTaken(*options);
}

bool ReadsDeviceLine(const std::string& bytes) {
  Input input(bytes);
  const auto query = static_cast<size_t>(input.Byte()) % kDeviceQueries;
  const auto device = ParseDeviceLine(input.Rest(), query);
  if (!device) return false;
  RequireOneLine(device->name());
  RequireOneLine(device->uuid());
  Require(std::isfinite(device->power_w()) && device->power_w() >= 0, "a power cannot be");
  return true;
}

bool ReadsCpuList(const std::string& bytes) {
  const Result<std::vector<int>> cpus = ParseCpuList(bytes);
  if (!cpus.ok()) {
    Require(cpus.error().code == ExitCode::kUsage, "a list is not refused as the user's");
    RequireOneLine(cpus.error().message);
    return false;
  }
  Require(!cpus->empty() && cpus->front() >= 0 && std::ranges::is_sorted(*cpus) &&
              std::ranges::adjacent_find(*cpus) == cpus->end(),
          "CPUs are not ascending");
  const Result<std::vector<int>> again = ParseCpuList(CpuListText(*cpus));
  Require(again.ok() && *again == *cpus, "a list changes when it is written");
  return true;
}

bool ReadsWorkerEnv(const std::string& bytes) {
  const std::vector<std::string> environment = Words(bytes);
  const auto read = [](const std::vector<std::string>& variables) {
    return WorkerEnv::FromEnviron([&](const char* name) { return FindIn(variables, name); });
  };
  const Result<WorkerEnv> env = read(environment);
  if (!IsTaken(env)) return false;
  Require(env->world_size >= 1 && env->rank >= 0 && env->rank < env->world_size,
          "a rank is none of the world");
  Require(env->local_world_size >= 1 && env->local_world_size <= env->world_size,
          "more ranks are on a node than in the world");
  if (env->master_port == 0) return true;  // the environment of a world of one rank
  std::vector<std::string> written;
  for (const auto& [name, value] : env->Required()) written.push_back(name + "=" + value);
  const Result<WorkerEnv> again = read(written);
  Require(again.ok() && again->rank == env->rank && again->world_size == env->world_size &&
              again->master_addr == env->master_addr && again->master_port == env->master_port &&
              again->attempt == env->attempt && again->status_fd == env->status_fd,
          "a place changes when it is handed on");
  return true;
}

bool ReadsJobRecord(const std::string& bytes) {
  static const TempDir jobs;
  std::filesystem::create_directory(jobs / "job");
  std::filesystem::remove(jobs / "job/job.json");
  jobs.Write("job/job.json", bytes);
  const Result<JobRecord> record = ReadJobRecord(jobs.path(), "job");
  if (!IsTaken(record)) return false;
  Require(record->NodeName(record->nodes.size()) == "?", "a node has a name that is not there");
  JobRecord other = *record;
  other.job_id = "again";
  Require(WriteJobRecord(jobs.path(), other).ok(), "a record cannot be written");
  const Result<JobRecord> again = ReadJobRecord(jobs.path(), "again");
  Require(again.ok() && again->launcher == record->launcher && again->pid == record->pid &&
              again->start_ticks == record->start_ticks && again->argv == record->argv &&
              again->nodes.size() == record->nodes.size() && again->exit_code == record->exit_code,
          "a record changes when it is written");
  return true;
}

// Returns whether all points and bars of a report's document are numbers. NaN and infinity are
// written as null.
bool HasOnlyNumbers(const nlohmann::json& value) {
  if (value.is_null()) return false;
  return !value.is_structured() || std::ranges::all_of(value, HasOnlyNumbers);
}

// The input consists of two ranks' metrics, the events, run.json, profile.json and preflight.json.
bool ReadsRankFiles(const std::string& bytes) {
  std::vector<std::string> files = Words(bytes);
  files.resize(6);
  ReportData data;
  data.job_id = "job";
  data.nodes = {"node1"};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    RankFiles& one = data.ranks.emplace_back();
    one.rank = rank;
    one.metrics = ReadMetrics(files[rank]);
  }
  data.events = ReadJobEvents(files[2]);
  data.ranks[0].run = ReadRunInfo(files[3]);
  data.ranks[1].profile = ReadRankProfile(files[4]);
  data.preflight = ReadPreflight(files[5]);
  for (const std::string& page : {ReportPage(data), ComparisonPage({data, ReportData()})}) {
    const nlohmann::json document = DocumentIn(page);
    Require(document.is_object(), "a text leaves the document of a page");
    Require(page.ends_with("</script></body></html>\n"), "a page ends early");
    Require(HasOnlyNumbers(document), "a plot has a point without a number");
  }
  return !data.ranks[0].metrics->points.empty() || !data.events.starts.empty() ||
         data.ranks[0].run || data.ranks[1].profile;
}

bool ReadsMetricsRequest(const std::string& bytes) {
  constexpr char kToken[] = "0123456789abcdef";
  const MetricsAnswer open = AnswerRequest(bytes, "");
  const MetricsAnswer closed = AnswerRequest(bytes, kToken);
  Require(closed.status == open.status || closed.status == 401, "a token changes the answer");
  Require(closed.status != 200 || bytes.find(kToken) != std::string::npos,
          "a request without the token is answered");
  Require(ResponseText(open, "").starts_with("HTTP/1.1 "), "a response has no status");
  return IsWholeRequest(bytes) && open.status == 200;
}

bool ReadsTuneFiles(const std::string& bytes) {
  JobRun run;
  run.out = bytes;
  const TrialResult trial = ReadTrial(run, 8);
  Require((trial.end == TrialEnd::kMeasured) == !trial.steps_s.empty(), "a trial without steps");
  Require(std::ranges::all_of(trial.steps_s, [](double s) { return s > 0 && std::isfinite(s); }),
          "a step time is not above 0");
  const PlanResult plan = ReadPlan(run);
  Require(plan.needs_bytes >= plan.passes_bytes && plan.passes_bytes >= 0, "a plan is below 0");
  const Result<std::vector<TuneRow>> rows = ReadState(bytes, "k", "file");
  if (rows.ok()) {
    const Result<std::vector<TuneRow>> again = ReadState(StateText({}, "k", *rows), "k", "file");
    Require(again.ok() && again->size() == rows->size(), "a state changes when it is written");
  }
  return trial.end == TrialEnd::kMeasured || plan.failure.empty() || rows.ok();
}

bool ReadsKnownHosts(const std::string& bytes) {
  // The key consists of zeros and has the length of a real key.
  static const std::string key = "AAAAC3NzaC1lZDI1NTE5AAAAI" + std::string(43, 'A');
  const int line = FindRevocation(bytes, KnownHostsNames("Node1.example", 22), key);
  Require(line >= 0 && line <= 1 + std::ranges::count(bytes, '\n'), "a line is not in the file");
  // The result for one name must not depend on the other name.
  const int alone = FindRevocation(bytes, {"node1.example"}, key);
  Require(alone == 0 || (line != 0 && line <= alone), "a revocation is missed");
  const std::string decoded = DecodeBase64(bytes.substr(0, bytes.find('\n')));
  Require(decoded.size() <= bytes.size(), "text becomes longer when it is decoded");
  return line != 0;
}

bool ReadsSshConfig(const std::string& bytes) {
  // The same text is read as a configuration file and as the output of ssh.
  const SshConfigRules rules({bytes});
  Require(rules.ClassOf("n1") == rules.ClassOf("n1"), "a host is in two classes");
  for (const std::string& file : FilesThatSshReads(bytes))
    Require(file.size() < bytes.size(), "a name is longer than what has it");
  if (const std::optional<std::string> dump = DumpFor("n2", bytes, "n1"))
    Require(dump->find("hostname n2\n") != std::string::npos, "a dump has another name");
  const Result<SshConfig> config = ParseSshConfig(bytes, SomeTarget(), {"alice", "/home/alice"});
  if (!IsTaken(config)) return false;
  Require(!config->host_name.empty() && !config->user.empty(), "nobody logs in anywhere");
  Require(IsPort(config->port), "a port is none");
  Require(!config->connect_timeout || config->connect_timeout->count() > 0, "nothing is awaited");
  CheckHops(config->proxy_jump);
  return true;
}

bool ReadsProxyJump(const std::string& bytes) {
  const Result<std::vector<SshHop>> hops = ParseProxyJump(bytes);
  if (!IsTaken(hops)) return false;
  CheckHops(*hops);
  return true;
}

bool ReadsSshAgentKeys(const std::string& bytes) {
  const std::vector<AgentKey> keys = ParseAgentKeys(bytes);
  size_t size = 0;
  for (const AgentKey& key : keys) size += key.blob.size() + key.comment.size();
  Require(size <= bytes.size(), "a key is longer than the answer");
  std::vector<std::string> listed;
  if (!keys.empty()) listed.push_back(keys.back().blob);
  const std::vector<AgentKey> all = ChooseAgentKeys(keys, listed, false);
  Require(all.size() == keys.size(), "a key is lost");
  Require(all.empty() || all.front().blob == listed.front(), "a listed key is not the first");
  return !keys.empty();
}

bool FindsLaunchers(const std::string& script) {
  const std::optional<ShellLauncher> found = FindLauncherInShell(script);
  if (!found) return false;
  const auto lines = static_cast<size_t>(std::ranges::count(script, '\n')) + 1;
  Require(found->line >= 1 && found->line <= lines, "there is no such line");
  Require(!found->name.empty() && found->name.size() <= script.size(),
          "the name is not of the text");
  return true;
}

bool ReadsElfFile(const std::string& bytes) {
  const MemoryFile file(bytes);
  if (const auto symbols = ExportedSymbols(file.path(), ""); IsTaken(symbols)) {
    for (const std::string& symbol : *symbols)
      Require(symbol.size() <= bytes.size(), "a symbol is longer than the file");
  }
  const std::string machine = ElfMachine(bytes);
  Require(machine.empty() || bytes.size() >= kElfMachineHead, "a machine type is made up");
  const Result<ElfIdentity> identity = ReadElfIdentity(file.path());
  if (!IsTaken(identity)) return false;
  Require(identity->build_id.size() <= 2 * bytes.size() &&
              identity->build_id.find_first_not_of("0123456789abcdef") == std::string::npos,
          "a build id is none");
  Require(identity->machine == machine, "two readers disagree about the machine type");
  return true;
}

}  // namespace dslaunch
