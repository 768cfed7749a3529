#include "cli/plan/safe_variables.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "agent/host/launcher_use.h"
#include "base/text/sanitize.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

// Names of variables that are known to be harmless, sorted. Whole names are listed instead of
// prefixes, because families such as OMP_, NCCL_ and TORCH_ also have variables that name
// libraries, folders of compiled code or files (OMP_TOOL_LIBRARIES, NCCL_NET_PLUGIN,
// TORCH_EXTENSIONS_DIR, TORCH_LOGS, which imports modules).
constexpr std::string_view kSafe[] = {"ASCEND_RT_VISIBLE_DEVICES",
                                      "BLIS_NUM_THREADS",
                                      "CCL_KVS_IFACE",
                                      "CUBLAS_WORKSPACE_CONFIG",
                                      "CUDA_DEVICE_MAX_CONNECTIONS",
                                      "CUDA_DEVICE_ORDER",
                                      "CUDA_LAUNCH_BLOCKING",
                                      "CUDA_MODULE_LOADING",
                                      "CUDA_VISIBLE_DEVICES",
                                      "DATASETS_VERBOSITY",
                                      "DSLAUNCH_SHM_DISABLE",
                                      "FI_EFA_FORK_SAFE",
                                      "FI_EFA_USE_DEVICE_RDMA",
                                      "FI_LOG_LEVEL",
                                      "FI_PROVIDER",
                                      "GLOO_SOCKET_IFNAME",
                                      "GOMP_CPU_AFFINITY",
                                      "GOMP_SPINCOUNT",
                                      "GPU_DEVICE_ORDINAL",
                                      "HABANA_VISIBLE_MODULES",
                                      "HCCL_SOCKET_IFNAME",
                                      "HF_DATASETS_OFFLINE",
                                      "HF_HUB_DISABLE_PROGRESS_BARS",
                                      "HF_HUB_DISABLE_TELEMETRY",
                                      "HF_HUB_DOWNLOAD_TIMEOUT",
                                      "HF_HUB_ENABLE_HF_TRANSFER",
                                      "HF_HUB_OFFLINE",
                                      "HIP_VISIBLE_DEVICES",
                                      "HOROVOD_CACHE_CAPACITY",
                                      "HOROVOD_CYCLE_TIME",
                                      "HOROVOD_FUSION_THRESHOLD",
                                      "HOROVOD_LOG_LEVEL",
                                      "HOROVOD_STALL_CHECK_DISABLE",
                                      "HOROVOD_STALL_CHECK_TIME_SECONDS",
                                      "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
                                      "KMP_AFFINITY",
                                      "KMP_BLOCKTIME",
                                      "KMP_SETTINGS",
                                      "LANG",
                                      "LC_ALL",
                                      "MALLOC_ARENA_MAX",
                                      "MALLOC_TRIM_THRESHOLD_",
                                      "MKL_DYNAMIC",
                                      "MKL_NUM_THREADS",
                                      "MLFLOW_EXPERIMENT_NAME",
                                      "MLU_VISIBLE_DEVICES",
                                      "NCCL_ALGO",
                                      "NCCL_ASYNC_ERROR_HANDLING",
                                      "NCCL_BLOCKING_WAIT",
                                      "NCCL_BUFFSIZE",
                                      "NCCL_CHECK_POINTERS",
                                      "NCCL_COLLNET_ENABLE",
                                      "NCCL_CROSS_NIC",
                                      "NCCL_CUMEM_ENABLE",
                                      "NCCL_DEBUG",
                                      "NCCL_DEBUG_SUBSYS",
                                      "NCCL_DMABUF_ENABLE",
                                      "NCCL_IB_ADAPTIVE_ROUTING",
                                      "NCCL_IB_AR_THRESHOLD",
                                      "NCCL_IB_DISABLE",
                                      "NCCL_IB_GID_INDEX",
                                      "NCCL_IB_HCA",
                                      "NCCL_IB_PCI_RELAXED_ORDERING",
                                      "NCCL_IB_QPS_PER_CONNECTION",
                                      "NCCL_IB_RETRY_CNT",
                                      "NCCL_IB_SL",
                                      "NCCL_IB_SPLIT_DATA_ON_QPS",
                                      "NCCL_IB_TC",
                                      "NCCL_IB_TIMEOUT",
                                      "NCCL_IGNORE_CPU_AFFINITY",
                                      "NCCL_LAUNCH_MODE",
                                      "NCCL_MAX_CTAS",
                                      "NCCL_MAX_NCHANNELS",
                                      "NCCL_MIN_CTAS",
                                      "NCCL_MIN_NCHANNELS",
                                      "NCCL_NET_GDR_LEVEL",
                                      "NCCL_NET_GDR_READ",
                                      "NCCL_NSOCKS_PERTHREAD",
                                      "NCCL_NTHREADS",
                                      "NCCL_NVLS_ENABLE",
                                      "NCCL_P2P_DISABLE",
                                      "NCCL_P2P_LEVEL",
                                      "NCCL_PROTO",
                                      "NCCL_PXN_DISABLE",
                                      "NCCL_SHM_DISABLE",
                                      "NCCL_SOCKET_FAMILY",
                                      "NCCL_SOCKET_IFNAME",
                                      "NCCL_SOCKET_NTHREADS",
                                      "NCCL_TIMEOUT",
                                      "NUMEXPR_MAX_THREADS",
                                      "NUMEXPR_NUM_THREADS",
                                      "NVIDIA_TF32_OVERRIDE",
                                      "NVIDIA_VISIBLE_DEVICES",
                                      "OMP_DISPLAY_ENV",
                                      "OMP_DYNAMIC",
                                      "OMP_MAX_ACTIVE_LEVELS",
                                      "OMP_NUM_THREADS",
                                      "OMP_PLACES",
                                      "OMP_PROC_BIND",
                                      "OMP_SCHEDULE",
                                      "OMP_STACKSIZE",
                                      "OMP_WAIT_POLICY",
                                      "OPENBLAS_NUM_THREADS",
                                      "PYTHONASYNCIODEBUG",
                                      "PYTHONDEVMODE",
                                      "PYTHONDONTWRITEBYTECODE",
                                      "PYTHONFAULTHANDLER",
                                      "PYTHONHASHSEED",
                                      "PYTHONMALLOC",
                                      "PYTHONNODEBUGRANGES",
                                      "PYTHONNOUSERSITE",
                                      "PYTHONOPTIMIZE",
                                      "PYTHONSAFEPATH",
                                      "PYTHONTRACEMALLOC",
                                      "PYTHONUNBUFFERED",
                                      "PYTHONUTF8",
                                      "PYTHONVERBOSE",
                                      "PYTHON_COLORS",
                                      "PYTHON_CPU_COUNT",
                                      "PYTHON_GIL",
                                      "PYTORCH_ALLOC_CONF",
                                      "PYTORCH_CUDA_ALLOC_CONF",
                                      "PYTORCH_NO_CUDA_MEMORY_CACHING",
                                      "PYTORCH_NVML_BASED_CUDA_CHECK",
                                      "RAYON_NUM_THREADS",
                                      "ROCR_VISIBLE_DEVICES",
                                      "TF_CPP_MIN_LOG_LEVEL",
                                      "TF_ENABLE_ONEDNN_OPTS",
                                      "TF_FORCE_GPU_ALLOW_GROWTH",
                                      "TOKENIZERS_PARALLELISM",
                                      "TORCHDYNAMO_DISABLE",
                                      "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
                                      "TORCH_COMPILE_DISABLE",
                                      "TORCH_CPP_LOG_LEVEL",
                                      "TORCH_DISTRIBUTED_DEBUG",
                                      "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                      "TORCH_NCCL_AVOID_RECORD_STREAMS",
                                      "TORCH_NCCL_BLOCKING_WAIT",
                                      "TORCH_NCCL_CUDA_EVENT_CACHE",
                                      "TORCH_NCCL_DESYNC_DEBUG",
                                      "TORCH_NCCL_DUMP_ON_TIMEOUT",
                                      "TORCH_NCCL_ENABLE_MONITORING",
                                      "TORCH_NCCL_ENABLE_TIMING",
                                      "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
                                      "TORCH_NCCL_HIGH_PRIORITY",
                                      "TORCH_NCCL_TRACE_BUFFER_SIZE",
                                      "TORCH_NCCL_USE_COMM_NONBLOCKING",
                                      "TORCH_SHOW_CPP_STACKTRACES",
                                      "TP_SOCKET_IFNAME",
                                      "TRANSFORMERS_NO_ADVISORY_WARNINGS",
                                      "TRANSFORMERS_OFFLINE",
                                      "TRANSFORMERS_VERBOSITY",
                                      "TZ",
                                      "UCX_IB_GID_INDEX",
                                      "UCX_LOG_LEVEL",
                                      "UCX_NET_DEVICES",
                                      "UCX_TLS",
                                      "VECLIB_MAXIMUM_THREADS",
                                      "WANDB_MODE",
                                      "WANDB_NAME",
                                      "WANDB_NOTES",
                                      "WANDB_PROJECT",
                                      "WANDB_RUN_GROUP",
                                      "WANDB_SILENT",
                                      "WANDB_TAGS",
                                      "XLA_PYTHON_CLIENT_MEM_FRACTION",
                                      "XLA_PYTHON_CLIENT_PREALLOCATE",
                                      "ZE_AFFINITY_MASK",
                                      "ZE_FLAT_DEVICE_HIERARCHY"};

static_assert(std::ranges::is_sorted(kSafe));

namespace fs = std::filesystem;

// Returns whether `path` names a file in `folder`. A relative `path` starts at `folder`, because
// the program's path starts at the current folder.
bool IsFileIn(const std::string& folder, const std::string& path) {
  std::error_code error;
  const fs::path real_folder = fs::canonical(folder, error);
  if (error) return false;
  const fs::path real = fs::canonical(fs::path(folder) / path, error);
  if (error || !fs::is_regular_file(real, error)) return false;
  const fs::path below = real.lexically_relative(real_folder);
  return !below.empty() && *below.begin() != "..";
}

// Returns the script in the command line of a shell, which follows its options; empty if -c gives
// the text.
std::string ScriptOfShell(const std::vector<std::string>& argv) {
  for (size_t i = 1; i < argv.size() && argv[i] != "-c"; ++i) {
    if (!argv[i].starts_with('-')) return argv[i];
  }
  return "";
}

}  // namespace

bool RunsCodeOf(const std::string& folder, const LaunchOptions& options) {
  if (options.program.empty() || options.runs_trainer) return false;
  // Python searches the current folder first, so the module can be in that folder.
  if (options.form == ProgramForm::kModule) return true;
  const std::string& program = options.program.front();
  if (IsPython(program)) {
    const std::optional<PythonTarget> target = TargetOfPython(options.program, 0);
    return target && (!target->module.empty() || IsFileIn(folder, options.program[target->at]));
  }
  const std::string name = fs::path(program).filename().string();
  if (name == "sh" || name == "bash") return IsFileIn(folder, ScriptOfShell(options.program));
  // A name without a slash is looked up in PATH unless it is a Python script, so only a path or a
  // script can be in the folder.
  return (program.find('/') != std::string::npos || program.ends_with(".py")) &&
         IsFileIn(folder, program);
}

bool IsSafeVariable(std::string_view variable) {
  return std::ranges::binary_search(kSafe, variable);
}

Result<void> CheckVariables(const std::vector<Host>& hosts, const std::string& hostfile) {
  for (const Host& host : hosts) {
    for (const auto& [name, value] : host.env) {
      if (IsSafeVariable(name) || IsPlaceVariable(name)) continue;
      return Error{ExitCode::kBadInput,
                   hostfile + ":" + std::to_string(host.line) + ": " + Truncate(name) + " " +
                       kNotKnownSafe +
                       ", so it is not taken from a file that the command line does not name; "
                       "give --hostfile " +
                       hostfile + " there"};
    }
  }
  return {};
}

}  // namespace dslaunch
