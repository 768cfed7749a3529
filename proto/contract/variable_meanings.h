// Describes the environment variables that dslaunch sets and reads. docs/reference is generated
// from these tables.
#pragma once

namespace dslaunch {

struct VariableMeaning {
  const char* name;
  const char* meaning;  // description without a period at the end
};

// Variables that are set for every rank (WorkerEnv). A variable described as "default" does not
// override a value from the node or the user.
inline constexpr VariableMeaning kRankVariables[] = {
    {"RANK", "the rank, from 0"},
    {"WORLD_SIZE", "ranks of the job"},
    {"LOCAL_RANK", "position on its node, from 0"},
    {"LOCAL_WORLD_SIZE", "ranks of its node"},
    {"LOCAL_SIZE", "same value as LOCAL_WORLD_SIZE"},
    {"GROUP_RANK", "position of its node among the nodes"},
    {"GROUP_WORLD_SIZE", "nodes of the job"},
    {"CROSS_RANK", "same value as GROUP_RANK"},
    {"CROSS_SIZE", "same value as GROUP_WORLD_SIZE"},
    {"ROLE_NAME", "value of --role, or default"},
    {"ROLE_RANK", "number of the rank among the ranks of that role"},
    {"ROLE_WORLD_SIZE", "number of ranks of that role"},
    {"MASTER_ADDR", "numeric address of rank 0's node"},
    {"MASTER_PORT", "port on that node for the ranks' store"},
    {"TORCHELASTIC_RESTART_COUNT", "number of restarts so far"},
    {"TORCHELASTIC_MAX_RESTARTS", "number of allowed restarts"},
    {"TORCHELASTIC_RUN_ID", "value of --rdzv_id, or the job's id"},
    {"TORCHELASTIC_USE_AGENT_STORE", "False: rank 0 hosts the store"},
    {"TORCHELASTIC_ERROR_FILE", "where torchelastic's @record writes its error.json"},
    {"DSLAUNCH_JOB_ID", "the job's id"},
    {"DSLAUNCH_ATTEMPT", "number of the attempt, a start of all ranks, from 1"},
    {"DSLAUNCH_EPOCH", "former name of DSLAUNCH_ATTEMPT; the next version removes it"},
    {"DSLAUNCH_COPY_DIR", "folder of the files that --copy and --copy_dir copied to the node"},
    {"DSLAUNCH_RANK_DIR",
     "private folder of this rank in this attempt, for files that a report reads"},
    {"DSLAUNCH_RANK_SOCKET",
     "Unix socket of the node's agent, which provides connections to other ranks; empty: there is "
     "none"},
    {"DSLAUNCH_STATUS_FD", "descriptor for status lines"},
    {"DSLAUNCH_MEMORY_CHECKPOINT",
     "with --memory_checkpoint: steps between two copies of the state in memory"},
    {"DSLAUNCH_MEMORY_FDS",
     "with --memory_checkpoint: two descriptors of memory that outlives the rank"},
    {"OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE",
     "with --mpi_env: same values as RANK, WORLD_SIZE"},
    {"OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_NODE_RANK, OMPI_COMM_WORLD_LOCAL_SIZE",
     "with --mpi_env: same values as LOCAL_RANK, LOCAL_RANK, LOCAL_WORLD_SIZE"},
    {"PMIX_*, PMI_*, MPI_LOCALRANKID, MPI_LOCALNRANKS",
     "with several ranks, unless --mpi none: how a rank that uses MPI finds its server"},
    {"CUDA_VISIBLE_DEVICES", "the node's devices that the job uses, if it uses GPUs"},
    {"HIP_VISIBLE_DEVICES", "AMD: the same; both count what ROCR_VISIBLE_DEVICES shows"},
    {"ZE_AFFINITY_MASK, ASCEND_RT_VISIBLE_DEVICES, HABANA_VISIBLE_MODULES, MLU_VISIBLE_DEVICES",
     "Intel, Ascend, Gaudi, Cambricon: the same"},
    {"GPU_DEVICE_ORDINAL", "AMD: the same, if it is set"},
    {"OMP_NUM_THREADS", "default: the node's cores divided by its ranks"},
    {"PYTHONUNBUFFERED", "default 1"},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "default 1"},
    {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE, TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
     "default: beginning of paths in the rank's folder, by which the cause of a hang is asked for"},
    {"GLOO_SOCKET_IFNAME",
     "default: the interface towards rank 0's node, or towards --master_addr if that has an "
     "address"},
    {"NCCL_SOCKET_IFNAME", "default: same value as GLOO_SOCKET_IFNAME"},
    {"CCL_KVS_IFACE, HCCL_SOCKET_IFNAME",
     "Intel; Ascend and Gaudi: default: same value as GLOO_SOCKET_IFNAME"},
    {"VIRTUAL_ENV, CONDA_PREFIX, PATH",
     "the Python environment that is active in the front end, if any"},
    {"PWD", "the rank's folder"},
};

// Variables that the front end reads.
inline constexpr VariableMeaning kFrontEndVariables[] = {
    {"PET_*", "an option of torchrun, if neither the command line nor the launch file has it"},
    {"DS_ENV_FILE", "name of the file with variables for the ranks; default .deepspeed_env"},
    {"DSLAUNCH_RDZV_TOKEN_FD",
     "without SSH: descriptor with the secret, instead of --rdzv_token_file"},
    {"TORCHELASTIC_ERROR_FILE", "file for the first cause of a failed job, as JSON"},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "the prefix of each line of a rank"},
    {"SLURM_JOB_NODELIST, SLURM_NODELIST, SLURM_JOB_NUM_NODES, SLURM_NNODES",
     "--launcher slurm, hostfile write --slurm: the nodes of the allocation"},
    {"SLURM_HET_SIZE, SLURM_*_HET_GROUP_N",
     "the nodes of the components of a heterogeneous allocation"},
    {"PBS_NODEFILE, LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS, PE_HOSTFILE",
     "the nodes of a job of PBS, LSF or SGE, if no option gives them"},
    {"SLURM_JOB_ID, SLURM_STEP_NUM_TASKS", "--launcher slurm: whether there is an allocation"},
    {"SLURM_CONF", "--launcher slurm: file that may contain SrunPortRange"},
    {"JOB_COMPLETION_INDEX",
     "without SSH: the node rank in a pod of Kubernetes, if no option gives it"},
    {"PDSH_RCMD_TYPE", "--launcher pdsh: how pdsh reaches nodes; default ssh"},
    {"SLURM_PROCID, SLURM_NODEID, SLURM_STEP_ID, SLURM_STEP_NODELIST",
     "srun of dslaunch on each node: which node of the job this command is"},
    {"SLURM_NTASKS, SLURM_TASKS_PER_NODE, SLURM_GPUS_ON_NODE, SLURM_GPUS_PER_NODE, "
     "SLURM_JOB_CPUS_PER_NODE",
     "--launcher slurm: the slots of its nodes; scontrol lists the GPUs of each"},
    {"SSH_AUTH_SOCK", "the SSH agent"},
    {"HOME, USER, LOGNAME", "the user"},
    {"XDG_STATE_HOME", "parent of the jobs' folders; default ~/.local/state"},
    {"XDG_CACHE_HOME", "where the agent's digest is kept between starts; default ~/.cache"},
    {"HF_HOME",
     "--accelerate_config default: where accelerate/default_config.yaml is; default huggingface in "
     "XDG_CACHE_HOME"},
    {"PATH", "where ssh, Python and programs are"},
    {"PWD", "the name of the current folder, if it is that folder"},
    {"VIRTUAL_ENV, CONDA_PREFIX", "the Python environment for the ranks on all nodes"},
    {"TMPDIR",
     "MPI programs: folder for data that ranks of a node share; default /dev/shm, or else /tmp"},
    {"LD_LIBRARY_PATH", "MPI programs: folders with OpenPMIx's library, besides the system's"},
    {"TERM", "whether the terminal can redraw a line"},
    {"NO_COLOR", "if not empty, terminals get no colours"},
    {"PAGER", "program that shows pages of dslaunch help on a terminal; default less"},
    {"LESS", "options of less; default FRX"},
};

// Variables that the front end and agents read; each of these processes reads them for its own
// machine's devices.
inline constexpr VariableMeaning kDeviceVariables[] = {
    {"CUDA_VISIBLE_DEVICES", "the devices of the machine that dslaunch may use"},
    {"ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK, ASCEND_RT_VISIBLE_DEVICES, "
     "HABANA_VISIBLE_MODULES, MLU_VISIBLE_DEVICES",
     "the same for AMD, Intel, Ascend, Gaudi and Cambricon"},
    {"ZE_FLAT_DEVICE_HIERARCHY", "Intel: COMPOSITE counts GPUs, any other value their tiles"},
    {"SLURM_STEP_GPUS, SLURM_JOB_GPUS, FLUX_JOB_ID",
     "if set: numbers of --include count the devices that the batch system gave"},
};

// Variables that a node's agent reads, besides kDeviceVariables, PATH, HOME and XDG_STATE_HOME.
inline constexpr VariableMeaning kNodeVariables[] = {
    {"PYTHON_EXEC", "the Python that runs scripts"},
    {"VIRTUAL_ENV", "without PYTHON_EXEC: the environment whose Python runs scripts"},
    {"XDG_RUNTIME_DIR", "folder of the socket of a detached job"},
    {"KMP_AFFINITY",
     "--bind_cores_to_rank warns about it, because it binds threads to other cores"},
};

// Variables that the trainer and programs with the SDK read, besides the variables of every rank.
inline constexpr VariableMeaning kTrainerVariables[] = {
    {"DSLAUNCH_RECIPE", "the recipe as JSON; dslaunch sets it"},
    {"DSLAUNCH_STORE_FD",
     "descriptor that listens at MASTER_PORT; --master_listen_fd and Spawn set it for rank 0"},
    {"DSLAUNCH_SHM_DISABLE", "1: ranks of one host do not share memory"},
    {"GLOO_SOCKET_IFNAME", "the network interface over which ranks of other nodes connect"},
    {"SLURM_JOB_ID, SLURM_RESTART_COUNT",
     "lets a requeued job take over its checkpoint folder at once"},
    {"OMP_NUM_THREADS", "threads of a rank that Spawn starts"},
    {"HOROVOD_CYCLE_TIME", "dslaunch/horovod.h: ms between agreements on tensors; default 1"},
    {"HOROVOD_FUSION_THRESHOLD", "dslaunch/horovod.h: bytes of tensors that are exchanged as one"},
    {"HOROVOD_CACHE_CAPACITY",
     "dslaunch/horovod.h: number of tensors whose agreement is remembered"},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS",
     "dslaunch/horovod.h: after this time a rank that does not submit a tensor is named"},
    {"HOROVOD_STALL_CHECK_DISABLE", "dslaunch/horovod.h: not 0: such a rank is not named"},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
     "dslaunch/horovod.h: after this time the job ends; 0: never"},
    {"HOROVOD_TIMELINE", "dslaunch/horovod.h: file for a timeline in Chrome's trace format"},
    {"TORCH_CPP_LOG_LEVEL", "LibTorch's own log level; default: errors only"},
};

}  // namespace dslaunch
