// How a session starts a job: reaches all nodes, prepares them, runs them.
#include <algorithm>
#include <utility>

#include "base/count.h"
#include "cli/plan/job_program.h"
#include "cli/session/session.h"
#include "net/addresses.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kNameOthersToo(2'000);

// A node that is switched off or far away may come back; one that refuses us needs its user.
bool MayComeBack(const Error& error) {
  return error.code == ExitCode::kUnavailable || error.code == ExitCode::kTimedOut;
}

}  // namespace

void LaunchSession::ConnectAll() {
  pending_ = nodes_.size();
  Say(LogLevel::kDebug, "job " + options_.job_id + ": connecting to " + NameList(names_, ", "));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    connector_.Connect(nodes_[i].target, [this, i](Result<std::unique_ptr<NodeLink>> link) {
      OnConnected(i, std::move(link));
    });
  }
  // While the network is busy there is time for the job's keys.
  if (nodes_.size() > 1) {
    Result<CertificateAuthority> created = CertificateAuthority::Create(options_.job_id);
    if (!created.ok()) return FailStart(0, created.error());
    authority_.emplace(*std::move(created));
  }
  prepare_.set_job_id(options_.job_id);
  *prepare_.mutable_ranks() = options_.ranks;
  prepare_.set_save_pid(options_.save_pid);
  *prepare_.mutable_timeouts() = options_.timeouts;
  *prepare_.mutable_policy() = options_.policy;
  prepare_.set_log_dir(options_.log_dir);
  prepare_.set_log_max_bytes(options_.log_max_bytes);
  prepare_.set_description(options_.description);
  prepare_.set_master_port(static_cast<uint32_t>(options_.master_port));
  prepare_.set_rdzv_port(static_cast<uint32_t>(options_.rdzv_port));
  prepare_.set_network_interface(options_.network_interface);
  prepare_.set_detachable(options_.detach);
  prepare_.set_local(options_.plan.launcher == Launcher::kLocal);
  prepare_.set_may_share_machine(options_.plan.launcher != Launcher::kSsh);
  prepare_.set_device(options_.device == DeviceChoice::kCuda  ? pb::DEVICE_CUDA
                      : options_.device == DeviceChoice::kCpu ? pb::DEVICE_CPU
                                                              : pb::DEVICE_AUTO);
  for (const PlannedNode& planned : options_.plan.nodes) {
    pb::Node& node = *prepare_.add_nodes();
    node.set_name(planned.name);
    node.set_slots(static_cast<uint32_t>(planned.slots));
    node.set_spare(planned.spare);
  }
}

void LaunchSession::OnConnected(size_t index, Result<std::unique_ptr<NodeLink>> link) {
  NodeState& node = nodes_[index];
  if (link.ok()) {
    node.client = std::make_unique<NodeClient>(loop_, NameOf(index), *std::move(link));
    Say(LogLevel::kDebug, NameOf(index) + " is reached after " + SinceStart());
  } else {
    events_.Failed(NameOf(index), link.error().message);
    Say(LogLevel::kDebug, link.error().message + " (after " + SinceStart() + ")");
    node.failure = link.error();
  }
  if (--pending_ == 0) return OnAllConnected();
  const auto failures = static_cast<size_t>(std::ranges::count_if(nodes_, &NodeState::has_failed));
  if (failures > 0 && !CanStartWithout(failures)) GiveUpConnectingSoon();
}

void LaunchSession::GiveUpConnectingSoon() {
  if (std::exchange(giving_up_, true)) return;
  connect_timer_.expires_after(kNameOthersToo);
  connect_timer_.async_wait([this](const asio::error_code& error) {
    if (error || pending_ == 0) return;
    failed_to_start_ = true;
    loop_.stop();
  });
}

void LaunchSession::OnAllConnected() {
  const auto failures = static_cast<size_t>(std::ranges::count_if(nodes_, &NodeState::has_failed));
  if (failures > 0 && !CanStartWithout(failures)) {
    failed_to_start_ = true;
    return loop_.stop();
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].failure) continue;
    Say(LogLevel::kWarning, nodes_[i].failure->message + "; starting without " + NameOf(i));
    nodes_[i].failure.reset();
    nodes_[i].ended = true;
    story_.OnAbsent(i);
    prepare_.add_absent_nodes(static_cast<uint32_t>(i));
  }
  // Whoever decides should not be a node that has nothing else to do in the job.
  auto host = std::ranges::find_if(
      nodes_, [](const NodeState& node) { return node.client && !node.planned->spare; });
  if (host == nodes_.end()) host = std::ranges::find_if(nodes_, &NodeState::is_reached);
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host - nodes_.begin()));
  story_.SetRendezvous(prepare_.rendezvous_node());
  PrepareAll();
}

bool LaunchSession::CanStartWithout(size_t failures) const {
  return nodes_.size() - failures >= static_cast<size_t>(options_.plan.min_nodes) &&
         std::ranges::all_of(nodes_, [](const NodeState& node) {
           return !node.failure || MayComeBack(*node.failure);
         });
}

void LaunchSession::PrepareAll() {
  pending_ = static_cast<size_t>(std::ranges::count_if(nodes_, &NodeState::is_reached));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].client) continue;
    Result<pb::PrepareRequest> request = PrepareRequestFor(i);
    if (!request.ok()) return FailStart(i, request.error());
    nodes_[i].client->Prepare(*std::move(request), [this, i](Result<pb::NodeFacts> facts) {
      OnPrepared(i, std::move(facts));
    });
  }
}

Result<pb::PrepareRequest> LaunchSession::PrepareRequestFor(size_t index) {
  pb::PrepareRequest request = prepare_;
  const PlannedNode& planned = *nodes_[index].planned;
  request.set_node_index(static_cast<uint32_t>(index));
  *request.mutable_program() = ProgramOn(planned, options_.program);
  for (const int device : planned.devices) request.add_devices(static_cast<uint32_t>(device));
  if (authority_) {
    DSL_TRY_ASSIGN(*request.mutable_credentials(),
                   authority_->Issue(request.node_index(), NameOf(index)));
  }
  return request;
}

void LaunchSession::OnPrepared(size_t index, Result<pb::NodeFacts> facts) {
  NodeState& node = nodes_[index];
  if (facts.ok()) {
    node.facts = *std::move(facts);
    events_.Connected(NameOf(index), node.facts->job_dir());
    Say(LogLevel::kDebug, NameOf(index) + " is prepared after " + SinceStart() + ", with " +
                              Count(node.facts->gpus(), "GPU") + "; its logs are in " +
                              node.facts->job_dir());
  } else {
    events_.Failed(NameOf(index), facts.error().message);
    node.failure = facts.error();
  }
  if (--pending_ > 0) return;
  if (std::ranges::none_of(nodes_, &NodeState::has_failed)) return RunAll();
  failed_to_start_ = true;
  loop_.stop();
}

void LaunchSession::RunAll() {
  std::vector<NodeGpus> gpus;
  for (const NodeState& node : nodes_) {
    if (!node.facts) continue;
    const PlannedNode& planned = *node.planned;
    gpus.push_back({planned.name, planned.slots, static_cast<int>(node.facts->gpus()),
                    planned.devices.empty() ? -1 : planned.devices.back()});
  }
  Result<DeviceDecision> device =
      DecideDevice(options_.device, gpus, options_.plan.launcher == Launcher::kLocal);
  if (!device.ok()) return FailStart(0, device.error());
  Say(LogLevel::kInfo, PlanLine(options_.plan, device->use_cuda ? "cuda" : "cpu"));
  Say(LogLevel::kDebug, device->reason);

  *run_.mutable_rendezvous_endpoints() =
      nodes_[prepare_.rendezvous_node()].facts->rendezvous_endpoints();
  Say(LogLevel::kDebug,
      "the rendezvous is on " + NameOf(prepare_.rendezvous_node()) + ": " +
          NameList({run_.rendezvous_endpoints().begin(), run_.rendezvous_endpoints().end()}, ", "));
  if (!options_.detach) *run_.mutable_shown() = options_.shown.ToProto();
  *run_.mutable_filtered()->mutable_ranks() = options_.shown.ToProto();
  for (const std::string& text : options_.stdout_filters)
    run_.mutable_filtered()->add_stdout_texts(text);
  for (const std::string& text : options_.stderr_filters)
    run_.mutable_filtered()->add_stderr_texts(text);
  run_.mutable_filtered()->set_tag_template(options_.tags.tag_template);
  run_.mutable_filtered()->set_role(options_.tags.role);
  run_.set_use_cuda(device->use_cuda);
  running_ = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].client ? RunNode(i) : TryAgain(i);
  }
  Watch();
}

void LaunchSession::RunNode(size_t index) {
  EventReader::Handlers handlers;
  handlers.event = [this, index](const pb::NodeEvent& event) { OnEvent(index, event); };
  handlers.log = [this, index](const pb::LogChunk& chunk, std::function<void()> go_on) {
    output_.Log(NameOf(index), chunk, std::move(go_on));
  };
  handlers.ended = [this, index] { OnStreamEnd(index); };
  pb::RunRequest request = run_;
  const std::vector<std::string> endpoints = EndpointsFor(index);
  *request.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
  // What another node's ranks write its own command shows.
  if (options_.plan.launcher == Launcher::kPerNode && index > 0) request.clear_shown();
  nodes_[index].client->Run(request, std::move(handlers));
}

// Nodes that came to us know this machine by one address for sure, and we know theirs.
std::vector<std::string> LaunchSession::EndpointsFor(size_t index) const {
  std::vector<std::string> endpoints(run_.rendezvous_endpoints().begin(),
                                     run_.rendezvous_endpoints().end());
  const size_t host = prepare_.rendezvous_node();
  if (options_.plan.launcher != Launcher::kPerNode || endpoints.empty() || index == host)
    return endpoints;
  const int port = std::stoi(endpoints.front().substr(endpoints.front().rfind(':') + 1));
  if (host == 0 && !options_.own_address.empty()) return {JoinHostPort(options_.own_address, port)};
  const std::string address =
      host == 0 ? nodes_[index].client->link().OwnAddress() : nodes_[host].client->link().Address();
  if (!address.empty()) endpoints.insert(endpoints.begin(), JoinHostPort(address, port));
  return endpoints;
}

void LaunchSession::FailStart(size_t index, Error error) {
  nodes_[index].failure = std::move(error);
  failed_to_start_ = true;
  loop_.stop();
}

}  // namespace dslaunch
