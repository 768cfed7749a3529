#include "cli/commands/dry_run.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/accelerators/node_accelerators.h"
#include "agent/accelerators/visible_devices.h"
#include "agent/host/program.h"
#include "agent/node/worker_specs.h"
#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "base/text/text_table.h"
#include "cli/commands/planned_training.h"
#include "cli/plan/device_decision.h"
#include "cli/plan/job_program.h"
#include "cli/plan/job_spec.h"
#include "cli/plan/secrets.h"
#include "cli/session/job_record.h"
#include "proto/contract/accelerate_config.h"
#include "proto/contract/rank_files.h"
#include "proto/contract/worker_env.h"
#include "rendezvous/quorum.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCudaVariable[] = "CUDA_VISIBLE_DEVICES";
constexpr char kThreadsVariable[] = "OMP_NUM_THREADS";
constexpr size_t kMaxValueBytes = 200;  // limit of the bytes of a value in the text
constexpr char kIndent[] = "  ";

std::string ShownValue(const Setting& setting) {
  if (setting.is_described) return "(" + setting.value + ")";
  if (setting.value.size() <= kMaxValueBytes) return ShellWord(setting.value);
  return ShellWord(setting.value.substr(0, kMaxValueBytes)) + "... (" +
         Count(setting.value.size(), "byte") + ")";
}

// Returns the device numbers of a node, such as "2,3"; "0-7" for 8 slots if no devices are chosen.
std::string DevicesText(const Host& node) {
  if (node.devices.empty()) return node.slots == 1 ? "0" : "0-" + std::to_string(node.slots - 1);
  std::string text;
  for (const int device : node.devices) text += (text.empty() ? "" : ",") + std::to_string(device);
  return text;
}

// Returns the ranks of a node as text. `block` is nullptr for a spare.
std::string RankRange(const RankBlock* block) {
  if (block == nullptr) return "spare";
  const std::string first = std::to_string(block->first_rank);
  return block->slots == 1 ? first
                           : first + "-" + std::to_string(block->first_rank + block->slots - 1);
}

std::string AddressOf(const Host& node) {
  return (node.user.empty() ? "" : node.user + "@") + node.host +
         (node.port == 0 ? "" : " port " + std::to_string(node.port));
}

std::string WayTo(const Host& node, Launcher launcher) {
  const LauncherRow& row = RowOf(launcher);
  if (!row.reached_by.empty()) return std::string(row.reached_by);
  return row.program.empty() ? AddressOf(node) : std::string(row.program);
}

std::string LabelsOf(const Host& node) {
  std::string text;
  for (const auto& [name, value] : node.labels)
    text +=
        (text.empty() ? "" : " ") + SanitizeForTerminal(name) + "=" + SanitizeForTerminal(value);
  return text;
}

// Returns descriptions, by variable, of the values that MakeWorkerEnv can only determine on the
// node.
std::map<std::string, std::string> ChosenAtStart(const SessionOptions& session,
                                                 const Environment& base, const WorkerPlan& plan,
                                                 bool device_known) {
  std::map<std::string, std::string> chosen = {
      {kJobIdVariable, "the job's id, made at the start"},
      {"TORCHELASTIC_ERROR_FILE", "error.json in the rank's log folder"},
      {kRankDirVariable, "the rank's log folder"},
      {kRankSocketVariable, "the agent's socket for connections between ranks, made at the start"},
      {kStatusFdVariable, "a pipe to the agent, made at the start"},
  };
  const pb::RankOptions& ranks = session.job.ranks().options();
  if (ranks.run_id().empty()) chosen["TORCHELASTIC_RUN_ID"] = "the job's id, made at the start";
  if (ranks.master_addr().empty() && session.plan.nodes.size() > 1)
    chosen["MASTER_ADDR"] = "rank 0's node, as the others reach it at the start";
  if (session.job.master_port() == 0)
    chosen["MASTER_PORT"] = "a free port there, taken at the start";
  const bool is_local = session.job.local();
  const bool is_bound = ranks.bind() != pb::RankOptions::NONE;
  if (is_bound || (!is_local && FindVariable(base, kThreadsVariable) == nullptr))
    chosen[kThreadsVariable] = is_bound ? "the cores it is bound to" : "its node's cores / ranks";
  for (const std::string& name : IfnameVariables(plan.place.device)) {
    if (FindVariable(base, name) == nullptr)
      chosen[name] = ranks.master_addr().empty()
                         ? "the interface towards rank 0's node, unless its node sets it"
                         : "the interface towards --master_addr, unless its node sets it";
  }
  if (!device_known && !plan.devices_given && FindVariable(base, kCudaVariable) == nullptr)
    chosen[kCudaVariable] = "its node's GPUs once all are known to have enough; else untouched";
  return chosen;
}

std::string PolicyText(const pb::Policy& policy, const LaunchPlan& plan) {
  std::string text = policy.max_restarts() == 0
                         ? "ends the job"
                         : "starts the ranks again, " + Count(policy.max_restarts(), "time") +
                               " at most, after " + Seconds(policy.backoff_ms()) + " and more";
  if (plan.min_nodes < plan.max_nodes)
    text += ", on " + std::to_string(plan.min_nodes) + " nodes or more";
  return text;
}

const char* OnHangText(pb::Policy::OnHang on_hang) {
  return on_hang == pb::Policy::KILL      ? "the job is ended"
         : on_hang == pb::Policy::RESTART ? "the ranks are started again"
                                          : "it is reported";
}

std::string ShownRanksText(const ShownRanks& shown_ranks) {
  if (shown_ranks.all) return "all ranks";
  std::vector<std::string> ranks;
  for (const int rank : shown_ranks.ranks) ranks.push_back(std::to_string(rank));
  return ranks.empty() ? "none" : (ranks.size() == 1 ? "rank " : "ranks ") + NameList(ranks, ", ");
}

// The set of ranks for which a variable has the same value: all ranks, the ranks of a node, or one
// rank.
enum class Scope { kAll, kNode, kRank };

// Maps the name of a variable to its scope. A variable without an entry has the same value for all
// ranks.
using Scopes = std::map<std::string, Scope>;

// Records each variable that differs between `a` and `b` with `scope`, unless a narrower scope is
// recorded already.
void Compare(const std::vector<Setting>& a, const std::vector<Setting>& b, Scope scope,
             Scopes& scopes) {
  const auto note = [&](const std::string& name) {
    Scope& noted = scopes.emplace(name, scope).first->second;
    noted = std::max(noted, scope);
  };
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() || right != b.end()) {
    const bool only_left = right == b.end() || (left != a.end() && left->name < right->name);
    const bool only_right = left == a.end() || (right != b.end() && right->name < left->name);
    if (only_left || only_right || *left != *right) note(only_right ? right->name : left->name);
    if (!only_right) ++left;
    if (!only_left) ++right;
  }
}

// Returns the settings of the variables that have `scope`, formatted as one line.
std::string SettingsOf(const std::vector<Setting>& settings, Scope scope, const Scopes& scopes) {
  std::string line;
  for (const Setting& setting : settings) {
    const auto found = scopes.find(setting.name);
    if (found != scopes.end() && found->second == scope)
      line += (line.empty() ? "" : " ") + setting.name + "=" + ShownValue(setting);
  }
  return line;
}

Json TimeoutsJson(const SessionOptions& session) {
  const pb::Timeouts& times = session.job.timeouts();
  return {{"connect", session.connect_timeout.count()},
          {"join", times.join_ms()},
          {"ready", times.ready_ms()},
          {"heartbeat", times.heartbeat_ms()},
          {"suspect", times.suspect_ms()},
          {"dead", times.dead_ms()},
          {"lease", times.lease_ms()},
          {"grace", times.grace_ms()},
          {"teardown", times.teardown_ms()},
          {"time_limit", times.time_limit_ms()},
          {"hang", session.job.policy().hang_ms()},
          {"standstill", session.job.policy().standstill_ms()},
          {"setup_standstill", session.job.policy().setup_hang_ms()}};
}

// Returns the JSON object of a node. `block` has its ranks; null for a spare.
Json HostJson(const Host& node, const RankBlock* block) {
  Json json = {{"name", node.name},
               {"host", node.host},
               {"port", node.port == 0 ? Json() : Json(node.port)},
               {"user", node.user.empty() ? Json() : Json(node.user)},
               {"slots", node.slots},
               {"spare", node.spare},
               {"first_rank", block == nullptr ? Json() : Json(block->first_rank)},
               {"devices", node.devices.empty() ? Json() : Json(node.devices)},
               {"labels", Json::object()},
               {"env", Json::object()}};
  for (const auto& [name, value] : node.labels) json["labels"][name] = value;
  for (const auto& [name, value] : node.env) json["env"][name] = MaskedValue(name, value);
  return json;
}

}  // namespace

Result<DryRun> DryRun::Make(DryRunRequest request) {
  DryRun run(std::move(request));
  DSL_TRY(run.DecideDevices());
  // Resolve the ranks of each kind of node, which finds errors in the program and the devices.
  // Nodes without variables of their own are alike, so only one of them is resolved.
  const SessionOptions& session = run.request_.session;
  const pb::Program& program = session.job.ranks().program();
  for (size_t i = 0; i < session.plan.nodes.size(); ++i) {
    const Host& node = session.plan.nodes[i];
    if (node.spare || (run.command_ && node.env.empty())) continue;
    if (node.env.empty()) {
      DSL_TRY_ASSIGN(run.command_, run.CommandOn(node, program, run.BaseOf(program)));
    }
    DSL_TRY(run.RanksOf(i));
  }
  return run;
}

// Returns the environment that all ranks of a node share, as far as it is known on this machine.
Environment DryRun::BaseOf(const pb::Program& program) const {
  const bool is_here = request_.session.plan.launcher == Launcher::kLocal;
  const Environment nodes_own = is_here ? request_.environment : Environment();
  return MergeEnvironment(MergeEnvironment(nodes_own, program.env()), program.chosen_env());
}

Result<void> DryRun::DecideDevices() {
  const SessionOptions& session = request_.session;
  if (session.plan.launcher != Launcher::kLocal) {
    device_ = session.job.device();
    const AcceleratorRow& row = RowOf(device_);
    device_reason_ =
        device_ == pb::DEVICE_CPU ? "CPU, set by --device cpu"
        : device_ != pb::DEVICE_AUTO
            ? std::string(row.name) + ", if every slot turns out to have its " +
                  std::string(row.noun)
        : session.job.only_cuda()
            ? "CUDA if every slot turns out to have a GPU, CPU if no node has one"
            : "the nodes' accelerators if every slot turns out to have one, CPU if no node has any";
    return {};
  }
  std::vector<NodeGpus> gpus;
  for (const Host& node : session.plan.nodes) {
    const Environment base = BaseOf(ProgramOn(node, session.job.ranks().program()));
    DSL_TRY_ASSIGN(const NodeAccelerators found,
                   FindAccelerators(session.job.device(), session.job.only_cuda(), LookUpIn(base),
                                    session.job.ranks().options().virtual_local_rank()));
    const size_t count = node.devices.empty() ? found.visible.size() : found.numbered.size();
    gpus.push_back({node.name, node.slots, static_cast<int>(count),
                    node.devices.empty() ? -1 : node.devices.back(), found.device()});
    numbered_ = found.numbered;
  }
  DSL_TRY_ASSIGN(const DeviceDecision decision,
                 DecideDevice(session.job.device(), gpus, true, session.job.only_cuda()));
  device_ = decision.device;
  device_reason_ = decision.reason;
  return {};
}

// Resolves the program. For a job on this machine, only the effects of a sourced script are
// unknown.
Result<ResolvedProgram> DryRun::CommandOn(const Host& node, const pb::Program& program,
                                          const Environment& environment) const {
  if (command_ && node.env.empty()) return *command_;
  const bool is_here = request_.session.plan.launcher == Launcher::kLocal;
  if (is_here && program.venv_script().empty())
    return ResolveProgram(program, environment, node.name);
  return ComposeProgram(program, environment);
}

Result<std::vector<PlannedRank>> DryRun::RanksOf(size_t index) const {
  const SessionOptions& session = request_.session;
  const Host& node = session.plan.nodes[index];
  pb::PrepareRequest common;
  *common.mutable_job() = session.job;
  const pb::PrepareRequest request = PrepareRequestFor(common, session.plan, index);
  const pb::JobSpec& job = request.job();
  const pb::Program& program = job.ranks().program();
  const Environment given =
      MergeEnvironment(MergeEnvironment({}, program.env()), program.chosen_env());
  const Environment base = BaseOf(program);

  AttemptPlace place;
  const RankBlock& block = *session.plan.ranks.BlockOf(static_cast<uint32_t>(index));
  place.assignment = AssignmentOf(session.plan.ranks, block);
  place.assignment.set_master_addr("127.0.0.1");
  place.assignment.set_master_port(job.master_port());
  place.device = device_ == pb::DEVICE_AUTO ? pb::DEVICE_CPU : device_;
  pb::Node own_node;
  own_node.set_name(node.name);
  own_node.set_slots(static_cast<uint32_t>(node.slots));
  const WorkerPlan plan =
      PlanWorkers(request, own_node, place, base, request_.info.cores, numbered_);

  DSL_TRY_ASSIGN(const ResolvedProgram command, CommandOn(node, program, base));
  const auto at_start = ChosenAtStart(session, base, plan, device_ != pb::DEVICE_AUTO);
  std::vector<PlannedRank> ranks;
  for (uint32_t slot = 0; slot < plan.slots; ++slot) {
    DSL_TRY_ASSIGN(WorkerEnv worker, MakeWorkerEnv(job, plan, base, slot));
    // The name is empty instead of nullopt, so that the variables that depend on the name are
    // listed.
    worker.socket_ifname = "";
    PlannedRank rank;
    rank.rank = worker.rank;
    rank.local_rank = static_cast<int>(slot);
    rank.node = index;
    rank.argv = MaskedArguments(CommandOf(command, worker.local_rank));
    const Environment complete = WithPlace(base, worker);
    std::map<std::string, Setting> env;
    const auto add = [&](const std::string& name) {
      const auto chosen_later = at_start.find(name);
      const char* const value = FindVariable(complete, name);
      if (chosen_later != at_start.end())
        env[name] = {name, chosen_later->second, true};
      else if (name == kRecipeVariable)
        env[name] = {name, "the recipe, as JSON", true};
      else if (name == kAccelerateConfigVariable || name == kAccelerateFileVariable)
        return;  // the program does not get the variable that is being described
      else if (value != nullptr)
        env[name] = {name, MaskedValue(name, value), false};
    };
    for (const std::string& entry : given) add(entry.substr(0, entry.find('=')));
    for (const auto& [name, value] : worker.Required()) add(name);
    for (const auto& [name, value] : worker.Defaults()) add(name);
    for (const auto& [name, how] : at_start) add(name);
    for (auto& [name, setting] : env) rank.env.push_back(std::move(setting));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

// Calls `see` with the ranks of each node that is not a spare. Make has checked that the ranks of
// every node can be resolved, so resolving cannot fail.
void DryRun::ForEachNode(const std::function<void(const std::vector<PlannedRank>&)>& see) const {
  for (size_t i = 0; i < request_.session.plan.nodes.size(); ++i) {
    if (request_.session.plan.nodes[i].spare) continue;
    if (const Result<std::vector<PlannedRank>> ranks = RanksOf(i); ranks.ok()) see(*ranks);
  }
}

std::string DryRun::Summary() const {
  const SessionOptions& session = request_.session;
  const std::string device = device_ == pb::DEVICE_AUTO ? "device chosen at the start"
                                                        : std::string(DeviceOption(device_));
  std::string text = "Dry run: nothing is started, and no connection is opened.\n\n";
  text += PlanLine(session.plan, device) + "\n";
  text += "device: " + device_reason_ + "\n";
  return text;
}

std::string DryRun::Nodes() const {
  const LaunchPlan& plan = request_.session.plan;
  const bool has_labels =
      std::ranges::any_of(plan.nodes, [](const Host& node) { return !node.labels.empty(); });
  std::vector<std::vector<std::string>> rows = {{"NODE", "REACHED AT", "RANKS", "DEVICES"}};
  if (has_labels) rows.front().push_back("LABELS");
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const Host& node = plan.nodes[i];
    std::vector<std::string> row = {node.name, WayTo(node, plan.launcher),
                                    RankRange(plan.ranks.BlockOf(static_cast<uint32_t>(i))),
                                    DevicesText(node)};
    if (has_labels) row.push_back(LabelsOf(node));
    rows.push_back(std::move(row));
  }
  std::string text = "\nNodes\n" + TextTable(rows, kIndent);
  for (const std::string_view limit : RowOf(plan.launcher).limits)
    text.append(kIndent).append("limit of this launcher: ").append(limit).append("\n");
  return text;
}

std::string DryRun::Commands() const {
  const SessionOptions& session = request_.session;
  const pb::Program& program = session.job.ranks().program();
  std::string text;
  const bool runs_in_copies = session.copy_list && session.job.copies().run_there();
  if (session.copy_list) {
    text += "\nCopies\n" + std::string(kIndent) + Count(session.copy_list->num_files, "file") +
            ", " + SizeText(session.copy_list->bytes) +
            ", once to each home; ranks find them in $DSLAUNCH_COPY_DIR\n";
  }
  text += "\nCommands, in " +
          (runs_in_copies ? "the copies' folder of each node" : ShellWord(program.cwd())) + "\n";
  if (!program.venv_script().empty())
    text += kIndent + ("after bash has sourced " + ShellWord(program.venv_script())) + "\n";
  for (const pb::EnvVar& variable : program.chosen_env()) {
    if (variable.name() != kAccelerateFileVariable) continue;
    text += kIndent + ("with what each node's accelerate makes of " + ShellWord(variable.value())) +
            "\n";
  }
  const bool is_python = program.form() != pb::Program::PLAIN;
  if (is_python && session.plan.launcher != Launcher::kLocal) {
    const std::string& folder = program.python_environment().folder();
    text += kIndent;
    text += "by each node's own python: PYTHON_EXEC, else VIRTUAL_ENV's, else ";
    text += folder.empty() ? "python3 of its PATH"
                           : ShellWord(folder + "/bin/python3") + ", which every node must have";
    text += "\n";
  }
  std::vector<std::vector<std::string>> rows = {{"RANK", "NODE", "LOCAL", "COMMAND"}};
  ForEachNode([&](const std::vector<PlannedRank>& ranks) {
    for (const PlannedRank& rank : ranks) {
      rows.push_back({std::to_string(rank.rank), session.plan.nodes[rank.node].name,
                      std::to_string(rank.local_rank), CommandLine(rank.argv)});
    }
  });
  return text + TextTable(rows, kIndent);
}

std::string DryRun::Environments() const {
  const LaunchPlan& plan = request_.session.plan;
  std::vector<Setting> first;
  Scopes scopes;
  ForEachNode([&](const std::vector<PlannedRank>& ranks) {
    if (first.empty()) first = ranks.front().env;
    Compare(first, ranks.front().env, Scope::kNode, scopes);
    for (const PlannedRank& rank : ranks)
      Compare(ranks.front().env, rank.env, Scope::kRank, scopes);
  });
  std::vector<std::vector<std::string>> of_nodes, of_ranks;
  ForEachNode([&](const std::vector<PlannedRank>& ranks) {
    of_nodes.push_back(
        {plan.nodes[ranks.front().node].name, SettingsOf(ranks.front().env, Scope::kNode, scopes)});
    for (const PlannedRank& rank : ranks) {
      of_ranks.push_back(
          {"rank " + std::to_string(rank.rank), SettingsOf(rank.env, Scope::kRank, scopes)});
    }
  });
  std::string text = "\nEnvironment of every rank, ";
  text += plan.launcher == Launcher::kLocal ? "in addition to this shell's\n"
                                            : "in addition to its node's own\n";
  for (const Setting& setting : first) {
    if (!scopes.contains(setting.name))
      text += kIndent + setting.name + "=" + ShownValue(setting) + "\n";
  }
  if (of_nodes.size() > 1)
    text += "\nEnvironment that differs from node to node\n" + TextTable(of_nodes, kIndent);
  if (of_ranks.size() > 1)
    text += "\nEnvironment that differs from rank to rank\n" + TextTable(of_ranks, kIndent);
  return text;
}

std::string DryRun::Limits() const {
  const SessionOptions& session = request_.session;
  const pb::Timeouts& times = session.job.timeouts();
  std::vector<std::vector<std::string>> rows = {
      {"to reach all nodes", Seconds(session.connect_timeout.count())},
      {"for all to join", Seconds(times.join_ms())},
      {"for all ranks to be started", Seconds(times.ready_ms())},
      {"heartbeat, suspect, dead", Seconds(times.heartbeat_ms()) + ", " +
                                       Seconds(times.suspect_ms()) + ", " +
                                       Seconds(times.dead_ms())},
      {"no contact to this machine", Seconds(times.lease_ms())},
      {"from the first signal to SIGKILL", Seconds(times.grace_ms())},
      {"then for the last process", Seconds(times.teardown_ms())},
  };
  if (times.time_limit_ms() > 0)
    rows.push_back({"for the whole job", Seconds(static_cast<int64_t>(times.time_limit_ms()))});
  if (session.job.policy().hang_ms() > 0)
    rows.push_back({"without a step", Seconds(session.job.policy().hang_ms()) + ", then " +
                                          OnHangText(session.job.policy().on_hang())});
  if (session.job.policy().standstill_ms() > 0) {
    rows.push_back({"without a sign of life of any rank",
                    Seconds(session.job.policy().standstill_ms()) + ", then " +
                        OnHangText(session.job.policy().on_hang())});
  }
  std::string text = "\nTime limits\n" + TextTable(rows, kIndent);
  text += "\na failure " + PolicyText(session.job.policy(), session.plan) + "\n";
  text += "shown here: " + ShownRanksText(session.shown.shown_ranks) + "; log files in " +
          (session.job.ranks().log_dir().empty() ? "the user's state folder of each node"
                                                 : ShellWord(session.job.ranks().log_dir())) +
          "\n";
  return text;
}

std::string DryRun::ToText() const {
  const std::string& source = request_.recipe_source;
  const std::string training = source.empty()
                                   ? ""
                                   : TrainingText(source, request_.session.job.ranks().program(),
                                                  request_.session.plan.world_size());
  return Summary() + Nodes() + Commands() + Environments() + training + Limits();
}

std::string DryRun::ToJson() const {
  const SessionOptions& session = request_.session;
  const LaunchPlan& plan = session.plan;
  const auto dump = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = "{\"dry_run\": true";
  const auto add = [&](const char* name, const Json& value) {
    text += std::string(",\n\"") + name + "\": " + dump(value);
  };
  add("launcher", RowOf(plan.launcher).name);
  add("launcher_limits", RowOf(plan.launcher).limits);
  add("device", device_ == pb::DEVICE_AUTO ? Json() : Json(DeviceOption(device_)));
  add("device_reason", device_reason_);
  add("world_size", plan.world_size());
  add("min_nodes", plan.min_nodes);
  add("max_nodes", plan.max_nodes);
  add("slots_note", plan.slots_note);
  add("cwd", session.job.ranks().program().cwd());
  add("venv_script", session.job.ranks().program().venv_script());
  add("log_dir", session.job.ranks().log_dir());
  Json shown = Json::array();
  for (const int rank : session.shown.shown_ranks.ranks) shown.push_back(rank);
  add("show", session.shown.shown_ranks.all ? Json("all") : shown);
  add("timeouts_ms", TimeoutsJson(session));
  add("max_restarts", session.job.policy().max_restarts());
  if (!request_.recipe_source.empty()) {
    add("train", TrainingJson(request_.recipe_source, session.job.ranks().program()));
  }
  text += ",\n\"nodes\": [";
  std::map<std::string, std::string> described;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const RankBlock* const block = plan.ranks.BlockOf(static_cast<uint32_t>(i));
    text += (i == 0 ? "\n " : ",\n ") + dump(HostJson(plan.nodes[i], block));
  }
  text += "],\n\"ranks\": [";
  ForEachNode([&](const std::vector<PlannedRank>& ranks) {
    for (const PlannedRank& rank : ranks) {
      Json env = Json::object();
      for (const Setting& setting : rank.env) {
        env[setting.name] = setting.is_described ? Json() : Json(setting.value);
        if (setting.is_described) described.emplace(setting.name, setting.value);
      }
      const Json line = {{"rank", rank.rank},
                         {"local_rank", rank.local_rank},
                         {"node", plan.nodes[rank.node].name},
                         {"argv", rank.argv},
                         {"env", std::move(env)}};
      text += (rank.rank == 0 ? "\n " : ",\n ") + dump(line);
    }
  });
  text += "]";
  add("null_means", described);
  return text + "}\n";
}

}  // namespace dslaunch
