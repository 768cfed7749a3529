#include "cli/options/other_launchers.h"

#include <algorithm>

#include "base/text/sanitize.h"
#include "cli/options/option_readers.h"

namespace dslaunch {
namespace {

using Group = OptionGroup;

constexpr char kBinding[] =
    "--bind_cores_to_rank shares a node's cores among its ranks, --numa_binding binds each rank "
    "near its GPU";

constexpr char kAccelerateSetting[] =
    "it is a setting of accelerate's: write it into a file ('accelerate config') and give "
    "--accelerate_config FILE";

struct Remedy {
  // Option names with '_', separated by blanks; a '*' at the end matches any suffix.
  const char* names;
  const char* text;
};
constexpr Remedy kRemedies[] = {
    // Options of mpirun that dslaunch refuses.
    {"mca gmca", "Open MPI reads its parameters from variables too: give -x OMPI_MCA_NAME=VALUE"},
    {"genv genvlist genvall env envlist envall", "give -x NAME=VALUE for each variable"},
    {"c", "give -np N"},
    {"f", "give --hostfile FILE"},
    {"bind_to_core bind_to_socket cpu_set cpus_per_proc cpus_per_rank rankfile rf binding_args",
     kBinding},
    {"report_bindings display_map display_allocation", "--dry_run prints where each rank runs"},
    {"timestamp_output prefix_timestamp prefix_output_with_timestamp log_with_timestamp",
     "lines are shown without their times; leave it out"},
    // Options of horovodrun that dslaunch refuses.
    {"v verbose", "give --log_level debug; -V prints the version"},
    {"p", "give --ssh_port PORT"},
    {"cb", "'dslaunch doctor' checks nodes and this machine"},
    {"gloo_timeout_seconds",
     "it is a setting of Horovod's: give -x HOROVOD_GLOO_TIMEOUT_SECONDS=N"},
    {"num_nccl_streams", "it is a setting of Horovod's: give -x HOROVOD_NUM_NCCL_STREAMS=N"},
    {"thread_affinity", "it is a setting of Horovod's: give -x HOROVOD_THREAD_AFFINITY=N"},
    {"timeline_mark_cycles",
     "it is a setting of Horovod's: give -x HOROVOD_TIMELINE_MARK_CYCLES=1"},
    {"mpi_threads_disable", "it is a setting of Horovod's: give -x HOROVOD_MPI_THREADS_DISABLE=1"},
    {"hierarchical_allgather", "the ranks' connections choose by themselves; leave it out"},
    {"no_hierarchical_allreduce no_hierarchical_allgather no_autotune no_timeline_mark_cycles "
     "no_mpi_threads_disable stall_check log_without_timestamp log_hide_timestamp",
     "it is the default; leave it out"},
    {"autotune_*", "there is no autotuning; set --fusion_threshold_mb and --cycle_time_ms"},
    {"blacklist_cooldown_range",
     "a node that failed twice gets no ranks for a while in any case; leave it out"},
    {"jsrun", "--launcher selects how the nodes are reached"},
    // Options of accelerate that dslaunch refuses.
    {"use_deepspeed use_fsdp use_megatron_lm use_parallelism_config deepspeed_config_file "
     "zero_stage zero3_* offload_* gradient_accumulation_steps gradient_clipping "
     "deepspeed_moe_layer_cls_names fsdp_* megatron_lm_* fp8_* parallelism_config_* dynamo_*",
     kAccelerateSetting},
    {"deepspeed_hostfile mpirun_hostfile", "give --hostfile"},
    {"deepspeed_inclusion_filter", "give --include"},
    {"deepspeed_exclusion_filter", "give --exclude"},
    {"deepspeed_multinode_launcher", "give --launcher"},
    {"gpu_ids", "set CUDA_VISIBLE_DEVICES, or give --include NODE:0,1"},
    {"cpu", "give --device cpu -x ACCELERATE_USE_CPU=true"},
    {"num_cpu_threads_per_process", "give -x OMP_NUM_THREADS=N"},
    {"enable_cpu_affinity", kBinding},
};

bool IsListed(std::string_view names, std::string_view name) {
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    std::string_view known = names.substr(begin, end - begin);
    const bool is_prefix = known.ends_with('*');
    if (is_prefix) known.remove_suffix(1);
    if (is_prefix ? name.starts_with(known) : name == known) return true;
    begin = end + 1;
  }
  return false;
}

void ReadBindTo(const FlagValue& given, ParsedFlags&) {
  if (given.text == "none") return;
  throw ValidationError(given.name + " " + Truncate(given.text) + " is not supported: " + kBinding);
}

void ReadMapBy(const FlagValue& given, ParsedFlags&) {
  if (given.text == "slot") return;
  throw ValidationError(given.name + " " + Truncate(given.text) +
                        " is not supported: ranks fill one node after the other, as with slot; "
                        "--num_gpus N starts N ranks on each node, as ppr:N:node");
}

void ReadMixedPrecision(const FlagValue& given, ParsedFlags& flags) {
  if (given.text == "fp8")
    throw ValidationError(given.name + " fp8 needs more than one variable: " + kAccelerateSetting);
  const std::string text = ReadChoice<std::string>(
      given.name, given.text, {{"no", "no"}, {"fp16", "fp16"}, {"bf16", "bf16"}});
  flags.options.env.push_back("ACCELERATE_MIXED_PRECISION=" + text);
}

}  // namespace

OptionTable OtherLaunchersOptions() {
  return {
      {.names = "--num_processes",
       .value = "N",
       .group = Group::kTranslated,
       .help = "ranks of all nodes together, as accelerate counts; with --num_machines an equal "
               "share on each node",
       .target = kWhole<&ParsedFlags::num_processes, 1, 1'000'000>,
       .accelerate = true},
      {.names = "--mixed_precision",
       .value = "no|fp16|bf16",
       .group = Group::kTranslated,
       .help = "ACCELERATE_MIXED_PRECISION of the ranks",
       .target = ReadMixedPrecision,
       .accelerate = true},
      {.names = "--use_env",
       .group = Group::kTranslated,
       .help = "same as --no_local_rank, as torch.distributed.launch's",
       .target = kFlag<&LaunchOptions::no_local_rank>,
       .torchrun = true},
      {.names = "--nested",
       .group = Group::kProgram,
       .help = "PROGRAM may be a launcher, such as torchrun: start it as it is, in each rank",
       .target = kFlag<&LaunchOptions::nested>,
       .line_only = true},
      {.names = "--multi_gpu,--same_network",
       .group = Group::kAccepted,
       .help = "ranks on several GPUs and nodes need no option",
       .target = kIgnoredFlag,
       .accelerate = true},
      {.names = "--allow_run_as_root",
       .also = "-allow-run-as-root",
       .group = Group::kAccepted,
       .help = "root may start jobs",
       .target = kIgnoredFlag},
      {.names = "--oversubscribe",
       .also = "-oversubscribe",
       .group = Group::kAccepted,
       .help = "a node has the slots of its hostfile line, whatever its cores",
       .target = kIgnoredFlag},
      {.names = "--tag_output",
       .also = "-tag-output",
       .group = Group::kAccepted,
       .help = "where several ranks are shown, each line has a tag",
       .target = kIgnoredFlag},
      {.names = "--bind_to",
       .also = "-bind-to",
       .value = "none",
       .group = Group::kAccepted,
       .help = "ranks are not bound to cores by default",
       .target = ReadBindTo},
      {.names = "--map_by",
       .also = "-map-by,--rank_by,-rank-by",
       .value = "slot",
       .group = Group::kAccepted,
       .help = "ranks fill one node after the other",
       .target = ReadMapBy},
  };
}

std::string OptionRemedy(std::string_view word) {
  std::string name(word.substr(0, word.find('=')));
  name.erase(0, name.find_first_not_of('-'));
  std::ranges::replace(name, '-', '_');
  for (const Remedy& remedy : kRemedies) {
    if (!name.empty() && IsListed(remedy.names, name)) return remedy.text;
  }
  return "";
}

}  // namespace dslaunch
