#include "cli/plan/job_program.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/cpu_list.h"
#include "base/sanitize.h"
#include "proto/contract/accelerate_config.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

// As DeepSpeed 0.19 has them, with those of its CUDA accelerator.
constexpr std::string_view kExportedPrefixes[] = {
    "MLFLOW", "PYTHON", "MV2", "UCX", "NCCL",
    // Nebula
    "DLTS_JOB_ID", "DLTS_NUM_WORKER", "NEBULA_PERSISTENT_STORAGE_PATH",
    "NEBULA_PERSISTENT_TIME_INTERVAL", "AML_RUN_ID", "AZUREML_RUN_TOKEN", "AZUREML_WORKSPACE_SCOPE",
    "AZUREML_EXPERIMENT_SCOPE", "AZUREML_RUN_HISTORY_SERVICE_ENDPOINT", "AZUREML_RUN_ID",
    "NEBULA_MEMORY_BUFFER_SIZE", "AZUREML_PARAMETER_ITPJOB_NAME", "FC_TASKROLE_NAME",
    "FC_TASK_INDEX", "MASTER_HOST", "LOCAL_HOST", "AZUREML_BLOB_ACCOUNT_NAME",
    "AZUREML_BLOB_ACCOUNT_KEY"};

// Where this is set, nodes have these two of their own.
constexpr char kOwnNetworkMark[] = "AISC_JOB_NAME";
// Tensors of the CPU come from malloc. On pages of 2 MiB, and kept for the next step in place of
// being given back and faulted in again.
constexpr char kTunables[] = "GLIBC_TUNABLES";
constexpr char kTrainerMemory[] =
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864";
constexpr std::string_view kOwnNetwork[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES"};

constexpr char kPythonPath[] = "PYTHONPATH";

// What execve takes of one argument or variable, with its NUL.
constexpr size_t kMaxStringBytes = 128u << 10;

bool IsPythonScript(std::string_view program) {
  return program.size() > 3 && program.ends_with(".py");
}

bool IsExported(std::string_view name, bool own_network) {
  if (own_network && std::ranges::find(kOwnNetwork, name) != std::end(kOwnNetwork)) return false;
  return std::ranges::any_of(kExportedPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

using Variables = google::protobuf::RepeatedPtrField<pb::EnvVar>;

void Add(Variables& variables, std::string_view name, std::string_view value) {
  pb::EnvVar& variable = *variables.Add();
  variable.set_name(std::string(name));
  variable.set_value(std::string(value));
}

std::string LeftOut(const std::string& source, std::string_view name) {
  return source + ": " + std::string(name) +
         " is left out, since every rank gets its own from dslaunch";
}

// One that a user chose. `source` says where, for the notice.
void AddChosen(Variables& variables, std::string_view name, std::string_view value,
               const std::string& source, std::vector<std::string>& notices) {
  if (!IsPlaceVariable(name)) return Add(variables, name, value);
  notices.push_back(LeftOut(source, name));
}

// Of what the hostfile gives to its nodes.
void NoteLeftOut(const LaunchPlan& plan, std::vector<std::string>& notices) {
  for (const Host& node : plan.nodes) {
    for (const auto& [name, value] : node.env) {
      if (IsPlaceVariable(name)) notices.push_back(LeftOut(node.name + " in the hostfile", name));
    }
  }
}

void AddExported(const ProgramInfo& info, Variables& variables) {
  const bool own_network = FindIn(info.environment, kOwnNetworkMark) != nullptr;
  for (const std::string& entry : info.environment) {
    const std::string_view text(entry);
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (equals == std::string_view::npos || name == kPythonPath || !IsExported(name, own_network))
      continue;
    Add(variables, name, text.substr(equals + 1));
  }
  const char* python_path = FindIn(info.environment, kPythonPath);
  // No empty element: Python would take it for whatever folder it runs in.
  const bool more = python_path != nullptr && *python_path != '\0';
  Add(variables, kPythonPath, more ? info.cwd + ":" + python_path : info.cwd);
}

// The interpreter that `python3` is here, where the user chose an environment for it: what
// DeepSpeed starts on every node.
std::string FrontPython(const std::vector<std::string>& environment) {
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* folder = FindIn(environment, name);
    if (folder != nullptr && *folder == '/') return std::string(folder) + "/bin/python3";
  }
  return "";
}

Result<void> AddFromOptions(const LaunchOptions& options, const ProgramInfo& info,
                            JobProgram& job) {
  for (const std::string& entry : options.env) {
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string name = entry.substr(0, equals);
    if (name.empty())
      return Error{ExitCode::kUsage, "--env: a variable without a name; as in --env MODE=fast"};
    const char* const own = FindIn(info.environment, name);
    if (equals == entry.size() && own == nullptr) {
      return Error{ExitCode::kUsage, "--env " + Truncate(name) +
                                         ": this environment has no such variable; export it, or "
                                         "give NAME=VALUE"};
    }
    const std::string value = equals == entry.size() ? own : entry.substr(equals + 1);
    if (name.size() + 1 + value.size() >= kMaxStringBytes) {
      return Error{ExitCode::kUsage, "--env " + Truncate(name) +
                                         ": the value is too long for one variable (128 KiB); put "
                                         "it in a file"};
    }
    AddChosen(*job.program.mutable_chosen_env(), name, value, "--env", job.notices);
  }
  return {};
}

Result<void> AddFromFiles(const ProgramInfo& info, JobProgram& job) {
  for (const EnvFile& file : info.env_files) {
    std::string names;
    for (const auto& [name, value] : file.variables) {
      if (name.size() + 1 + value.size() >= kMaxStringBytes) {
        return Error{ExitCode::kBadInput, file.path + ": the value of " + Truncate(name) +
                                              " is too long for one variable (128 KiB); put it in "
                                              "a file of its own"};
      }
      AddChosen(*job.program.mutable_env(), name, value, file.path, job.notices);
      if (!IsPlaceVariable(name)) names += (names.empty() ? "" : ", ") + name;
    }
    if (!names.empty())
      job.notices.push_back("all ranks get these variables from " + file.path + ": " + names);
    job.notices.insert(job.notices.end(), file.notices.begin(), file.notices.end());
  }
  return {};
}

void AddAccelerate(const AccelerateConfig& config, const LaunchOptions& options,
                   const LaunchPlan& plan, JobProgram& job) {
  Add(*job.program.mutable_chosen_env(), kAccelerateConfigVariable, config.text);
  Add(*job.program.mutable_chosen_env(), kAccelerateFileVariable, config.path);
  // Jobs of one command on each node are as large as the nodes that come.
  const int ranks = options.per_node ? 0 : CertainRanks(plan);
  const int nodes = plan.min_nodes == plan.max_nodes ? plan.max_nodes : 0;
  const std::string notice = CountsNotice(config, ranks, nodes);
  if (!notice.empty()) job.notices.push_back(notice);
}

pb::Program::Form FormOf(const LaunchOptions& options) {
  switch (options.form) {
    case ProgramForm::kModule:
      return pb::Program::MODULE;
    case ProgramForm::kPlain:
      return pb::Program::PLAIN;
    case ProgramForm::kPath:
      return pb::Program::RUN_PATH;
    case ProgramForm::kAuto:
      break;
  }
  return IsPythonScript(options.program.front()) ? pb::Program::SCRIPT : pb::Program::PLAIN;
}

pb::RankOptions::Bind BindOf(NumaBinding binding) {
  switch (binding) {
    case NumaBinding::kNode:
      return pb::RankOptions::NUMA_NODE;
    case NumaBinding::kSocket:
      return pb::RankOptions::SOCKET;
    case NumaBinding::kExclusive:
      return pb::RankOptions::EXCLUSIVE;
    case NumaBinding::kCoreComplex:
      return pb::RankOptions::CORE_COMPLEX;
  }
  return pb::RankOptions::NONE;
}

}  // namespace

Result<JobProgram> MakeJobProgram(const LaunchOptions& options, const LaunchPlan& plan,
                                  const ProgramInfo& info, const TrainerProgram* trainer) {
  JobProgram job;
  // srun brings all of this environment to the nodes.
  const bool over_ssh =
      plan.launcher != Launcher::kLocal && plan.launcher != Launcher::kSlurm && !options.per_node;
  // As the same folder of every node: only those can say whether it is there.
  job.program.set_cwd(
      options.chdir.empty()
          ? info.cwd
          : (std::filesystem::path(info.cwd) / options.chdir).lexically_normal().string());
  if (trainer != nullptr && FindIn(info.environment, kTunables) == nullptr) {
    Add(*job.program.mutable_env(), kTunables, kTrainerMemory);  // what a user says later counts
  }
  if (over_ssh) AddExported(info, *job.program.mutable_env());
  DSL_TRY(AddFromFiles(info, job));
  NoteLeftOut(plan, job.notices);
  DSL_TRY(AddFromOptions(options, info, job));
  if (options.venv_script) job.program.set_venv_script(*options.venv_script);
  if (info.accelerate) AddAccelerate(*info.accelerate, options, plan, job);
  if (trainer != nullptr) {
    job.program.add_argv(trainer->path);
    Add(*job.program.mutable_chosen_env(), kRecipeVariable, trainer->recipe_json);
    return job;
  }
  for (size_t i = 0; i < options.program.size(); ++i) {
    const std::string& argument = options.program[i];
    if (argument.size() >= kMaxStringBytes) {  // not quoted: it may be a secret
      return Error{ExitCode::kUsage, "argument " + std::to_string(i) +
                                         " is too long for a program (128 KiB); put it in a file"};
    }
    job.program.add_argv(argument);
  }
  job.program.set_form(FormOf(options));
  job.program.set_no_local_rank(options.no_local_rank);
  if (over_ssh && !options.venv_script) job.program.set_front_python(FrontPython(info.environment));
  return job;
}

pb::Program ProgramOn(const Host& node, pb::Program program) {
  for (const auto& [name, value] : node.env) {
    if (!IsPlaceVariable(name)) Add(*program.mutable_env(), name, value);
  }
  return program;
}

Result<pb::RankOptions> MakeRankOptions(const LaunchOptions& options) {
  pb::RankOptions ranks;
  ranks.set_role(options.role);
  if (options.master_addr) ranks.set_master_addr(*options.master_addr);
  if (options.per_node && options.per_node->id != PerNode().id)
    ranks.set_run_id(options.per_node->id);
  ranks.set_virtual_local_rank(options.virtual_local_rank);
  ranks.set_mpi_env(options.mpi_env);
  if (options.bind_cores_to_rank && options.numa_binding) {
    return Error{ExitCode::kUsage,
                 "--bind_cores_to_rank and --numa_binding exclude each other: both set where a "
                 "rank runs; leave one out"};
  }
  if (options.bind_core_list && !options.bind_cores_to_rank) {
    return Error{ExitCode::kUsage,
                 "--bind_core_list selects the cores for --bind_cores_to_rank; give that "
                 "option too"};
  }
  if (options.numa_binding) ranks.set_bind(BindOf(*options.numa_binding));
  if (options.bind_cores_to_rank) ranks.set_bind(pb::RankOptions::CORES);
  if (options.bind_core_list) {
    const Result<std::vector<int>> cores = ParseCpuList(*options.bind_core_list);
    if (!cores.ok()) return Error{ExitCode::kUsage, "--bind_core_list: " + cores.error().message};
    for (const int core : *cores) ranks.add_cores(static_cast<uint32_t>(core));
  }
  return ranks;
}

}  // namespace dslaunch
