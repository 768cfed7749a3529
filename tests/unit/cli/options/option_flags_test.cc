// Tests every flag of deepspeed 0.19 and torchrun 2.11, in every spelling: either its effect in
// dslaunch, or the message that refuses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <random>
#include <set>

#include "cli/options/option_table.h"
#include "cli/options/options.h"

namespace dslaunch::option_flags_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

// Names of each option as in --help; the first name is the main name.
const std::vector<std::vector<std::string>> kDeepspeed = {
    {"--hostfile", "-H"},
    {"--include", "-i"},
    {"--exclude", "-e"},
    {"--num_nodes"},
    {"--min_elastic_nodes"},
    {"--max_elastic_nodes"},
    {"--num_gpus", "--num_accelerators"},
    {"--master_port"},
    {"--master_addr"},
    {"--node_rank"},
    {"--launcher"},
    {"--launcher_args"},
    {"--module"},
    {"--no_python"},
    {"--no_local_rank"},
    {"--no_ssh"},
    {"--no_ssh_check"},
    {"--force_multi"},
    {"--save_pid"},
    {"--enable_each_rank_log"},
    {"--autotuning"},
    {"--elastic_training"},
    {"--bind_cores_to_rank"},
    {"--bind_core_list"},
    {"--ssh_port"},
    {"--venv_script"},
    {"--log_level"},
    {"--quiet", "-q"},
};
const std::vector<std::vector<std::string>> kTorchrun = {
    {"--nnodes"},
    {"--nproc_per_node"},
    {"--rdzv_backend"},
    {"--rdzv_endpoint"},
    {"--rdzv_id"},
    {"--rdzv_conf"},
    {"--standalone"},
    {"--max_restarts"},
    {"--monitor_interval"},
    {"--start_method"},
    {"--event_log_handler"},
    {"--role"},
    {"--module", "-m"},
    {"--no_python"},
    {"--run_path"},
    {"--log_dir"},
    {"--redirects", "-r"},
    {"--tee", "-t"},
    {"--local_ranks_filter"},
    {"--duplicate_stdout_filters"},
    {"--duplicate_stderr_filters"},
    {"--node_rank"},
    {"--master_addr"},
    {"--master_port"},
    {"--local_addr"},
    {"--logs_specs"},
    {"--numa_binding"},
    {"--signals_to_handle"},
    {"--virtual_local_rank"},
    {"--use_env"},  // option of torch.distributed.launch
};
// Options of horovodrun that dslaunch accepts or refuses. Its options for tuning MPI and NCCL are
// unknown to dslaunch.
const std::vector<std::vector<std::string>> kHorovodrun = {
    {"--hostfile", "-H"},
    {"--hosts"},
    {"--num_proc", "-np"},
    {"--slots_per_host"},
    {"--network_interface", "--network_interfaces"},
    {"--timeline_filename"},
    {"--fusion_threshold_mb"},
    {"--cycle_time_ms"},
    {"--cache_capacity"},
    {"--no_stall_check"},
    {"--stall_check_warning_time_seconds"},
    {"--stall_check_shutdown_time_seconds"},
    {"--log_level"},
    {"--output_filename"},
    {"--reset_limit"},
    {"--ssh_port"},
    {"--start_timeout"},
    {"--no_ssh_check", "--disable_cache"},
    {"--gloo", "--tcp"},
    {"--mpi"},
    {"--mpi_args"},
    {"--min_np", "--min_num_proc"},
    {"--max_np", "--max_num_proc"},
    {"--host_discovery_script"},
    {"--elastic_timeout"},
    {"--autotune"},
    {"--hierarchical_allreduce"},
    {"--config_file"},
    {"--check_build"},
    {"--ssh_identity_file"},
};
const std::vector<std::string> kWithoutVariable = {"--logs_specs", "--numa_binding", "--use_env"};
// Options of `accelerate launch` and mpirun that dslaunch accepts, by their main name in dslaunch.
const std::vector<std::vector<std::string>> kOthers = {
    {"--hostfile", "-hostfile", "--machinefile", "-machinefile"},
    {"--hosts", "-host", "-hosts"},
    {"--slots_per_host", "--npernode", "-npernode", "-ppn"},
    {"--chdir", "--wdir", "-wdir", "-wd"},
    {"--num_nodes", "--num_machines"},
    {"--node_rank", "--machine_rank"},
    {"--master_addr", "--main_process_ip"},
    {"--master_port", "--main_process_port"},
    {"--multi_gpu", "--same_network"},
    {"--allow_run_as_root", "-allow-run-as-root"},
    {"--oversubscribe", "-oversubscribe"},
    {"--tag_output", "-tag-output"},
    {"--bind_to", "-bind-to"},
    {"--map_by", "-map-by"},
};

using Options = LaunchOptions;

struct Case {
  std::string flag;                            // name with '_' instead of '-'
  std::vector<std::string> values;             // one value; empty for a flag
  std::function<void(const Options&)> effect;  // checks the effect; null if the option is refused
  std::string refusal = "";
  std::vector<std::string> with = {};  // other options on the command line
};

// Returns the case of an option that sets a variable of the ranks.
Case SetsVariable(const char* flag, const char* value, const char* expected) {
  return {flag, *value == '\0' ? std::vector<std::string>() : std::vector<std::string>{value},
          [expected](const Options& o) { EXPECT_THAT(o.env, ElementsAre(expected)); }};
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      // These are options of horovodrun.
      {"--hosts",
       {"w0:2,u@w1"},
       [](const Options& o) {
         EXPECT_EQ(o.hosts, "w0 slots=2\nu@w1 slots=1\n");
         EXPECT_FALSE(o.hostfile);
       }},
      {"--hosts", {"w0:0"}, nullptr, "from 1 to"},
      {"--hosts", {"w0:2,,w1"}, nullptr, "each node is NAME or NAME:SLOTS"},
      {"--num_proc", {"8"}, [](const Options& o) { EXPECT_EQ(o.num_ranks, 8); }},
      {"--network_interface",
       {"eth0"},
       [](const Options& o) { EXPECT_EQ(o.network_interface, "eth0"); }},
      SetsVariable("--timeline_filename", "a/t.json", "HOROVOD_TIMELINE=a/t.json"),
      SetsVariable("--fusion_threshold_mb", "32", "HOROVOD_FUSION_THRESHOLD=33554432"),
      SetsVariable("--cycle_time_ms", "3.5", "HOROVOD_CYCLE_TIME=3.5"),
      SetsVariable("--cache_capacity", "0", "HOROVOD_CACHE_CAPACITY=0"),
      SetsVariable("--no_stall_check", "", "HOROVOD_STALL_CHECK_DISABLE=1"),
      SetsVariable("--stall_check_warning_time_seconds", "5", "HOROVOD_STALL_CHECK_TIME_SECONDS=5"),
      SetsVariable("--stall_check_shutdown_time_seconds", "9",
                   "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=9"),
      {"--cycle_time_ms", {"soon"}, nullptr, "--cycle_time_ms"},
      {"--start_timeout", {"7"}, [](const Options& o) { EXPECT_EQ(o.connect_timeout_ms, 7'000); }},
      {"--slots_per_host", {"3"}, [](const Options& o) { EXPECT_EQ(o.num_gpus, 3); }},
      {"--output_filename", {"out"}, [](const Options& o) { EXPECT_EQ(o.log_dir, "out"); }},
      {"--reset_limit", {"2"}, [](const Options& o) { EXPECT_EQ(o.max_restarts, 2); }},
      {"--gloo", {}, [](const Options& o) { EXPECT_TRUE(o.env.empty()); }},
      {"--mpi", {"pmix"}, [](const Options& o) { EXPECT_EQ(o.mpi, MpiChoice::kPmix); }},
      // --mpi is a flag in horovodrun, so the program may follow it directly.
      {"--mpi", {"python3"}, nullptr, "auto, pmix"},
      {"--mpi_args", {"--map-by x"}, nullptr, "no mpirun is used"},
      {"--min_np",
       {"2"},
       [](const Options& o) {
         EXPECT_EQ(o.min_ranks, 2);
         EXPECT_EQ(o.on_join, OnJoin::kNow);
       }},
      {"--max_np",
       {"8"},
       [](const Options& o) {
         EXPECT_EQ(o.min_ranks, 4);
         EXPECT_EQ(o.num_ranks, 4);
         EXPECT_EQ(o.max_ranks, 8);
       },
       "",
       {"-np=4"}},
      {"--max_np", {"2"}, nullptr, "the fewest are not known; add --min_np N"},
      {"--host_discovery_script", {"./s"}, nullptr, "list all nodes in the hostfile"},
      {"--elastic_timeout", {"60"}, nullptr, "a restart waits 30 s"},
      {"--autotune", {}, nullptr, "set --fusion_threshold_mb"},
      {"--hierarchical_allreduce", {}, nullptr, "leave it out"},
      {"--config_file", {"c.yaml"}, nullptr, "--run_file takes a file"},
      {"--check_build", {}, nullptr, "dslaunch doctor"},
      {"--ssh_identity_file", {"id"}, nullptr, "IdentityFile"},

      // These are options of accelerate and mpirun.
      {"--num_processes", {"4"}, [](const Options& o) { EXPECT_EQ(o.num_ranks, 4); }},
      {"--num_processes",
       {"6"},
       [](const Options& o) {
         EXPECT_EQ(o.num_gpus, 3);
         EXPECT_EQ(o.num_nodes, 2);
         EXPECT_FALSE(o.num_ranks);
       },
       "",
       {"--num_machines=2"}},
      {"--num_processes", {"3"}, nullptr, "cannot be shared equally by 2 nodes", {"--nnodes=2"}},
      {"--num_processes", {"3"}, nullptr, "whose number is not known", {"--no_ssh"}},
      {"--num_processes", {"3"}, nullptr, "both set the number of ranks", {"-n2"}},
      SetsVariable("--mixed_precision", "bf16", "ACCELERATE_MIXED_PRECISION=bf16"),
      {"--mixed_precision", {"fp8"}, nullptr, "fp8 needs more than one variable"},
      {"--multi_gpu", {}, [](const Options& o) { EXPECT_TRUE(o.env.empty()); }},
      {"--use_env", {}, [](const Options& o) { EXPECT_TRUE(o.no_local_rank); }},
      {"--nested", {}, [](const Options& o) { EXPECT_TRUE(o.nested); }},
      {"--chdir", {"/d"}, [](const Options& o) { EXPECT_EQ(o.chdir, "/d"); }},
      {"--allow_run_as_root", {}, [](const Options& o) { EXPECT_TRUE(o.notices.empty()); }},
      {"--oversubscribe", {}, [](const Options& o) { EXPECT_TRUE(o.notices.empty()); }},
      {"--tag_output", {}, [](const Options& o) { EXPECT_TRUE(o.notices.empty()); }},
      {"--bind_to", {"none"}, [](const Options& o) { EXPECT_FALSE(o.bind_cores_to_rank); }},
      {"--bind_to", {"core"}, nullptr, "core is not supported: --bind_cores_to_rank"},
      {"--map_by", {"slot"}, [](const Options& o) { EXPECT_FALSE(o.num_gpus); }},
      {"--map_by", {"ppr:4:node"}, nullptr, "--num_gpus N starts N ranks on each node"},

      // These flags select nodes and ranks.
      {"--hostfile", {"/h f"}, [](const Options& o) { EXPECT_EQ(o.hostfile, "/h f"); }},
      {"--include", {"w0@w1:0,2"}, [](const Options& o) { EXPECT_EQ(o.include, "w0@w1:0,2"); }},
      {"--include",
       {""},
       [](const Options& o) {
         EXPECT_FALSE(o.include);
         EXPECT_THAT(o.notices, ElementsAre("--include is empty and is ignored"));
       }},
      {"--exclude", {"w1:0"}, [](const Options& o) { EXPECT_EQ(o.exclude, "w1:0"); }},
      {"--num_nodes", {"3"}, [](const Options& o) { EXPECT_EQ(o.num_nodes, 3); }},
      {"--min_elastic_nodes",
       {"2"},
       [](const Options& o) {
         EXPECT_EQ(o.min_nodes, 2);
         EXPECT_FALSE(o.max_nodes || o.num_nodes);
       }},
      {"--max_elastic_nodes",
       {"4"},
       [](const Options& o) {
         EXPECT_EQ(o.min_nodes, 1);
         EXPECT_EQ(o.max_nodes, 4);
       },
       "",
       {"--num_nodes=4"}},
      {"--elastic_training",
       {},
       [](const Options& o) {
         EXPECT_EQ(o.min_nodes, 1);
         EXPECT_EQ(o.max_nodes, 4);
         EXPECT_FALSE(o.num_nodes);
       },
       "",
       {"--num_nodes=4"}},
      {"--nnodes", {"2"}, [](const Options& o) { EXPECT_EQ(o.num_nodes, 2); }},
      {"--nnodes",
       {"1:4"},
       [](const Options& o) {
         EXPECT_EQ(o.min_nodes, 1);
         EXPECT_EQ(o.max_nodes, 4);
       }},
      {"--num_gpus", {"8"}, [](const Options& o) { EXPECT_EQ(o.num_gpus, 8); }},
      {"--nproc_per_node", {"8"}, [](const Options& o) { EXPECT_EQ(o.num_gpus, 8); }},
      {"--nproc_per_node",
       {"auto"},
       [](const Options& o) { EXPECT_EQ(o.slots_from, SlotsFrom::kAuto); }},
      {"--nproc_per_node",
       {"cpu"},
       [](const Options& o) { EXPECT_EQ(o.slots_from, SlotsFrom::kCpu); }},
      {"--nproc_per_node",
       {"gpu"},
       [](const Options& o) { EXPECT_EQ(o.slots_from, SlotsFrom::kGpu); }},
      {"--nproc_per_node", {"xpu"}, nullptr, "xpu is not supported: dslaunch cannot detect XPUs"},
      {"--master_addr", {"w0"}, [](const Options& o) { EXPECT_EQ(o.master_addr, "w0"); }},
      {"--master_addr", {""}, [](const Options& o) { EXPECT_FALSE(o.master_addr); }},
      {"--master_port", {"6000"}, [](const Options& o) { EXPECT_EQ(o.master_port, 6000); }},

      // These flags select the way to reach nodes.
      {"--launcher", {"ssh"}, [](const Options& o) { EXPECT_EQ(o.launcher, Launcher::kSsh); }},
      {"--launcher", {"PDSH"}, [](const Options& o) { EXPECT_EQ(o.launcher, Launcher::kPdsh); }},
      {"--launcher",
       {"openmpi"},
       [](const Options& o) { EXPECT_EQ(o.launcher, Launcher::kOpenMpi); }},
      {"--launcher",
       {"mpich"},
       nullptr,
       "mpich is not supported: dslaunch reaches the nodes over SSH"},
      {"--launcher", {"impi"}, nullptr, "--launcher impi is not supported"},
      {"--launcher", {"mvapich"}, nullptr, "--launcher mvapich is not supported"},
      {"--launcher", {"slurm"}, [](const Options& o) { EXPECT_EQ(o.launcher, Launcher::kSlurm); }},
      {"--launcher_args",
       {"-v  -F /etc/my_config"},
       [](const Options& o) {
         EXPECT_THAT(o.ssh_command, ElementsAre("ssh", "-v", "-F", "/etc/my_config"));
       }},
      {"--launcher_args",
       {"--x y"},
       [](const Options& o) {
         EXPECT_THAT(o.ssh_command, ElementsAre("/bin/ssh", "-4", "--x", "y"));
       },
       "",
       {"--ssh_command=/bin/ssh -4"}},
      {"--launcher_args",
       {"--mca btl tcp"},
       [](const Options& o) {
         EXPECT_TRUE(o.ssh_command.empty());
         EXPECT_THAT(o.launcher_args, ElementsAre("--mca", "btl", "tcp"));
       },
       "",
       {"--launcher=openmpi"}},
      {"--slurm_args",
       {"-N4 -t 10"},
       [](const Options& o) { EXPECT_THAT(o.slurm_args, ElementsAre("-N4", "-t", "10")); },
       "",
       {"--launcher=slurm"}},
      {"--slurm_args", {"-N4"}, nullptr, "--slurm_args is for --launcher slurm"},
      {"--mpi_env", {}, [](const Options& o) { EXPECT_TRUE(o.mpi_env); }},
      {"--launcher_args", {""}, [](const Options& o) { EXPECT_TRUE(o.ssh_command.empty()); }},
      {"--ssh_port", {"2222"}, [](const Options& o) { EXPECT_EQ(o.ssh_port, 2222); }},
      {"--force_multi", {}, [](const Options& o) { EXPECT_TRUE(o.force_multi); }},
      {"--no_ssh_check", {}, [](const Options& o) { EXPECT_FALSE(o.per_node); }},

      // Jobs without SSH.
      {"--no_ssh",
       {},
       [](const Options& o) {
         ASSERT_TRUE(o.per_node);
         EXPECT_EQ(o.per_node->node_rank, 1);
         EXPECT_EQ(o.per_node->host, "w0");
       },
       "",
       {"--num_nodes=2", "--node_rank=1", "--master_addr=w0"}},
      {"--node_rank",
       {"1"},
       [](const Options& o) {
         ASSERT_TRUE(o.per_node);
         EXPECT_EQ(o.per_node->node_rank, 1);
         EXPECT_EQ(o.per_node->port, 29500);
         EXPECT_EQ(o.num_gpus, 1);
       },
       "",
       {"--nnodes=2", "--master_addr=w0"}},
      {"--rdzv_endpoint",
       {"w0:1234"},
       [](const Options& o) {
         ASSERT_TRUE(o.per_node);
         EXPECT_EQ(o.per_node->host, "w0");
         EXPECT_EQ(o.per_node->port, 1234);
         EXPECT_FALSE(o.per_node->node_rank);
       },
       "",
       {"--nnodes=2"}},
      {"--rdzv_endpoint",
       {"w0:1234"},
       [](const Options& o) {
         EXPECT_EQ(o.per_node->host, "w0");
         EXPECT_FALSE(o.master_addr);
         EXPECT_THAT(o.notices, testing::Contains(
                                    "--master_addr is not used: --rdzv_endpoint has the address"));
       },
       "",
       {"--nnodes=2", "--master_addr=other"}},
      {"--rdzv_backend",
       {"static"},
       [](const Options& o) { EXPECT_EQ(o.per_node->port, 29500); },
       "",
       {"--nnodes=2", "--rdzv_endpoint=w0"}},
      {"--rdzv_backend",
       {"c10d"},
       [](const Options& o) { EXPECT_EQ(o.per_node->port, 29400); },
       "",
       {"--nnodes=2", "--rdzv_endpoint=w0"}},
      {"--rdzv_backend", {"etcd"}, nullptr, "--rdzv_backend etcd is not supported"},
      {"--rdzv_backend", {"etcd-v2"}, nullptr, "no etcd is needed; leave it out or give c10d"},
      {"--rdzv_id",
       {"a b"},
       [](const Options& o) { EXPECT_EQ(o.per_node->id, "a b"); },
       "",
       {"--nnodes=2", "--rdzv_endpoint=w0"}},
      {"--rdzv_conf",
       {"timeout=5,last_call_timeout=3,is_host=0"},
       [](const Options& o) {
         EXPECT_EQ(o.per_node->join_timeout_ms, 5000);
         EXPECT_EQ(o.per_node->last_call_ms, 3000);
         EXPECT_EQ(o.per_node->is_host, false);
       },
       "",
       {"--nnodes=2", "--rdzv_endpoint=w0"}},
      {"--rdzv_conf",
       {"join_timeout=7,last_call_timeout=30,close_timeout=30,read_timeout=60,store_type=tcp"},
       [](const Options& o) { EXPECT_EQ(o.connect_timeout_ms, 7000); }},
      {"--rdzv_conf",
       {"keep_alive_interval=1,keep_alive_max_attempt=4"},
       [](const Options& o) {
         EXPECT_EQ(o.heartbeat_ms, 1000);
         EXPECT_EQ(o.dead_ms, 4000);
       }},
      {"--rdzv_conf",
       {"keep_alive_max_attempt=4"},
       [](const Options& o) { EXPECT_EQ(o.dead_ms, 20'000); }},
      {"--rdzv_conf", {"close_timeout=5"}, nullptr, "close_timeout is not supported"},
      {"--rdzv_conf", {"heartbeat_timeout=9"}, nullptr, "--dead_s sets how long"},
      {"--rdzv_conf", {"read_timeout=5"}, nullptr, "read_timeout is not supported"},
      {"--rdzv_conf", {"store_type=file"}, nullptr, "store_type is not supported"},
      {"--rdzv_conf", {"rank=1"}, nullptr, "--node_rank sets it"},
      {"--rdzv_conf", {"cacert=/x"}, nullptr, "cacert is not supported"},
      {"--rdzv_conf", {"join_timout=5"}, nullptr, "did you mean join_timeout?"},
      {"--rdzv_conf", {"join_timeout"}, nullptr, "must be KEY=VALUE"},
      {"--rdzv_conf", {"is_host=maybe"}, nullptr, "is_host must be one of"},
      {"--standalone",
       {},
       [](const Options& o) {
         EXPECT_EQ(o.launcher, Launcher::kLocal);
         EXPECT_EQ(o.num_nodes, 1);
         EXPECT_EQ(o.num_gpus, 1);
       }},
      {"--local_addr",
       {"10.0.0.7"},
       [](const Options& o) { EXPECT_EQ(o.local_addr, "10.0.0.7"); },
       "",
       {"--nnodes=2", "--rdzv_endpoint=w0"}},
      {"--local_addr",
       {"127.0.0.1"},
       [](const Options& o) { EXPECT_EQ(o.master_addr, "127.0.0.1"); }},

      // These flags describe the program.
      {"--module", {}, [](const Options& o) { EXPECT_EQ(o.form, ProgramForm::kModule); }},
      {"--no_python", {}, [](const Options& o) { EXPECT_EQ(o.form, ProgramForm::kPlain); }},
      {"--run_path", {}, [](const Options& o) { EXPECT_EQ(o.form, ProgramForm::kPath); }},
      {"--run_path",
       {},
       [](const Options& o) { EXPECT_EQ(o.form, ProgramForm::kPath); },
       "",
       {"--no_python"}},
      {"--no_local_rank", {}, [](const Options& o) { EXPECT_TRUE(o.no_local_rank); }},
      {"--virtual_local_rank", {}, [](const Options& o) { EXPECT_TRUE(o.virtual_local_rank); }},
      {"--role", {"trainer"}, [](const Options& o) { EXPECT_EQ(o.role, "trainer"); }},
      {"--venv_script",
       {"/v/activate"},
       [](const Options& o) { EXPECT_EQ(o.venv_script, "/v/activate"); }},
      {"--bind_cores_to_rank", {}, [](const Options& o) { EXPECT_TRUE(o.bind_cores_to_rank); }},
      {"--bind_core_list",
       {"1,3-5,7"},
       [](const Options& o) { EXPECT_EQ(o.bind_core_list, "1,3-5,7"); },
       "",
       {"--bind_cores_to_rank"}},
      {"--numa_binding",
       {"node"},
       [](const Options& o) { EXPECT_EQ(o.numa_binding, NumaBinding::kNode); }},
      {"--numa_binding",
       {"socket"},
       [](const Options& o) { EXPECT_EQ(o.numa_binding, NumaBinding::kSocket); }},
      {"--numa_binding",
       {"exclusive"},
       [](const Options& o) { EXPECT_EQ(o.numa_binding, NumaBinding::kExclusive); }},
      {"--numa_binding",
       {"core-complex"},
       [](const Options& o) { EXPECT_EQ(o.numa_binding, NumaBinding::kCoreComplex); }},
      {"--start_method",
       {"forkserver"},
       [](const Options& o) { EXPECT_EQ(o.form, ProgramForm::kAuto); }},
      {"--start_method", {"fork"}, nullptr, "not supported with --run_path", {"--run_path"}},

      // These flags select the output.
      {"--tee", {"0:3,1:1"}, [](const Options& o) { EXPECT_TRUE(o.shown_ranks.all); }},
      {"-t", {"3"}, [](const Options& o) { EXPECT_TRUE(o.shown_ranks.all); }},
      {"--redirects",
       {"2"},
       [](const Options& o) {
         EXPECT_TRUE(o.shown_ranks.all);
         EXPECT_EQ(o.log_only.of_others, RankStreams::kStderr);
       }},
      {"--local_ranks_filter",
       {"2,0"},
       [](const Options& o) { EXPECT_THAT(*o.local_ranks_shown, ElementsAre(0, 2)); }},
      {"--duplicate_stdout_filters",
       {"loss,a,,b"},
       [](const Options& o) { EXPECT_THAT(o.stdout_filters, ElementsAre("loss", "a,b")); }},
      {"--duplicate_stderr_filters",
       {"Error"},
       [](const Options& o) { EXPECT_THAT(o.stderr_filters, ElementsAre("Error")); }},
      {"--log_dir", {"/l"}, [](const Options& o) { EXPECT_EQ(o.log_dir, "/l"); }},
      {"--enable_each_rank_log", {"/l"}, [](const Options& o) { EXPECT_EQ(o.log_dir, "/l"); }},
      {"--enable_each_rank_log", {"None"}, [](const Options& o) { EXPECT_EQ(o.log_dir, ""); }},
      {"--quiet",
       {},
       [](const Options& o) { EXPECT_EQ(o.log_level, LogLevel::kError); },
       "",
       {"--log_level=debug"}},
      {"--log_level",
       {"debug"},
       [](const Options& o) { EXPECT_EQ(o.log_level, LogLevel::kDebug); }},
      {"--log_level", {"info"}, [](const Options& o) { EXPECT_EQ(o.log_level, LogLevel::kInfo); }},
      {"--log_level",
       {"warning"},
       [](const Options& o) { EXPECT_EQ(o.log_level, LogLevel::kWarning); }},
      {"--log_level",
       {"error"},
       [](const Options& o) { EXPECT_EQ(o.log_level, LogLevel::kError); }},
      {"--log_level",
       {"critical"},
       [](const Options& o) { EXPECT_EQ(o.log_level, LogLevel::kError); }},
      {"--save_pid", {}, [](const Options& o) { EXPECT_TRUE(o.save_pid); }},
      {"--logs_specs", {"mine"}, nullptr, "--logs_specs is not supported: it names a Python class"},

      {"--stdin", {"0"}, [](const Options& o) { EXPECT_EQ(o.stdin_to_rank_0, true); }},
      {"--stdin", {"none"}, [](const Options& o) { EXPECT_EQ(o.stdin_to_rank_0, false); }},
      {"--stdin", {"1"}, nullptr, "--stdin"},
      {"--pty", {}, [](const Options& o) { EXPECT_TRUE(o.pty); }},

      // These flags concern failures.
      {"--stop_signal", {"SIGUSR1"}, [](const Options& o) { EXPECT_EQ(o.stop_signal, SIGUSR1); }},
      {"--stop_signal", {"auto"}, [](const Options& o) { EXPECT_EQ(o.stop_signal, 0); }},
      {"--stop_signal", {"SIGKILL"}, nullptr, "--stop_signal"},
      {"--max_restarts", {"3"}, [](const Options& o) { EXPECT_EQ(o.max_restarts, 3); }},
      {"--monitor_interval", {"0.1"}, [](const Options& o) { EXPECT_EQ(o.heartbeat_ms, 1000); }},
      {"--monitor_interval", {"0"}, nullptr, "--monitor_interval must be a number"},
      {"--event_log_handler", {"null"}, [](const Options& o) { EXPECT_FALSE(o.json); }},
      {"--event_log_handler",
       {"console"},
       nullptr,
       "events.jsonl next to the logs has every event"},
      {"--signals_to_handle",
       {"SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGXCPU,SIGUSR1,SIGUSR2"},
       [](const Options& o) { EXPECT_EQ(o.grace_ms, 10'000); }},
      {"--signals_to_handle", {"SIGTERM,SIGWINCH"}, nullptr, "'SIGWINCH' is not handled"},
      {"--signals_to_handle", {"SIGUSR"}, nullptr, "did you mean SIGUSR1?"},
      {"--autotuning", {"tune"}, nullptr, "--autotuning is for recipes of the built-in trainer"},
      {"--autotuning", {"run"}, nullptr, "run deepspeed --autotuning"},
      {"--autotuning", {"on"}, nullptr, "--autotuning must be one of tune, run, not 'on'"},
      {"--autotuning", {""}, [](const Options& o) { EXPECT_FALSE(o.dry_run); }},
  };
  return cases;
}

Result<LaunchOptions> Parse(std::vector<std::string> words, bool with_dashes) {
  std::vector<const char*> argv = {"dslaunch"};
  for (std::string& word : words) {
    const size_t end = std::min(word.find('='), word.size());
    if (with_dashes && word.starts_with("--")) {
      std::replace(word.begin() + 2, word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    }
    argv.push_back(word.c_str());
  }
  argv.push_back("train.py");
  argv.push_back("--num_gpus");  // an argument of the program, which dslaunch must not read
  return ParseOptions(static_cast<int>(argv.size()), argv.data());
}

void Check(const Case& c, const Result<LaunchOptions>& parsed) {
  if (c.effect != nullptr) {
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_THAT(parsed->program, ElementsAre("train.py", "--num_gpus"));
    c.effect(*parsed);
    return;
  }
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, ExitCode::kUsage);
  EXPECT_THAT(parsed.error().message, HasSubstr(c.flag));
  EXPECT_THAT(parsed.error().message, HasSubstr(c.refusal));
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
}

// Returns all names of the option whose main name is `flag`.
std::vector<std::string> Spellings(const std::string& flag) {
  std::set<std::string> names = {flag};
  for (const auto* tool : {&kDeepspeed, &kTorchrun, &kHorovodrun, &kOthers}) {
    for (const std::vector<std::string>& option : *tool) {
      if (option.front() == flag) names.insert(option.begin(), option.end());
    }
  }
  return {names.begin(), names.end()};
}

TEST(DropInFlags, HonoursOrRejectsEachFlag) {
  for (const Case& c : Cases()) {
    for (const std::string& spelling : Spellings(c.flag)) {
      for (const bool with_dashes : {false, true}) {
        std::vector<std::string> words = c.with;
        words.push_back(spelling);
        words.insert(words.end(), c.values.begin(), c.values.end());
        SCOPED_TRACE(testing::PrintToString(words) + (with_dashes ? " with dashes" : ""));
        Check(c, Parse(words, with_dashes));
        if (c.values.empty()) continue;
        words = c.with;
        words.push_back(spelling + (spelling.starts_with("--") ? "=" : "") + c.values.front());
        // Whether the value may follow directly, as in -n8.
        const bool joins = spelling.size() == 2 && !c.values.front().empty();
        if (spelling.starts_with("--") || joins) {
          Check(c, Parse(words, with_dashes));
        }
      }
    }
  }
}

TEST(DropInFlags, TestsCoverEveryFlag) {
  std::set<std::string> tested;
  for (const Case& c : Cases()) tested.insert(c.flag);
  const struct {
    const std::vector<std::vector<std::string>>& options;
    bool OptionSpec::*has;
  } tools[] = {{kDeepspeed, &OptionSpec::deepspeed},
               {kTorchrun, &OptionSpec::torchrun},
               {kHorovodrun, &OptionSpec::horovod}};
  for (const auto& tool : tools) {
    std::vector<std::string> theirs, ours;
    for (const std::vector<std::string>& names : tool.options) {
      theirs.push_back(names.front());
      EXPECT_TRUE(tested.contains(names.front())) << names.front();
    }
    for (const OptionSpec& spec : LaunchOptionTable()) {
      if (spec.*tool.has) ours.emplace_back(NameOf(spec));
    }
    EXPECT_THAT(ours, UnorderedElementsAreArray(theirs));
  }
}

TEST(DropInFlags, RejectionsNameTheReplacement) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"-mca", "btl", "self"}, "option '-mca' is not supported: Open MPI reads its parameters"},
      {{"--mca", "btl", "self"}, "-x OMPI_MCA_NAME=VALUE"},
      {{"-rf", "f"}, "--bind_cores_to_rank"},
      {{"--report-bindings"}, "--dry_run"},
      {{"--gloo-timeout-seconds=30"}, "-x HOROVOD_GLOO_TIMEOUT_SECONDS=N"},
      {{"--blacklist_cooldown_range", "1", "2"}, "leave it out"},
      {{"--autotune-log-file", "f"}, "there is no autotuning"},
      {{"--verbose"}, "--log_level debug"},
      {{"-p", "22"}, "--ssh_port"},
      {{"-cb"}, "dslaunch doctor"},
      {{"-env", "A", "1"}, "-x NAME=VALUE"},
      {{"-genv", "A", "1"}, "-x NAME=VALUE"},
      {{"--use_fsdp"}, "a setting of accelerate's"},
      {{"--fsdp_sharding_strategy", "1"}, "a setting of accelerate's"},
      {{"--zero3_init_flag", "true"}, "a setting of accelerate's"},
      {{"--gpu_ids", "0,1"}, "CUDA_VISIBLE_DEVICES"},
      {{"--num_cpu_threads_per_process", "4"}, "-x OMP_NUM_THREADS=N"}};
  for (const auto& [words, remedy] : cases) {
    for (const bool with_dashes : {false, true}) {
      const Result<LaunchOptions> parsed = Parse(words, with_dashes);
      ASSERT_FALSE(parsed.ok()) << words.front();
      EXPECT_THAT(parsed.error().message, HasSubstr(remedy));
    }
  }
}

TEST(DropInFlags, ReadsSameVariablesAsTorchrun) {
  for (const OptionSpec& spec : LaunchOptionTable()) {
    const std::string name(NameOf(spec));
    const bool expected =
        spec.torchrun && std::ranges::find(kWithoutVariable, name) == kWithoutVariable.end();
    EXPECT_EQ(spec.pet, expected) << name;
  }
}

TEST(DropInFlags, RandomWordsGiveOptionsOrOneLineError) {
  std::mt19937 random(7);
  const auto below = [&](size_t bound) { return random() % bound; };
  std::vector<std::string> words = {"",     "0",       "1",   "2:3",   "-1",  "h:1",
                                    "a=b",  "0:3,1:1", "all", "[fe80", "ssh", "@",
                                    "\xff", "'x",      "--",  "=",     "p.py"};
  for (const OptionSpec& spec : LaunchOptionTable()) {
    if (NameOf(spec) == "--run_file") continue;  // because errors in a file have another form
    for (const std::string& name : NamesOf(spec)) {
      words.push_back(name);
      words.push_back(name + "=" + words[below(17)]);
      words.push_back(name.substr(0, below(name.size() + 1)));
    }
  }
  for (int i = 0; i < 3'000; ++i) {
    std::vector<const char*> argv = {"dslaunch"};
    for (size_t left = below(7); left > 0; --left)
      argv.push_back(words[below(words.size())].c_str());
    const auto parsed = ParseOptions(static_cast<int>(argv.size()), argv.data());
    if (parsed.ok()) continue;
    EXPECT_EQ(parsed.error().code, ExitCode::kUsage);
    EXPECT_THAT(parsed.error().message, HasSubstr("ee dslaunch "));
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos) << parsed.error().message;
  }
}

TEST(DropInFlags, ReadsWholeCommandLinesOfEachTool) {
  const auto parse = [](std::vector<std::string> words) {
    const Result<LaunchOptions> parsed = Parse(std::move(words), false);
    EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    return parsed.ok() ? *parsed : LaunchOptions();
  };
  const LaunchOptions deepspeed =
      parse({"-H", "/job/hostfile", "--num_nodes=2", "--num_gpus", "8", "--master_port=29600",
             "--no_ssh_check", "--bind_cores_to_rank", "--enable_each_rank_log", "logs", "-q"});
  EXPECT_EQ(deepspeed.num_nodes, 2);
  EXPECT_EQ(deepspeed.num_gpus, 8);
  EXPECT_TRUE(deepspeed.notices.empty());
  EXPECT_FALSE(deepspeed.per_node || deepspeed.launcher);
  const LaunchOptions horovodrun =
      parse({"-np", "6", "-H", "w0:4,w1:4", "--start-timeout", "30", "-np=5"});
  EXPECT_EQ(horovodrun.num_ranks, 5);
  EXPECT_EQ(horovodrun.hosts, "w0 slots=4\nw1 slots=4\n");
  EXPECT_EQ(horovodrun.connect_timeout_ms, 30'000);
  const LaunchOptions torchrun =
      parse({"--nnodes=2", "--nproc_per_node=8", "--rdzv-backend=c10d", "--rdzv-endpoint=h:29400",
             "--rdzv-id=100", "--max-restarts=3", "-r", "3", "-t", "0:1"});
  ASSERT_TRUE(torchrun.per_node);
  EXPECT_EQ(torchrun.log_only.Of(0), RankStreams::kStderr);
  EXPECT_EQ(torchrun.log_only.Of(1), RankStreams::kBoth);
  EXPECT_TRUE(torchrun.notices.empty());
}

}  // namespace
}  // namespace dslaunch::option_flags_test
