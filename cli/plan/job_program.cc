#include "cli/plan/job_program.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/text/cpu_list.h"
#include "base/text/sanitize.h"
#include "cli/plan/carried_environment.h"
#include "proto/contract/accelerate_config.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

// Settings for malloc, which allocates the CPU's tensors: use pages of 2 MiB, and keep freed memory
// for the next step, so that the kernel need not map it again.
constexpr char kTunables[] = "GLIBC_TUNABLES";
constexpr char kTrainerMemory[] =
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864";

// The longest argument or variable that execve accepts, including its NUL.
constexpr size_t kMaxStringBytes = 128u << 10;

bool IsPythonScript(std::string_view program) {
  return program.size() > 3 && program.ends_with(".py");
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

// Adds a variable that the user chose. `source` is the origin of the variable, for the notice.
void AddChosen(Variables& variables, std::string_view name, std::string_view value,
               const std::string& source, std::vector<std::string>& notices) {
  if (!IsPlaceVariable(name)) return Add(variables, name, value);
  notices.push_back(LeftOut(source, name));
}

// Adds notices about variables in the hostfile that have no effect.
void NoteLeftOut(const LaunchPlan& plan, std::vector<std::string>& notices) {
  for (const Host& node : plan.nodes) {
    for (const auto& [name, value] : node.env) {
      if (IsPlaceVariable(name)) notices.push_back(LeftOut(node.name + " in the hostfile", name));
    }
  }
}

void AddCarried(const ProgramInfo& info, const CarriedEnvironment& carried, Variables& variables) {
  for (const auto& [name, value] : carried.variables) Add(variables, name, value);
  const char* python_path = FindIn(info.environment, kPythonPath);
  // Python would read an empty element as its current folder, so an empty PYTHONPATH is not
  // appended.
  const bool more = python_path != nullptr && *python_path != '\0';
  Add(variables, kPythonPath, more ? info.cwd + ":" + python_path : info.cwd);
}

bool Has(const Variables& variables, std::string_view name) {
  return std::ranges::any_of(variables, [&](const auto& one) { return one.name() == name; });
}

// Adds a notice about variables that the ranks of other nodes do not get, except variables that the
// user passes to them in another way.
void NoteNotCarried(const LaunchPlan& plan, CarriedEnvironment carried, JobProgram& job) {
  std::erase_if(carried.left_out, [&](const std::string& name) {
    return Has(job.program.env(), name) || Has(job.program.chosen_env(), name) ||
           std::ranges::any_of(plan.nodes, [&](const Host& node) {
             return std::ranges::any_of(node.env,
                                        [&](const auto& one) { return one.first == name; });
           });
  });
  std::string notice = LeftOutNotice(carried.left_out);
  if (!notice.empty()) job.notices.push_back(std::move(notice));
}

// Chooses the Python environment of the ranks, unless one of their variables chooses it.
void AddPythonEnvironment(const ProgramInfo& info, bool carries_environment, JobProgram& job) {
  const FrontPython& python = info.python;
  const auto is_given = [&](const char* name) {
    return Has(job.program.env(), name) || Has(job.program.chosen_env(), name);
  };
  if (is_given("VIRTUAL_ENV")) return;
  const bool is_script = job.program.form() != pb::Program::PLAIN;
  const bool has_interpreter =
      is_script && (is_given("PYTHON_EXEC") || FindIn(info.environment, "PYTHON_EXEC") != nullptr);
  if (!carries_environment && is_script && !has_interpreter && !python.other.empty()) {
    job.notices.push_back("scripts run by the python3 in each node's own PATH, not by " +
                          python.other + " of this shell; -x PYTHON_EXEC=" + python.other +
                          " chooses it");
  }
  if (python.folder.empty()) return;
  pb::PythonEnvironment& environment = *job.program.mutable_python_environment();
  environment.set_folder(python.folder);
  environment.set_variable(python.variable);
  environment.set_in_path(python.in_path);
  environment.set_need(has_interpreter ? pb::PythonEnvironment::NO
                       : is_script     ? pb::PythonEnvironment::YES
                                       : info.python_need);
  if (!is_script || has_interpreter || python.installed_in.empty()) return;
  if (python.variable.empty()) {
    job.notices.push_back("ranks run " + python.folder +
                          "/bin/python3, of the environment in which dslaunch is installed");
  } else if (python.folder != python.installed_in) {
    job.notices.push_back("ranks run " + python.folder + "/bin/python3, as " + python.variable +
                          " is set, not that of " + python.installed_in +
                          ", in which dslaunch is installed");
  }
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
  // The counts are 0 if unknown. The size of a job in the per-node style is known only when its
  // nodes have joined.
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
  const bool carries = RowOf(plan.launcher).carries_environment || options.per_node;
  // The program runs in the same folder on every node. Only the nodes can check that the folder
  // exists, so the path is not checked here.
  job.program.set_cwd(
      options.chdir.empty()
          ? info.cwd
          : (std::filesystem::path(info.cwd) / options.chdir).lexically_normal().string());
  if (trainer != nullptr && FindIn(info.environment, kTunables) == nullptr) {
    Add(*job.program.mutable_env(), kTunables,
        kTrainerMemory);  // default value, which a value of the user that is added later overrides
  }
  const CarriedEnvironment carried = carries ? CarriedEnvironment() : Carry(info.environment);
  if (!carries) AddCarried(info, carried, *job.program.mutable_env());
  DSL_TRY(AddFromFiles(info, job));
  NoteLeftOut(plan, job.notices);
  DSL_TRY(AddFromOptions(options, info, job));
  if (trainer == nullptr && !options.runs_trainer) NoteNotCarried(plan, carried, job);
  if (options.venv_script) job.program.set_venv_script(*options.venv_script);
  if (info.accelerate) AddAccelerate(*info.accelerate, options, plan, job);
  job.program.set_memory_checkpoint(static_cast<uint32_t>(
      trainer != nullptr ? trainer->memory_checkpoint : options.memory_checkpoint));
  if (trainer != nullptr) {
    job.program.add_argv(trainer->path);
    Add(*job.program.mutable_chosen_env(), kRecipeVariable, trainer->recipe_json);
    return job;
  }
  for (size_t i = 0; i < options.program.size(); ++i) {
    const std::string& argument = options.program[i];
    // The message does not quote the argument, which may be a secret.
    if (argument.size() >= kMaxStringBytes) {
      return Error{ExitCode::kUsage, "argument " + std::to_string(i) +
                                         " is too long for a program (128 KiB); put it in a file"};
    }
    job.program.add_argv(argument);
  }
  job.program.set_form(FormOf(options));
  job.program.set_nested(options.nested);
  job.program.set_no_local_rank(options.no_local_rank);
  if (!options.venv_script && !options.runs_trainer) AddPythonEnvironment(info, carries, job);
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
  if (options.run_id) ranks.set_run_id(*options.run_id);
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
