#include "cli/options/parsed_flags.h"

#include <iterator>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr int kTorchrunPort = 29'400;  // default port of --rdzv_endpoint
constexpr int64_t kTorchrunKeepAliveMs = 5'000;
constexpr int kTorchrunKeepAliveAttempts = 3;

// Returns the first of `names` that the user gave; nullptr if none was given.
const char* FirstGiven(const ParsedFlags& flags, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (flags.given.contains(name)) return name;
  }
  return nullptr;
}

Result<void> DecideNodes(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (flags.given.contains("--nnodes")) options.num_nodes_name = "--nnodes";
  if (flags.given.contains("--nproc_per_node")) options.num_gpus_name = "--nproc_per_node";
  const std::optional<int> number =
      flags.nnodes && !flags.nnodes->max ? flags.nnodes->min : flags.num_nodes;
  const bool by_range = flags.min_elastic || flags.max_elastic || flags.elastic_training;
  if (flags.nnodes && flags.nnodes->max) {
    options.min_nodes = flags.nnodes->min;
    options.max_nodes = flags.nnodes->max;
  } else if (by_range) {
    if (number && flags.max_elastic && *number != *flags.max_elastic) {
      return WrongUse("--num_nodes " + std::to_string(*number) + " and --max_elastic_nodes " +
                      std::to_string(*flags.max_elastic) +
                      " both set the greatest number of nodes; give one of them");
    }
    options.min_nodes = flags.min_elastic.value_or(1);
    options.max_nodes = flags.max_elastic ? flags.max_elastic : number;
    if (options.max_nodes && *options.min_nodes > *options.max_nodes) {
      return WrongUse("--min_elastic_nodes " + std::to_string(*options.min_nodes) +
                      " is more than the " + std::to_string(*options.max_nodes) +
                      " nodes there may be; ask for fewer");
    }
  } else {
    options.num_nodes = number;
  }
  return {};
}

// Divides the processes equally among the nodes if their total is given, as accelerate does.
Result<void> DecideProcesses(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (!flags.num_processes) return {};
  const int processes = *flags.num_processes;
  const char* const per_node = FirstGiven(flags, {"--no_ssh", "--node_rank", "--rdzv_endpoint"});
  if (options.min_nodes || (!options.num_nodes && per_node != nullptr)) {
    return WrongUse("--num_processes counts the ranks of all nodes, whose number is not known " +
                    std::string("here; give --nproc_per_node N, the ranks of each node"));
  }
  if (!options.num_nodes) {
    options.num_ranks = processes;
    return {};
  }
  if (processes % *options.num_nodes != 0) {
    return WrongUse(
        "--num_processes " + std::to_string(processes) + " cannot be shared equally by " +
        Count(static_cast<size_t>(*options.num_nodes), "node") + "; give a multiple, or -np alone");
  }
  options.num_gpus = processes / *options.num_nodes;
  options.num_gpus_name = "--num_processes";
  return {};
}

// Applies the rules of horovodrun: the minimum defaults to -np, and nodes that join later are used
// at once.
Result<void> DecideRanks(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (!options.has_rank_range()) return {};
  if (!options.min_ranks) options.min_ranks = options.num_ranks;
  if (!options.min_ranks) {
    return WrongUse("--max_np " + std::to_string(*options.max_ranks) +
                    " is the most ranks, and the fewest are not known; add --min_np N");
  }
  const std::pair<const char*, std::optional<int>> rising[] = {
      {"--min_np", options.min_ranks}, {"-np", options.num_ranks}, {"--max_np", options.max_ranks}};
  for (size_t i = 0; i < std::size(rising); ++i) {
    for (size_t k = i + 1; k < std::size(rising); ++k) {
      if (!rising[k].second || !rising[i].second || *rising[i].second <= *rising[k].second)
        continue;
      const auto text = [](const auto& option) {
        return std::string(option.first) + " (" + std::to_string(*option.second) + ")";
      };
      return WrongUse(text(rising[i]) + " is more than " + text(rising[k]) +
                      "; lower the first or raise the second");
    }
  }
  if (!flags.given.contains("--on_join")) options.on_join = OnJoin::kNow;
  return {};
}

void OneNodeHere(LaunchOptions& options) {
  options.launcher = Launcher::kLocal;
  options.num_nodes = 1;
  options.min_nodes.reset();
  options.max_nodes.reset();
}

// Sets the default to one process per node, as torchrun does.
void CountAsTorchrun(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  const char* word = FirstGiven(flags, {"--standalone", "--rdzv_endpoint", "--rdzv_backend",
                                        "--rdzv_id", "--rdzv_conf", "--nnodes"});
  const bool has_slots = options.hostfile || !options.hosts.empty();
  if (options.num_gpus || options.slots_from || has_slots) return;
  if (word == nullptr && (!flags.replaces_torchrun || options.num_ranks)) return;
  options.num_gpus = 1;
  const std::string with = word == nullptr ? "" : std::string(" with ") + word;
  options.notices.push_back("1 rank per node, as torchrun" + with +
                            " starts it; --nproc_per_node auto starts one per GPU or core");
}

// Uses the endpoint as the address of the ranks' own rendezvous, unless another option sets that
// address.
void ApplyEndpoint(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (!flags.rdzv_endpoint) return;
  options.master_addr = flags.rdzv_endpoint->host;
  if (flags.rdzv_endpoint->port) options.master_port = *flags.rdzv_endpoint->port;
}

Result<void> Standalone(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if ((options.launcher && options.launcher != Launcher::kLocal) || !options.exec_command.empty()) {
    return WrongUse(std::string("--standalone is a job of this machine, without ") +
                    (options.exec_command.empty() ? "another --launcher" : "--exec_command") +
                    "; leave one out");
  }
  if (options.max_nodes.value_or(options.num_nodes.value_or(1)) != 1) {
    return WrongUse("--standalone is a job of one node; leave it out, or ask for one node");
  }
  OneNodeHere(options);
  for (const char* name : {"--rdzv_endpoint", "--rdzv_backend", "--rdzv_id", "--node_rank",
                           "--master_addr", "--local_addr"}) {
    if (flags.given.contains(name)) {
      options.notices.push_back(std::string(name) + " is not used: --standalone is one node");
    }
  }
  options.master_addr.reset();  // --standalone overrides PET_MASTER_ADDR, as in torchrun
  CountAsTorchrun(flags);
  return {};
}

// Converts a job whose only node is this machine to a local job.
Result<void> ApplySingleNode(ParsedFlags& flags) {
  if (flags.node_rank.value_or(0) != 0) {
    return WrongUse("--node_rank " + std::to_string(*flags.node_rank) +
                    ", but there is one node, which is 0; give their number with --nnodes N");
  }
  OneNodeHere(flags.options);
  ApplyEndpoint(flags);
  CountAsTorchrun(flags);
  return {};
}

Result<void> OnePerNode(ParsedFlags& flags, std::optional<int> most) {
  LaunchOptions& options = flags.options;
  if (const char* other =
          FirstGiven(flags, {"--include", "--exclude", "--ssh_port", "--ssh_command",
                             "--launcher_args", "--exec_command", "--slurm_args", "--force_multi",
                             "--detach", "--preflight", "--health_command"})) {
    return WrongUse(std::string(other) + " is for a job that is started over SSH, and " +
                    FirstGiven(flags, {"--no_ssh", "--node_rank", "--rdzv_endpoint"}) +
                    " makes this command one node of a job; leave one of them out");
  }
  PerNode node;
  node.node_rank = flags.node_rank;
  if (most && node.node_rank.value_or(0) >= *most) {
    return WrongUse("--node_rank " + std::to_string(*node.node_rank) + ", but the last of " +
                    Count(static_cast<size_t>(*most), "node") + " is " + std::to_string(*most - 1) +
                    "; nodes are counted from 0");
  }
  if (flags.rdzv_endpoint) {
    node.host = flags.rdzv_endpoint->host;
    node.port = flags.rdzv_endpoint->port.value_or(flags.rdzv_c10d ? kTorchrunPort : node.port);
    if (options.master_addr) {
      options.notices.push_back("--master_addr is not used: --rdzv_endpoint has the address");
      options.master_addr.reset();
    }
  } else {
    node.host = options.master_addr.value_or("");
    if (options.master_port != 0) node.port = options.master_port;
  }
  if (node.host.empty() && most && !options.hostfile) {
    return WrongUse(
        "the address of the rendezvous is missing: add --master_addr HOST, the machine of node 0's "
        "command, to each node's command");
  }
  if (node.port == 0) {
    return WrongUse(
        "--rdzv_endpoint: port 0 is any port, which the other nodes cannot know; give "
        "one, such as " +
        node.host + ":29400");
  }
  node.id = flags.rdzv_id;
  node.token_file = flags.rdzv_token_file;
  node.insecure = flags.insecure_rdzv;
  node.is_host = flags.rdzv_conf.is_host;
  if (flags.rdzv_conf.join_timeout_ms) node.join_timeout_ms = *flags.rdzv_conf.join_timeout_ms;
  if (flags.rdzv_conf.last_call_ms) node.last_call_ms = *flags.rdzv_conf.last_call_ms;
  options.per_node = std::move(node);
  CountAsTorchrun(flags);
  return {};
}

Result<void> DecidePlace(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (flags.standalone) return Standalone(flags);
  if (flags.given.contains("--rdzv_id")) options.run_id = flags.rdzv_id;
  const std::optional<int> most = options.max_nodes ? options.max_nodes : options.num_nodes;
  if (flags.no_ssh || flags.node_rank || flags.rdzv_endpoint) {
    // If the number of nodes is not given, torchrun assumes 1, but DeepSpeed takes the number from
    // the hostfile. So with --no_ssh or a minimum, the number is unknown.
    const bool unknown = !most && (flags.no_ssh || options.min_nodes);
    if (most == 1 || (!most && !unknown)) return ApplySingleNode(flags);
    return OnePerNode(flags, most);
  }
  const char* const token = FirstGiven(flags, {"--rdzv_token_file", "--insecure_rdzv"});
  if (token != nullptr && most.value_or(2) != 1) {
    return WrongUse(std::string(token) +
                    " is for a job without SSH; over SSH the nodes get certificates without it");
  }
  if (options.local_addr) {
    if (most.value_or(1) != 1 || options.hostfile || options.launcher == Launcher::kSsh) {
      return WrongUse(
          "--local_addr is for a job without SSH; set the address that the ranks get with "
          "--master_addr");
    }
    if (!options.master_addr) options.master_addr = options.local_addr;
  }
  if (flags.rdzv_conf.join_timeout_ms && !flags.given.contains("--connect_timeout")) {
    options.connect_timeout_ms = *flags.rdzv_conf.join_timeout_ms;
  }
  if (most == 1) return {};
  if (flags.rdzv_conf.last_call_ms || flags.rdzv_conf.is_host) {
    options.notices.emplace_back(
        "of --rdzv_conf, last_call_timeout and is_host are not used: this command starts all "
        "nodes");
  }
  if (flags.given.contains("--rdzv_backend"))
    options.notices.emplace_back("--rdzv_backend is not used: this command starts all nodes");
  return {};
}

// Applies torchrun's keep-alive settings to the heartbeats.
Result<void> DecideSilences(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  const RdzvConf& conf = flags.rdzv_conf;
  if (conf.keep_alive_ms && !flags.given.contains("--heartbeat_s")) {
    options.heartbeat_ms = *conf.keep_alive_ms;
  }
  if (conf.keep_alive_ms || conf.keep_alive_attempts) {
    if (!flags.given.contains("--dead_s")) {
      options.dead_ms = conf.keep_alive_ms.value_or(kTorchrunKeepAliveMs) *
                        conf.keep_alive_attempts.value_or(kTorchrunKeepAliveAttempts);
    }
    if (!flags.given.contains("--suspect_s")) {
      options.suspect_ms = (options.heartbeat_ms + options.dead_ms) / 2;
    }
  }
  const std::pair<const char*, int64_t> rising[] = {{"--heartbeat_s", options.heartbeat_ms},
                                                    {"--suspect_s", options.suspect_ms},
                                                    {"--dead_s", options.dead_ms}};
  for (size_t i = 1; i < std::size(rising); ++i) {
    if (rising[i - 1].second < rising[i].second) continue;
    const auto text = [](const auto& option) {
      return std::string(option.first) + " (" + Seconds(option.second) + ")";
    };
    return WrongUse(text(rising[i - 1]) + " must be less than " + text(rising[i]) +
                    "; lower the first or raise the second");
  }
  return {};
}

Result<void> DecideProgram(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  options.form = flags.run_path    ? ProgramForm::kPath
                 : flags.module    ? ProgramForm::kModule
                 : flags.no_python ? ProgramForm::kPlain
                                   : ProgramForm::kAuto;
  if (flags.run_path && !flags.start_method.empty() && flags.start_method != "spawn") {
    return WrongUse("--start_method " + flags.start_method +
                    " is not supported with --run_path: each rank is a new process, as with spawn; "
                    "leave it out");
  }
  return {};
}

Result<void> DecideSsh(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (!options.slurm_args.empty() && options.launcher != Launcher::kSlurm)
    return WrongUse("--slurm_args is for --launcher slurm; add that, or leave it out");
  const bool takes_arguments = options.launcher && RowOf(*options.launcher).takes_arguments;
  if (options.launcher && options.launcher != Launcher::kSsh) {
    const char* const ssh =
        takes_arguments ? FirstGiven(flags, {"--ssh_command", "--ssh_port", "--force_multi"})
                        : FirstGiven(flags, {"--launcher_args", "--ssh_command", "--ssh_port",
                                             "--force_multi"});
    if (ssh != nullptr) {
      return WrongUse(std::string(ssh) + " is for SSH, which " +
                      (options.launcher == Launcher::kLocal ? "a job on this machine"
                                                            : LauncherOption(*options.launcher)) +
                      " does not use; leave it out");
    }
  }
  if (takes_arguments) options.launcher_args = flags.launcher_args;
  if (flags.launcher_args.empty() || takes_arguments) return {};
  std::vector<std::string>& command = options.ssh_command;
  if (command.empty()) command.push_back("ssh");
  command.insert(command.end(), flags.launcher_args.begin(), flags.launcher_args.end());
  return {};
}

// Shows the output of all ranks as torchrun does, except streams that --redirects names and --tee
// does not.
void DecideOutput(ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  if (flags.quiet) options.log_level = LogLevel::kError;
  const RankStreams tee = flags.tee_streams.value_or(RankStreams());
  const RankStreams redirects = flags.redirects.value_or(RankStreams());
  const auto says_something = [](const RankStreams& streams) {
    return streams.of_others != 0 || !streams.of_local_rank.empty();
  };
  if (!flags.ranks_shown_given &&
      (says_something(tee) || says_something(redirects) || options.local_ranks_shown)) {
    options.shown_ranks = {true, {}};
  }
  RankStreams& hidden = options.log_only;
  hidden.of_others = redirects.of_others & ~tee.of_others;
  bool shows_some = hidden.of_others != RankStreams::kBoth;
  for (const RankStreams* listed : {&tee, &redirects}) {
    for (const auto& [rank, streams] : listed->of_local_rank) {
      hidden.of_local_rank[rank] = redirects.Of(rank) & ~tee.Of(rank);
      shows_some |= hidden.of_local_rank[rank] != RankStreams::kBoth;
    }
  }
  if (!shows_some) options.shown_ranks = {false, {}};
}

// Returns an error if two listeners of node 0 would use the same port.
Result<void> CheckPorts(const LaunchOptions& options) {
  if (options.rdzv_port == 0) return {};
  const bool is_masters = options.rdzv_port == options.master_port;
  if (!is_masters && !(options.per_node && options.rdzv_port == options.per_node->port)) return {};
  return WrongUse("--rdzv_port " + std::to_string(options.rdzv_port) + " is the port of " +
                  (is_masters ? "--master_port" : "--rdzv_endpoint") +
                  " too, and node 0 needs one for each; give another, or leave --rdzv_port out");
}

}  // namespace

Result<LaunchOptions> ResolveOptions(ParsedFlags flags) {
  DSL_TRY(DecideNodes(flags));
  DSL_TRY(DecideProcesses(flags));
  DSL_TRY(DecideRanks(flags));
  DSL_TRY(DecidePlace(flags));
  if (flags.replaces_torchrun) CountAsTorchrun(flags);
  DSL_TRY(DecideSilences(flags));
  DSL_TRY(DecideProgram(flags));
  DSL_TRY(DecideSsh(flags));
  DecideOutput(flags);
  DSL_TRY(CheckPorts(flags.options));
  const LaunchOptions& options = flags.options;
  if (options.detach && options.json && !options.dry_run) {
    return WrongUse(
        "--json prints how the job ended, but --detach does not wait for that; dslaunch ps --all "
        "--json prints it later");
  }
  return std::move(flags.options);
}

}  // namespace dslaunch
