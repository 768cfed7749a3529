#include "cli/options/option_draft.h"

#include <algorithm>
#include <iterator>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr int kTorchrunPort = 29'400;  // of --rdzv_endpoint, where it names none
constexpr int64_t kTorchrunKeepAliveMs = 5'000;
constexpr int kTorchrunKeepAliveAttempts = 3;

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

// The first of `names` that was given; nullptr: none.
const char* FirstGiven(const Draft& draft, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (draft.given.contains(name)) return name;
  }
  return nullptr;
}

Result<void> DecideNodes(Draft& draft) {
  LaunchOptions& options = draft.options;
  const std::optional<int> number =
      draft.nnodes && !draft.nnodes->max ? draft.nnodes->min : draft.num_nodes;
  const bool by_range = draft.min_elastic || draft.max_elastic || draft.elastic_training;
  if (draft.nnodes && draft.nnodes->max) {
    options.min_nodes = draft.nnodes->min;
    options.max_nodes = draft.nnodes->max;
  } else if (by_range) {
    if (number && draft.max_elastic && *number != *draft.max_elastic) {
      return Usage("--num_nodes " + std::to_string(*number) + " and --max_elastic_nodes " +
                   std::to_string(*draft.max_elastic) +
                   " both say how many nodes there may be; give one of them");
    }
    options.min_nodes = draft.min_elastic.value_or(1);
    options.max_nodes = draft.max_elastic ? draft.max_elastic : number;
    if (options.max_nodes && *options.min_nodes > *options.max_nodes) {
      return Usage("--min_elastic_nodes " + std::to_string(*options.min_nodes) +
                   " is more than the " + std::to_string(*options.max_nodes) +
                   " nodes there may be; ask for fewer");
    }
  } else {
    options.num_nodes = number;
  }
  return {};
}

void OneNodeHere(LaunchOptions& options) {
  options.launcher = Launcher::kLocal;
  options.num_nodes = 1;
  options.min_nodes.reset();
  options.max_nodes.reset();
}

// torchrun starts one process on each node unless it is told how many.
void CountAsTorchrun(Draft& draft) {
  LaunchOptions& options = draft.options;
  const char* word = FirstGiven(draft, {"--standalone", "--rdzv_endpoint", "--rdzv_backend",
                                        "--rdzv_id", "--rdzv_conf", "--nnodes"});
  if (word == nullptr || options.num_gpus || options.slots_from || options.hostfile) return;
  options.num_gpus = 1;
  options.notices.push_back(std::string("1 rank per node, as torchrun with ") + word +
                            " starts it; --nproc_per_node auto starts one per GPU or core");
}

// Where the ranks' own rendezvous is, where nobody else decides it.
void TakeEndpoint(Draft& draft) {
  LaunchOptions& options = draft.options;
  if (!draft.rdzv_endpoint) return;
  options.master_addr = draft.rdzv_endpoint->host;
  if (draft.rdzv_endpoint->port) options.master_port = *draft.rdzv_endpoint->port;
}

Result<void> Standalone(Draft& draft) {
  LaunchOptions& options = draft.options;
  if (options.launcher == Launcher::kSsh) {
    return Usage("--standalone is a job of this machine, without --launcher ssh; leave one out");
  }
  if (options.max_nodes.value_or(options.num_nodes.value_or(1)) != 1) {
    return Usage("--standalone is a job of one node; leave it out, or ask for one node");
  }
  OneNodeHere(options);
  for (const char* name : {"--rdzv_endpoint", "--rdzv_backend", "--rdzv_id", "--node_rank"}) {
    if (draft.given.contains(name)) {
      options.notices.push_back(std::string(name) + " is not used: --standalone is one node");
    }
  }
  CountAsTorchrun(draft);
  return {};
}

// A job of one node, which is this machine, said in the words of a job of several.
Result<void> AloneHere(Draft& draft) {
  if (draft.node_rank.value_or(0) != 0) {
    return Usage("--node_rank " + std::to_string(*draft.node_rank) +
                 ", but there is one node, which is 0; say how many there are with --nnodes N");
  }
  OneNodeHere(draft.options);
  TakeEndpoint(draft);
  CountAsTorchrun(draft);
  return {};
}

Result<void> OnePerNode(Draft& draft, std::optional<int> most) {
  LaunchOptions& options = draft.options;
  if (const char* other =
          FirstGiven(draft, {"--include", "--exclude", "--ssh_port", "--ssh_command",
                             "--launcher_args", "--force_multi", "--detach"})) {
    return Usage(std::string(other) + " is of a job that is started over SSH, and " +
                 FirstGiven(draft, {"--no_ssh", "--node_rank", "--rdzv_endpoint"}) +
                 " makes this command one node of a job; leave one of them out");
  }
  PerNode node;
  node.node_rank = draft.node_rank;
  if (most && node.node_rank.value_or(0) >= *most) {
    return Usage("--node_rank " + std::to_string(*node.node_rank) + ", but the last of " +
                 Count(static_cast<size_t>(*most), "node") + " is " + std::to_string(*most - 1) +
                 "; nodes are counted from 0");
  }
  if (draft.rdzv_endpoint) {
    node.host = draft.rdzv_endpoint->host;
    node.port = draft.rdzv_endpoint->port.value_or(draft.rdzv_c10d ? kTorchrunPort : node.port);
    if (options.master_addr) {
      options.notices.push_back("--master_addr is not used: --rdzv_endpoint says where");
      options.master_addr.reset();
    }
  } else {
    node.host = options.master_addr.value_or("");
    if (options.master_port != 0) node.port = options.master_port;
  }
  if (node.host.empty() && most && !options.hostfile) {
    return Usage(
        "the nodes need to know where to meet: add --master_addr HOST, where node 0's "
        "command runs, to each node's command");
  }
  if (node.port == 0) {
    return Usage(
        "--rdzv_endpoint: port 0 is any port, which the other nodes cannot know; give "
        "one, such as " +
        node.host + ":29400");
  }
  node.id = draft.rdzv_id;
  node.token_file = draft.rdzv_token_file;
  node.is_host = draft.rdzv_conf.is_host;
  if (draft.rdzv_conf.join_timeout_ms) node.join_timeout_ms = *draft.rdzv_conf.join_timeout_ms;
  if (draft.rdzv_conf.last_call_ms) node.last_call_ms = *draft.rdzv_conf.last_call_ms;
  options.per_node = std::move(node);
  CountAsTorchrun(draft);
  return {};
}

Result<void> DecidePlace(Draft& draft) {
  LaunchOptions& options = draft.options;
  if (draft.standalone) return Standalone(draft);
  const std::optional<int> most = options.max_nodes ? options.max_nodes : options.num_nodes;
  if (draft.no_ssh || draft.node_rank || draft.rdzv_endpoint) {
    // torchrun's number of nodes is 1 where none is given; DeepSpeed's is in its hostfile.
    const bool unknown = !most && (draft.no_ssh || options.min_nodes);
    if (most == 1 || (!most && !unknown)) return AloneHere(draft);
    return OnePerNode(draft, most);
  }
  if (draft.rdzv_token_file && most.value_or(2) != 1) {
    return Usage(
        "--rdzv_token_file is of a job whose nodes each run this command; over SSH the nodes are "
        "given certificates without it");
  }
  if (options.local_addr) {
    if (most.value_or(1) != 1 || options.hostfile || options.launcher == Launcher::kSsh) {
      return Usage(
          "--local_addr is of a job whose nodes each run this command; give "
          "--master_addr to tell the ranks an address");
    }
    if (!options.master_addr) options.master_addr = options.local_addr;
  }
  if (draft.rdzv_conf.join_timeout_ms && !draft.given.contains("--connect_timeout")) {
    options.connect_timeout_ms = *draft.rdzv_conf.join_timeout_ms;
  }
  if (most == 1) return {};
  if (draft.rdzv_conf.last_call_ms || draft.rdzv_conf.is_host) {
    options.notices.emplace_back(
        "of --rdzv_conf, last_call_timeout and is_host are not used: this command starts all "
        "nodes");
  }
  for (const char* name : {"--rdzv_backend", "--rdzv_id"}) {
    if (!draft.given.contains(name)) continue;
    options.notices.push_back(std::string(name) + " is not used: this command starts all nodes");
  }
  return {};
}

// torchrun's keep-alives are our heartbeats.
Result<void> DecideSilences(Draft& draft) {
  LaunchOptions& options = draft.options;
  const RdzvConf& conf = draft.rdzv_conf;
  if (conf.keep_alive_ms && !draft.given.contains("--heartbeat_s")) {
    options.heartbeat_ms = *conf.keep_alive_ms;
  }
  if (conf.keep_alive_ms || conf.keep_alive_attempts) {
    if (!draft.given.contains("--dead_s")) {
      options.dead_ms = conf.keep_alive_ms.value_or(kTorchrunKeepAliveMs) *
                        conf.keep_alive_attempts.value_or(kTorchrunKeepAliveAttempts);
    }
    if (!draft.given.contains("--suspect_s")) {
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
    return Usage(text(rising[i - 1]) + " must be less than " + text(rising[i]) +
                 "; lower the first or raise the second");
  }
  return {};
}

Result<void> DecideProgram(Draft& draft) {
  LaunchOptions& options = draft.options;
  options.form = draft.run_path    ? ProgramForm::kPath
                 : draft.module    ? ProgramForm::kModule
                 : draft.no_python ? ProgramForm::kPlain
                                   : ProgramForm::kAuto;
  if (draft.run_path && !draft.start_method.empty() && draft.start_method != "spawn") {
    return Usage("--start_method " + draft.start_method +
                 " is not supported with --run_path: each rank is started anew, as by spawn; "
                 "leave it out");
  }
  return {};
}

Result<void> DecideSsh(Draft& draft) {
  LaunchOptions& options = draft.options;
  if (options.launcher == Launcher::kLocal) {
    if (const char* ssh = FirstGiven(
            draft, {"--launcher_args", "--ssh_command", "--ssh_port", "--force_multi"})) {
      return Usage(std::string(ssh) +
                   " is for SSH, which a job of this machine does not use; leave it out");
    }
  }
  if (draft.launcher_args.empty()) return {};
  std::vector<std::string>& command = options.ssh_command;
  if (command.empty()) command.push_back("ssh");
  command.insert(command.end(), draft.launcher_args.begin(), draft.launcher_args.end());
  return {};
}

// torchrun shows all ranks, but what --redirects and not --tee names.
void DecideOutput(Draft& draft) {
  LaunchOptions& options = draft.options;
  if (draft.quiet) options.log_level = LogLevel::kError;
  const RankStreams tee = draft.tee_streams.value_or(RankStreams());
  const RankStreams redirects = draft.redirects.value_or(RankStreams());
  const auto says_something = [](const RankStreams& streams) {
    return streams.of_others != 0 || !streams.of_local_rank.empty();
  };
  if (!draft.ranks_shown_given &&
      (says_something(tee) || says_something(redirects) || options.local_ranks_shown)) {
    options.tee = {true, {}};
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
  if (!shows_some) options.tee = {false, {}};
}

}  // namespace

Result<LaunchOptions> PutTogether(Draft draft) {
  DSL_TRY(DecideNodes(draft));
  DSL_TRY(DecidePlace(draft));
  DSL_TRY(DecideSilences(draft));
  DSL_TRY(DecideProgram(draft));
  DSL_TRY(DecideSsh(draft));
  DecideOutput(draft);
  const LaunchOptions& options = draft.options;
  if (options.detach && options.json && !options.dry_run) {
    return Usage(
        "--json says how the job ended, which --detach does not wait for; dslaunch ps "
        "--all --json does");
  }
  return std::move(draft.options);
}

}  // namespace dslaunch
