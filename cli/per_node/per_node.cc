#include "cli/per_node/per_node.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/count.h"
#include "base/digest/sha256.h"
#include "base/text/sanitize.h"
#include "cli/per_node/per_node_member.h"
#include "cli/per_node/per_node_token.h"
#include "cli/plan/job_program.h"
#include "cli/plan/job_spec.h"
#include "cli/plan/plan_info.h"
#include "cli/plan/secrets.h"
#include "cli/transport/transport_local.h"
#include "net/addresses.h"
#include "net/certificate_authority.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxShownBytes = 256;
constexpr int kBacklog = 1024;
constexpr milliseconds kEndSlack(10'000);  // time for node 0 to stop waiting and report the end

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

AddressList Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) list = nullptr;
  return AddressList(list, &freeaddrinfo);
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool IsSameAddress(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                            &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr);
}

bool IsOwnHost(const std::string& host) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  if (strcasecmp(host.c_str(), name) == 0) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) interfaces = nullptr;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> holder(interfaces, freeifaddrs);
  const AddressList addresses = Resolve(host);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    if (IsLoopback(address->ai_addr)) return true;
    for (const ifaddrs* it = interfaces; it != nullptr; it = it->ifa_next) {
      if (it->ifa_addr != nullptr && IsSameAddress(it->ifa_addr, address->ai_addr)) return true;
    }
  }
  return false;
}

// Returns whether `host` means the loopback address. Compares the text only, because on Debian a
// machine's own name resolves to 127.0.1.1, while other nodes reach that name at another address.
bool IsForThisMachineAlone(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

// Listens at a port. Returns 0, or the errno of the failure.
int ListenAt(UniqueFd& fd, int family, bool loopback, int port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    v6.sin6_addr = loopback ? in6addr_loopback : in6addr_any;
    size = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_port = htons(static_cast<uint16_t>(port));
    v4.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  }
  const int on = 1;
  const int off = 0;
  fd.Reset(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return errno;
  if (family == AF_INET6 && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return errno;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return errno;
  return listen(fd.get(), kBacklog) == 0 ? 0 : errno;
}

int Listen(UniqueFd& fd, const PerNode& place) {
  if (place.host == "::1") return ListenAt(fd, AF_INET6, /*loopback=*/true, place.port);
  if (IsForThisMachineAlone(place.host)) return ListenAt(fd, AF_INET, true, place.port);
  const int error_number = ListenAt(fd, AF_INET6, false, place.port);
  if (error_number == 0 || error_number == EADDRINUSE || error_number == EACCES)
    return error_number;
  return ListenAt(fd, AF_INET, false, place.port);  // used if the kernel has no IPv6
}

// Returns a digest of how the program is started and of its recipe, which must be equal on all
// nodes.
std::string FormOf(const pb::Program& program) {
  std::string bytes = std::to_string(program.form()) + (program.no_local_rank() ? "n" : "l");
  for (const pb::EnvVar& variable : program.chosen_env()) {
    if (variable.name() == kRecipeVariable) bytes += variable.value();
  }
  return Sha256Of(bytes);
}

// Returns a digest of the arguments. Secrets are masked first, because a short text can be found
// from its digest by trying all texts.
std::string ArgumentsOf(const pb::Program& program) {
  const std::vector<std::string> arguments =
      MaskedArguments({program.argv().begin(), program.argv().end()});
  std::string bytes;
  for (size_t i = 1; i < arguments.size(); ++i) bytes += arguments[i] + '\0';
  return Sha256Of(bytes);
}

std::string ShownCommand(const pb::Program& program) {
  std::string shown;
  for (const std::string& argument :
       MaskedArguments({program.argv().begin(), program.argv().end()}))
    shown += (shown.empty() ? "" : " ") + argument;
  if (shown.size() > kMaxShownBytes) shown = shown.substr(0, kMaxShownBytes) + "...";
  return SanitizeForTerminal(shown);
}

Result<int> OwnSlots(const LaunchOptions& options, const PerNodeInfo& info) {
  if (options.num_gpus) return *options.num_gpus;
  const SlotsFrom from = options.slots_from.value_or(SlotsFrom::kAuto);
  if (from == SlotsFrom::kCpu) return info.plan.cores;
  if (info.plan.local_gpus > 0) return info.plan.local_gpus;
  if (from == SlotsFrom::kGpu) {
    return Usage("--nproc_per_node gpu: " + info.host_name +
                 " has no accelerator; give a number, or take cpu");
  }
  return options.slots_from ? info.plan.cores : 1;
}

std::vector<int> SlotsOf(const LaunchPlan& plan) {
  std::vector<int> slots;
  for (const Host& node : plan.nodes) slots.push_back(node.slots);
  return slots;
}

// Returns the entry of this command's node in `flags`, the plan before any node has joined. Returns
// the first entry if the command has no node rank, because all entries are alike then.
const Host& OwnNode(const LaunchOptions& options, const LaunchPlan& flags) {
  return flags.nodes[static_cast<size_t>(options.per_node->node_rank.value_or(0))];
}

Error NoToken(const std::string& host, int port) {
  return Usage("node 0 at " + Truncate(JoinHostPort(host, port)) +
               ": without a token anyone on the network could join the job or pose as node 0; make "
               "one with " +
               kMakeToken +
               ", copy it to every node, and add --rdzv_token_file FILE to each node's command; on "
               "a network that you trust add --insecure_rdzv instead");
}

// Returns the limit for the end of a job, measured by its nodes from the beginning of the end.
milliseconds EndTimeout(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() + 2 * timeouts.dead_ms()) +
         kEndSlack;
}

// Returns the role of the agent on this command's node.
AgentRole OwnRole() {
  AgentRole role;
  role.in_step = std::getenv("SLURM_JOB_ID") != nullptr;
  return role;
}

// Returns the options of the command on `node`, which is not node 0. The caller sets `tls`.
Result<MemberOptions> MakeMember(const PerNode& place, const Host& node,
                                 const SessionOptions& session, const pb::AdmissionRequest& own,
                                 const AgentBinary& agent) {
  MemberOptions member;
  member.host = place.host;
  member.port = place.port;
  member.join_timeout = milliseconds(place.join_timeout_ms);
  member.agent_timeout = session.connect_timeout;
  member.end_timeout = EndTimeout(session.job.timeouts());
  member.request = own;
  DSL_TRY_ASSIGN(const NodeKey key, MakeNodeKey());
  member.request.set_public_key(key.public_key);
  member.own.set_private_key(key.private_key);
  *member.own.mutable_ranks() = session.job.ranks();
  *member.own.mutable_ranks()->mutable_program() = ProgramOn(node, session.job.ranks().program());
  member.own.set_slots(own.slots());
  member.shown = session.shown;
  member.error_file = session.error_file;
  member.tags = session.tags;
  member.log_level = session.log_level;
  member.start_agent = [agent](const NodeTarget& target, int command_fd, Deadline deadline) {
    AgentRole role = OwnRole();
    role.command_fd = command_fd;
    return LocalTransport(agent, role).Connect(target, deadline);
  };
  return member;
}

}  // namespace

Result<PerNodeInfo> ReadPerNodeInfo(const LaunchOptions& options) {
  PerNodeInfo info;
  char name[256] = "?";
  gethostname(name, sizeof name - 1);
  info.host_name = name;
  info.plan = ReadPlanInfo(DeviceOf(options.device), options.mode == LaunchOptions::Mode::kTrain,
                           options.virtual_local_rank);
  if (options.hostfile) {
    info.hostfile = *options.hostfile;
  } else if (!options.num_nodes && !options.max_nodes) {
    if (!info.plan.default_hostfile_exists) {
      return Usage("the number of nodes is missing: give --nnodes N, or --hostfile FILE");
    }
    info.hostfile = kDefaultHostfile;
  }
  if (!info.hostfile.empty()) {
    DSL_TRY_ASSIGN(info.hosts, ReadHostfile(info.hostfile));
  }
  info.has_token_descriptor = std::getenv(kTokenFdVariable) != nullptr;
  return info;
}

Result<LaunchPlan> DraftPerNodePlan(const LaunchOptions& options, const PerNodeInfo& info) {
  if (options.detach) {
    return Usage(
        "--detach: a job of one command on each node ends with its commands; leave it out, and run "
        "them in the background");
  }
  if (options.num_ranks && !options.has_rank_range()) {
    return Usage("-np " + std::to_string(*options.num_ranks) +
                 " counts the ranks of all nodes, and in a job of one command on each node a "
                 "command starts its own; give those of each node in its place (--num_gpus N)");
  }
  if (options.has_rank_range()) {
    return Usage(
        "--min_np and --max_np count the ranks of all nodes, and in a job of one command on each "
        "node a command starts its own; give a range of nodes in their place (--nnodes MIN:MAX)");
  }
  const PerNode& place = *options.per_node;
  LaunchPlan plan;
  if (info.hosts) {
    LaunchOptions by_hosts = options;
    by_hosts.per_node.reset();
    // Shows all ranks for now, because the user's choice is checked once all nodes have joined.
    by_hosts.shown_ranks = {true, {}};
    by_hosts.launcher = Launcher::kSsh;
    by_hosts.hostfile = info.hostfile;
    DSL_TRY_ASSIGN(plan, MakeLaunchPlan(by_hosts, info.hosts, info.plan));
    if (!place.node_rank) {
      return Usage("cannot tell which node of " + Truncate(info.hostfile) +
                   " this machine is: give --node_rank N");
    }
  } else {
    plan.max_nodes = options.max_nodes.value_or(options.num_nodes.value_or(1));
    plan.min_nodes = options.min_nodes.value_or(plan.max_nodes);
    DSL_TRY_ASSIGN(const int slots, OwnSlots(options, info));
    for (int i = 0; i < plan.max_nodes; ++i) {
      Host& node = plan.nodes.emplace_back();
      node.name = "node" + std::to_string(i);
      node.slots = slots;
    }
  }
  plan.launcher = Launcher::kPerNode;
  if (place.node_rank && static_cast<size_t>(*place.node_rank) >= plan.nodes.size()) {
    return Usage("--node_rank " + std::to_string(*place.node_rank) + ": the job has " +
                 Count(plan.nodes.size(), "node") + ", 0 to " +
                 std::to_string(plan.nodes.size() - 1));
  }
  if (plan.nodes.size() > 1 && !place.token_file && !info.has_token_descriptor && !place.insecure) {
    const std::string host =
        place.host.empty() && info.hosts ? info.hosts->front().host : place.host;
    if (!IsForThisMachineAlone(host)) return NoToken(host, place.port);
  }
  LaunchOptions any_shown = options;
  any_shown.shown_ranks = {true, {}};
  return FinishPerNodePlan(plan, SlotsOf(plan), any_shown);
}

pb::AdmissionRequest MakeAdmissionRequest(const LaunchOptions& options, const PerNodeInfo& info,
                                          const LaunchPlan& flags, const pb::Program& program) {
  const PerNode& place = *options.per_node;
  pb::AdmissionRequest request;
  request.set_magic(kPerNodeMagic);
  request.set_version(DSLAUNCH_VERSION);
  request.set_job(place.id);
  request.set_host_name(info.host_name);
  if (place.node_rank) request.set_node_rank(static_cast<uint32_t>(*place.node_rank));
  request.set_min_nodes(static_cast<uint32_t>(flags.min_nodes));
  request.set_max_nodes(static_cast<uint32_t>(flags.nodes.size()));
  request.set_slots(static_cast<uint32_t>(OwnNode(options, flags).slots));
  const std::string& path = program.argv(0);
  request.mutable_program()->set_name(path.substr(path.rfind('/') + 1));
  request.mutable_program()->set_form(FormOf(program));
  request.mutable_program()->set_arguments(ArgumentsOf(program));
  // The program's command line is needed only for messages, so it is not sent without TLS.
  request.mutable_program()->set_shown(place.insecure ? request.program().name()
                                                      : ShownCommand(program));
  return request;
}

AdmissionOptions MakeAdmissionOptions(const LaunchOptions& options, const PerNodeInfo& info,
                                      const LaunchPlan& flags, const pb::AdmissionRequest& own) {
  AdmissionOptions admission;
  admission.own = own;
  for (const Host& node : flags.nodes) {
    admission.names.push_back(node.name);
    if (info.hosts) admission.slots.push_back(node.slots);
  }
  admission.join_timeout = milliseconds(options.per_node->join_timeout_ms);
  admission.last_call = milliseconds(options.per_node->last_call_ms);
  admission.takes_late = flags.min_nodes < flags.max_nodes || options.max_restarts.value_or(0) > 0;
  return admission;
}

Result<LaunchPlan> FinishPerNodePlan(LaunchPlan flags, const std::vector<int>& slots,
                                     const LaunchOptions& options) {
  for (size_t i = 0; i < flags.nodes.size(); ++i) flags.nodes[i].slots = slots[i];
  flags.ranks = NumberRanksOf(flags.nodes);
  if (!options.shown_ranks.all && !options.shown_ranks.ranks.empty() &&
      options.shown_ranks.ranks.back() >= flags.world_size()) {
    return Usage("--show " + std::to_string(options.shown_ranks.ranks.back()) +
                 ": no such rank, this job has " +
                 Count(static_cast<size_t>(flags.world_size()), "rank") + ", 0 to " +
                 std::to_string(flags.world_size() - 1));
  }
  return flags;
}

Result<UniqueFd> ListenIfNodeZero(const PerNode& place) {
  const bool must = place.node_rank ? *place.node_rank == 0 : place.is_host.value_or(false);
  const bool may = place.node_rank ? must : place.is_host.value_or(true);
  if (!may || (!must && !IsOwnHost(place.host))) return UniqueFd();
  UniqueFd listener;
  const int error_number = Listen(listener, place);
  if (error_number == 0) return listener;
  if (!must && error_number == EADDRINUSE) return UniqueFd();  // the port is probably node 0's
  return Error{ExitCode::kUnavailable,
               "node 0 cannot listen on port " + std::to_string(place.port) + ": " +
                   std::strerror(error_number) +
                   (error_number == EADDRINUSE
                        ? "; another program uses it, or another command with --node_rank 0: give "
                          "each node its own --node_rank, or all another port"
                        : "; give all nodes another port")};
}

Result<std::optional<int>> EnterPerNodeJob(const LaunchOptions& options, const PerNodeInfo& info,
                                           SessionOptions& session,
                                           std::unique_ptr<InboundTransport>& transport,
                                           Terminal& terminal) {
  PerNode place = *options.per_node;
  if (place.host.empty()) place.host = info.hosts->front().host;
  // The ranks cannot use the port on which node 0's command listens, so another port is chosen.
  if (std::cmp_equal(session.job.master_port(), place.port)) session.job.set_master_port(0);
  DSL_TRY_ASSIGN(const std::optional<std::string> token,
                 ReadToken(place.token_file, std::getenv(kTokenFdVariable)));
  unsetenv(kTokenFdVariable);
  const auto tls = token ? std::make_shared<TokenTls>(*token) : nullptr;
  const LaunchPlan flags = session.plan;
  const pb::Program& program = session.job.ranks().program();
  const pb::AdmissionRequest own = MakeAdmissionRequest(options, info, flags, program);
  DSL_TRY_ASSIGN(const AgentBinary agent, FindAgentBinary());
  DSL_TRY_ASSIGN(UniqueFd listener, ListenIfNodeZero(place));
  if (!listener) {
    DSL_TRY_ASSIGN(MemberOptions member,
                   MakeMember(place, OwnNode(options, flags), session, own, agent));
    member.tls = tls;
    return std::optional(MemberSession(std::move(member), terminal).Run());
  }
  transport = std::make_unique<InboundTransport>(
      std::move(listener), MakeAdmissionOptions(options, info, flags, own), tls,
      std::make_unique<LocalTransport>(agent, OwnRole()));
  DSL_TRY(transport->Gather([&](const std::string& line) {
    if (session.log_level < LogLevel::kInfo) return;
    terminal.Err("dslaunch: " + line);
    terminal.Flush();
  }));
  std::vector<int> slots;
  for (size_t i = 0; i < flags.nodes.size(); ++i) slots.push_back(transport->SlotsOf(i));
  Result<LaunchPlan> plan = FinishPerNodePlan(flags, slots, options);
  if (!plan.ok()) {
    transport->Dismiss(plan.error());
    return plan.error();
  }
  session.plan = *std::move(plan);
  return std::optional<int>();
}

}  // namespace dslaunch
