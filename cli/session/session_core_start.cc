// How a session starts a job: reaches all nodes, prepares them, runs them.
#include <algorithm>
#include <utility>

#include "base/count.h"
#include "cli/plan/job_spec.h"
#include "cli/session/session_core.h"
#include "net/addresses.h"
#include "proto/wire/cause.h"
#include "proto/wire/node_list.h"

namespace dslaunch {
namespace {

constexpr milliseconds kNameOthersToo(2'000);
// Of the requests that nodes are prepared by at the same time, so that thousands of large ones do
// not fill the memory; and as many of them as may be under way however large they are.
constexpr size_t kMostRequestBytes = size_t{64} << 20;
constexpr size_t kFewestRequests = 32;

// A node that is switched off or far away may come back; one that refuses us needs its user.
bool IsRetryable(const Error& error) {
  return error.code == ExitCode::kUnavailable || error.code == ExitCode::kTimedOut;
}

}  // namespace

SessionCore::Actions SessionCore::Start(Clock::time_point now) {
  pending_ = nodes_.size();
  Log(LogLevel::kDebug,
      "job " + options_.job.job_id() + ": connecting to " + NameList(names_, ", "));
  for (size_t i = 0; i < nodes_.size(); ++i) Do(action::Connect{i, /*attempt=*/0});
  Do(action::SetTimer{SessionTimer::kRenew, now + renew_every()});
  FillPrepare();
  return Take();
}

void SessionCore::FillPrepare() {
  *prepare_.mutable_job() = options_.job;
  if (options_.plan.launcher == Launcher::kPerNode)
    prepare_.set_advertised_address(options_.own_address);
  std::vector<pb::Node> nodes;
  for (const Host& planned : options_.plan.nodes) {
    pb::Node& node = nodes.emplace_back();
    node.set_name(planned.name);
    node.set_slots(static_cast<uint32_t>(planned.slots));
    node.set_spare(planned.spare);
  }
  *prepare_.mutable_job()->mutable_nodes() = PackNodes(nodes);
}

SessionCore::Actions SessionCore::OnCannotStart(Error error) {
  if (finished_) return {};
  FailStart(0, std::move(error));
  return Take();
}

void SessionCore::OnFirstConnected(size_t index, Result<NodeAddresses> addresses,
                                   Clock::time_point now) {
  NodeState& node = nodes_[index];
  if (addresses.ok()) {
    node.is_reached = true;
    node.addresses = *std::move(addresses);
    Log(LogLevel::kDebug, NameOf(index) + " is reached after " + SinceStart(now));
  } else {
    Record(action::Record::Kind::kFailed, index, addresses.error().message);
    Log(LogLevel::kDebug, addresses.error().message + " (after " + SinceStart(now) + ")");
    node.failure = addresses.error();
  }
  if (--pending_ == 0) return OnAllConnected();
  if (!node.has_failed() || giving_up_ || CanStartWithout(Failures())) return;
  giving_up_ = true;
  Do(action::SetTimer{SessionTimer::kConnect, now + kNameOthersToo});
}

SessionCore::Actions SessionCore::OnConnectTimer() {
  if (finished_ || pending_ == 0) return {};
  FailStart();
  return Take();
}

void SessionCore::OnAllConnected() {
  const size_t failures = Failures();
  if (failures > 0 && !CanStartWithout(failures)) return FailStart();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].failure) continue;
    Log(LogLevel::kWarning, nodes_[i].failure->message + "; starting without " + NameOf(i));
    nodes_[i].failure.reset();
    nodes_[i].ended = true;
    job_state_.OnAbsent(i);
    prepare_.add_absent_nodes(static_cast<uint32_t>(i));
  }
  // Rather a node with ranks than a spare hosts the rendezvous.
  auto host = std::ranges::find_if(
      nodes_, [](const NodeState& node) { return node.is_reached && !node.planned->spare; });
  if (host == nodes_.end()) host = std::ranges::find_if(nodes_, &NodeState::is_reached);
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host - nodes_.begin()));
  job_state_.SetRendezvous(prepare_.rendezvous_node());
  pending_ = static_cast<size_t>(std::ranges::count_if(nodes_, &NodeState::is_reached));
  const size_t request_bytes = prepare_.ByteSizeLong();
  most_preparing_ = std::max(kFewestRequests, kMostRequestBytes / request_bytes);
  PrepareMore();
}

// The nodes that wait hold a lease, which is renewed.
void SessionCore::PrepareMore() {
  for (; num_preparing_ < most_preparing_ && next_to_prepare_ < nodes_.size(); ++next_to_prepare_) {
    if (!nodes_[next_to_prepare_].is_reached) continue;
    ++num_preparing_;
    Prepare(next_to_prepare_);
  }
}

size_t SessionCore::Failures() const {
  return static_cast<size_t>(std::ranges::count_if(nodes_, &NodeState::has_failed));
}

bool SessionCore::CanStartWithout(size_t failures) const {
  const LaunchPlan& plan = options_.plan;
  return nodes_.size() - failures >=
             static_cast<size_t>(std::max(plan.start_nodes, plan.min_nodes)) &&
         std::ranges::all_of(nodes_, [](const NodeState& node) {
           return !node.failure || IsRetryable(*node.failure);
         });
}

void SessionCore::Prepare(size_t index) {
  NodeState& node = nodes_[index];
  node.is_preparing = true;
  node.prepared_for = prepare_.rendezvous_node();
  action::Prepare prepare{index, PrepareRequestFor(prepare_, options_.plan, index)};
  if (HasOwnPart(index)) {
    prepare.request.mutable_job()->clear_ranks();
    prepare.request.clear_devices();
  }
  Do(std::move(prepare));
}

void SessionCore::OnFirstPrepared(size_t index, Result<pb::PreparedNode> info,
                                  Clock::time_point now) {
  NodeState& node = nodes_[index];
  if (info.ok()) {
    node.info = *std::move(info);
    Record(action::Record::Kind::kConnected, index, node.info->job_dir());
    Log(LogLevel::kDebug, NameOf(index) + " is prepared after " + SinceStart(now) + ", with " +
                              Count(node.info->gpus(), "GPU") + "; its logs are in " +
                              node.info->job_dir());
  } else {
    Record(action::Record::Kind::kFailed, index, info.error().message);
    node.failure = info.error();
  }
  --num_preparing_;
  if (--pending_ > 0) return PrepareMore();
  Failures() == 0 ? RunAll(now) : FailStart();
}

void SessionCore::RunAll(Clock::time_point now) {
  std::vector<NodeGpus> gpus;
  for (const NodeState& node : nodes_) {
    if (!node.info) continue;
    const Host& planned = *node.planned;
    gpus.push_back({planned.name, planned.slots, static_cast<int>(node.info->gpus()),
                    planned.devices.empty() ? -1 : planned.devices.back()});
  }
  Result<DeviceDecision> device =
      DecideDevice(options_.job.device(), gpus, options_.plan.launcher == Launcher::kLocal);
  if (!device.ok()) return FailStart(0, device.error());
  std::string no_pmix;
  for (const NodeState& node : nodes_) {
    if (no_pmix.empty() && node.info) no_pmix = node.info->no_pmix();
  }
  const Result<pb::MpiService> mpi = DecideMpi(options_.mpi, no_pmix, options_.plan.world_size());
  if (!mpi.ok()) return FailStart(0, mpi.error());
  if (ShouldLog(LogLevel::kInfo)) {
    const std::string shown =
        options_.job.detachable()
            ? ""
            : options_.shown.Hint(static_cast<size_t>(options_.plan.world_size()));
    Log(LogLevel::kInfo, PlanLine(options_.plan, device->use_cuda ? "cuda" : "cpu") +
                             (shown.empty() ? "" : "; " + shown));
  }
  Log(LogLevel::kDebug, device->reason);
  *run_.mutable_mpi() = *mpi;

  *run_.mutable_rendezvous_endpoints() =
      nodes_[prepare_.rendezvous_node()].info->rendezvous_endpoints();
  Log(LogLevel::kDebug,
      "the rendezvous is on " + NameOf(prepare_.rendezvous_node()) + ": " +
          NameList({run_.rendezvous_endpoints().begin(), run_.rendezvous_endpoints().end()}, ", "));
  if (!options_.job.detachable()) *run_.mutable_shown() = options_.shown.ToProto();
  run_.set_use_cuda(device->use_cuda);
  running_ = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].is_reached ? Run(i) : Reconnect(i);
  }
  watch_due_ = now + watch_every();
  Do(action::SetTimer{SessionTimer::kWatch, *watch_due_});
}

void SessionCore::Run(size_t index) {
  action::Run run{index, run_};
  const std::vector<std::string> endpoints = EndpointsFor(index);
  *run.request.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
  // Its own command shows what its ranks write.
  if (HasOwnPart(index)) run.request.clear_shown();
  Do(std::move(run));
}

// Nodes that came to us know this machine by one address for sure, and we know theirs.
std::vector<std::string> SessionCore::EndpointsFor(size_t index) const {
  std::vector<std::string> endpoints(run_.rendezvous_endpoints().begin(),
                                     run_.rendezvous_endpoints().end());
  const size_t host = prepare_.rendezvous_node();
  if (options_.plan.launcher != Launcher::kPerNode || endpoints.empty() || index == host)
    return endpoints;
  const int port = std::stoi(endpoints.front().substr(endpoints.front().rfind(':') + 1));
  if (host == 0 && !options_.own_address.empty()) return {JoinHostPort(options_.own_address, port)};
  const std::string& address =
      host == 0 ? nodes_[index].addresses.own : nodes_[host].addresses.node;
  if (!address.empty()) endpoints.insert(endpoints.begin(), JoinHostPort(address, port));
  return endpoints;
}

void SessionCore::FailStart(size_t index, Error error) {
  nodes_[index].failure = std::move(error);
  FailStart();
}

void SessionCore::FailStart() {
  failed_to_start_ = true;
  Finish();
}

}  // namespace dslaunch
