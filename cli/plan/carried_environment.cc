#include "cli/plan/carried_environment.h"

#include <algorithm>
#include <span>

#include "agent/accelerators/accelerators.h"
#include "base/text/sanitize.h"
#include "cli/plan/env_file.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxShownNames = 8;

constexpr std::string_view kCarriedPrefixes[] = {
    // Variables that DeepSpeed 0.19 exports, including variables of its CUDA accelerator.
    "MLFLOW", "PYTHON", "MV2", "UCX", "NCCL",
    // Variables of the Nebula checkpoint service.
    "DLTS_JOB_ID", "DLTS_NUM_WORKER", "NEBULA_PERSISTENT_STORAGE_PATH",
    "NEBULA_PERSISTENT_TIME_INTERVAL", "AML_RUN_ID", "AZUREML_RUN_TOKEN", "AZUREML_WORKSPACE_SCOPE",
    "AZUREML_EXPERIMENT_SCOPE", "AZUREML_RUN_HISTORY_SERVICE_ENDPOINT", "AZUREML_RUN_ID",
    "NEBULA_MEMORY_BUFFER_SIZE", "AZUREML_PARAMETER_ITPJOB_NAME", "FC_TASKROLE_NAME",
    "FC_TASK_INDEX", "MASTER_HOST", "LOCAL_HOST", "AZUREML_BLOB_ACCOUNT_NAME",
    "AZUREML_BLOB_ACCOUNT_KEY",
    // Variables of threads and numerics.
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "DNNL_", "ONEDNN_", "NUMBA_", "MALLOC_",
    // Variables of frameworks.
    "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TRITON_", "XLA_", "JAX_", "TF_", "PL_",
    "DEEPSPEED_", "DS_", "ACCELERATE_", "FSDP_", "MEGATRON_", "VLLM_", "HOROVOD_",
    // Variables of GPUs and networks.
    "CUDA_", "CUDNN_", "CUBLAS_", "CUTLASS_", "NVTE_", "NVSHMEM_", "RCCL_", "HIP_", "HSA_",
    "MIOPEN_", "GLOO_", "FI_", "RDMAV_", "ROCR_", "ZE_", "SYCL_", "ONEAPI_", "CCL_", "ASCEND_",
    "HCCL_", "HABANA_", "PT_HPU_", "MLU_", "CNCL_",
    // Variables of data, models and experiment trackers.
    "HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_", "DATASETS_", "TOKENIZERS_",
    "SAFETENSORS_", "WANDB_", "COMET_", "NEPTUNE_", "CLEARML_",
    // Variables of MPI.
    "OMPI_", "PMIX_MCA_", "PRTE_MCA_", "MPICH_", "I_MPI_"};
constexpr std::string_view kCarriedNames[] = {"GLIBC_TUNABLES", "DSLAUNCH_SHM_DISABLE"};

// Variables for the devices of this machine, the place of a process under another launcher, and
// launchers themselves.
constexpr std::string_view kNeverCarriedPrefixes[] = {"OMPI_COMM_WORLD_", "OMPI_UNIVERSE_",
                                                      "DS_ENV_FILE"};

// If this variable is set, nodes set the two variables of kOwnNetwork themselves.
constexpr char kOwnNetworkMark[] = "AISC_JOB_NAME";
constexpr std::string_view kOwnNetwork[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES"};

// Prefixes of variables of a login, a shell, a terminal, a desktop, a development tool or a batch
// system. Each machine and session has its own values, so no notice names these variables.
constexpr std::string_view kSessionPrefixes[] = {"LC_",
                                                 "SSH_",
                                                 "XDG_SE",
                                                 "XDG_RUNTIME_",
                                                 "XDG_VTNR",
                                                 "XDG_CURRENT_",
                                                 "XDG_MENU_",
                                                 "XDG_DATA_DIRS",
                                                 "XDG_CONFIG_DIRS",
                                                 "XDG_GREETER_",
                                                 "XDG_STATE_HOME",
                                                 "DBUS_",
                                                 "GPG_",
                                                 "GTK_",
                                                 "GDK_",
                                                 "QT_",
                                                 "KDE_",
                                                 "GNOME_",
                                                 "VTE_",
                                                 "TERM",
                                                 "TMUX",
                                                 "VSCODE_",
                                                 "KITTY_",
                                                 "ALACRITTY_",
                                                 "WEZTERM_",
                                                 "ITERM_",
                                                 "WT_",
                                                 "WSL",
                                                 "HIST",
                                                 "ZSH",
                                                 "BASH",
                                                 "FZF_",
                                                 "NVM_",
                                                 "SDKMAN_",
                                                 "PYENV_",
                                                 "RBENV_",
                                                 "CARGO_",
                                                 "RUSTUP_",
                                                 "GIT_",
                                                 "npm_",
                                                 "CONDA_",
                                                 "_CE_",
                                                 "MAMBA_",
                                                 "UV_",
                                                 "POETRY_",
                                                 "PIP_",
                                                 "VIRTUAL_ENV",
                                                 "MODULES",
                                                 "MODULEPATH",
                                                 "TORCHELASTIC_",
                                                 "LMOD_",
                                                 "LOADEDMODULES",
                                                 "_LM",
                                                 "__",
                                                 "_ModuleTable",
                                                 "SUDO_",
                                                 "SYSTEMD_",
                                                 "KUBERNETES_",
                                                 "SLURM",
                                                 "SBATCH_",
                                                 "SALLOC_",
                                                 "SRUN_",
                                                 "PBS_",
                                                 "LSB_",
                                                 "SGE_",
                                                 "FLUX_",
                                                 "PET_",
                                                 "DSLAUNCH_",
                                                 "PMI",
                                                 "PRTE_",
                                                 "LESS",
                                                 "LS_",
                                                 "MANPATH",
                                                 "DEBIAN_",
                                                 "LSCOLORS",
                                                 "DIRENV_",
                                                 "GREP_",
                                                 "ZLS_",
                                                 "GJS_",
                                                 "CLUTTER_",
                                                 "SELINUX_",
                                                 "rvm_",
                                                 "GEM_",
                                                 "OMZ_",
                                                 "P9K_",
                                                 "POWERLEVEL",
                                                 "IM_CONFIG",
                                                 "STARSHIP_",
                                                 "CLICOLOR"};
constexpr std::string_view kSessionNames[] = {"PATH",
                                              "HOME",
                                              "SHELL",
                                              "USER",
                                              "LOGNAME",
                                              "PWD",
                                              "OLDPWD",
                                              "SHLVL",
                                              "_",
                                              "COLORTERM",
                                              "LANG",
                                              "LANGUAGE",
                                              "TZ",
                                              "MAIL",
                                              "HOSTNAME",
                                              "HOSTTYPE",
                                              "MACHTYPE",
                                              "OSTYPE",
                                              "EDITOR",
                                              "VISUAL",
                                              "PAGER",
                                              "BROWSER",
                                              "INFOPATH",
                                              "PS1",
                                              "PS2",
                                              "PS4",
                                              "PROMPT",
                                              "PROMPT_COMMAND",
                                              "DISPLAY",
                                              "WAYLAND_DISPLAY",
                                              "XAUTHORITY",
                                              "WINDOWID",
                                              "DESKTOP_SESSION",
                                              "SESSION_MANAGER",
                                              "STY",
                                              "WINDOW",
                                              "COLUMNS",
                                              "LINES",
                                              "NO_COLOR",
                                              "FORCE_COLOR",
                                              "INVOCATION_ID",
                                              "JOURNAL_STREAM",
                                              "container",
                                              "ENV",
                                              "TMPDIR",
                                              "IFS",
                                              "USERNAME",
                                              "WINDOWPATH",
                                              "XMODIFIERS",
                                              "MOTD_SHOWN",
                                              "S_COLORS",
                                              "which_declare",
                                              "HUSHLOGIN",
                                              "UID",
                                              "EUID",
                                              "GROUPS",
                                              "DS_ENV_FILE"};

bool IsAmong(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool HasPrefix(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool IsCarried(std::string_view name) {
  return (HasPrefix(name, kCarriedPrefixes) || IsAmong(name, kCarriedNames)) &&
         !HasPrefix(name, kNeverCarriedPrefixes) && !IsDeviceVariable(name) &&
         name != kPythonPath && !IsPlaceVariable(name);
}

bool IsOfSession(std::string_view name) {
  return HasPrefix(name, kSessionPrefixes) || IsAmong(name, kSessionNames) ||
         HasPrefix(name, kNeverCarriedPrefixes) || name == kPythonPath;
}

}  // namespace

CarriedEnvironment Carry(const std::vector<std::string>& environment) {
  CarriedEnvironment carried;
  const bool own_network = FindIn(environment, kOwnNetworkMark) != nullptr;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string name = entry.substr(0, equals);
    if (own_network && IsAmong(name, kOwnNetwork)) continue;
    if (IsCarried(name))
      carried.variables.emplace_back(name, entry.substr(equals + 1));
    else if (IsDeviceVariable(name) || !(IsOfSession(name) || IsPlaceVariable(name)))
      carried.left_out.push_back(name);
  }
  std::ranges::sort(carried.left_out);
  return carried;
}

std::string LeftOutNotice(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const size_t shown = names.size() > kMaxShownNames + 1 ? kMaxShownNames : names.size();
  std::string list;
  for (size_t i = 0; i < shown; ++i) {
    const bool is_last = i > 0 && i + 1 == names.size();
    list += (i == 0 ? "" : is_last ? " and " : ", ") + Truncate(names[i]);
  }
  if (shown < names.size()) list += " and " + std::to_string(names.size() - shown) + " more";
  return "this shell's " + list + (names.size() == 1 ? " is" : " are") +
         " not passed to the nodes; -x NAME passes one";
}

}  // namespace dslaunch
