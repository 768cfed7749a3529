#include "cli/core/session_nodes.h"

#include <algorithm>
#include <utility>

#include "cli/plan/job_spec.h"
#include "net/addresses.h"
#include "proto/wire/node_list.h"

namespace dslaunch {

SessionNodes::SessionNodes(const SessionOptions& options, JobState& job, SessionOutbox& out)
    : options_(options), job_(job), out_(out) {
  for (const Host& planned : options_.plan.nodes) {
    nodes_.emplace_back().planned = &planned;
    names_.push_back(planned.name);
  }
  FillPrepare();
}

std::string SessionNodes::JobFolderOf(size_t index) const {
  return nodes_[index].info ? nodes_[index].info->job_dir() : "";
}

// --- Preparing and running ---

void SessionNodes::FillPrepare() {
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

void SessionNodes::OnReached(size_t index, NodeAddresses addresses) {
  Node& node = nodes_[index];
  node.is_reached = true;
  node.addresses = std::move(addresses);
  node.goodbye_said = false;
}

void SessionNodes::SetAbsent(size_t index) {
  nodes_[index].ended = true;
  job_.OnAbsent(index);
  prepare_.add_absent_nodes(static_cast<uint32_t>(index));
}

// Prefers a node with ranks to a spare.
void SessionNodes::ChooseHost() {
  auto host = std::ranges::find_if(
      nodes_, [](const Node& node) { return node.is_reached && !node.planned->spare; });
  if (host == nodes_.end()) host = std::ranges::find_if(nodes_, &Node::is_reached);
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host - nodes_.begin()));
  job_.SetRendezvous(prepare_.rendezvous_node());
}

void SessionNodes::Prepare(size_t index) {
  Node& node = nodes_[index];
  node.is_preparing = true;
  node.prepared_for = prepare_.rendezvous_node();
  action::Prepare prepare{index, PrepareRequestFor(prepare_, options_.plan, index)};
  if (HasOwnPart(index)) {
    prepare.request.mutable_job()->clear_ranks();
    prepare.request.clear_devices();
  }
  out_.Do(std::move(prepare));
}

void SessionNodes::OnPrepared(size_t index, pb::PreparedNode info) {
  nodes_[index].info = std::move(info);
  out_.Record(action::Record::Kind::kConnected, index, nodes_[index].info->job_dir());
}

void SessionNodes::RunAll(pb::RunRequest run) {
  run_ = std::move(run);
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].is_reached ? Run(i) : Reconnect(i);
}

void SessionNodes::RunAgain(size_t index) {
  nodes_[index].stream_ended = nodes_[index].ended = nodes_[index].is_empty = false;
  Run(index);
}

void SessionNodes::Run(size_t index) {
  action::Run run{index, *run_};
  const std::vector<std::string> endpoints = EndpointsFor(index);
  *run.request.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
  // The node's own command shows the output of its ranks.
  if (HasOwnPart(index)) run.request.clear_shown();
  out_.Do(std::move(run));
}

// --- Failover ---

void SessionNodes::MoveHost(size_t host, const pb::RendezvousOpened& opened) {
  prepare_.set_rendezvous_node(static_cast<uint32_t>(host));
  *run_->mutable_rendezvous_endpoints() = opened.rendezvous_endpoints();
}

// In the per-node style nodes have connected to this machine: they reach it at that address, and
// their own addresses are known.
std::vector<std::string> SessionNodes::EndpointsFor(size_t index) const {
  std::vector<std::string> endpoints(run_->rendezvous_endpoints().begin(),
                                     run_->rendezvous_endpoints().end());
  if (options_.plan.launcher != Launcher::kPerNode || endpoints.empty() || index == host())
    return endpoints;
  const int port = std::stoi(endpoints.front().substr(endpoints.front().rfind(':') + 1));
  if (host() == 0 && !options_.own_address.empty())
    return {JoinHostPort(options_.own_address, port)};
  const std::string& address =
      host() == 0 ? nodes_[index].addresses.own : nodes_[host()].addresses.node;
  if (!address.empty()) endpoints.insert(endpoints.begin(), JoinHostPort(address, port));
  return endpoints;
}

// --- The end of a connection ---

void SessionNodes::OnEnded(size_t index, bool is_empty) {
  nodes_[index].ended = true;
  nodes_[index].is_empty = is_empty;
}

void SessionNodes::Reconnect(size_t index) {
  if (!job_.restartable() || job_.ending() || connecting_stopped_) return;
  // The new agent of the host would open an empty rendezvous. The session reconnects once another
  // node hosts the rendezvous.
  if (index == host() || std::exchange(nodes_[index].is_tried, true)) return;
  out_.Log(LogLevel::kDebug, names_[index] + " is retried until it is reachable");
  RetryConnect(index);
}

void SessionNodes::RetryConnect(size_t index) {
  out_.Do(action::Connect{index, ++nodes_[index].attempts});
}

void SessionNodes::StopConnecting() {
  if (!std::exchange(connecting_stopped_, true)) out_.Do(action::StopConnecting{});
}

void SessionNodes::SayGoodbye(size_t index) {
  nodes_[index].goodbye_said = true;
  out_.Do(action::Goodbye{index});
}

void SessionNodes::Abort(size_t index, const std::string& why) {
  nodes_[index].goodbye_said = true;
  out_.Do(action::Abort{index, why});
}

void SessionNodes::Abandon(size_t index) {
  if (!nodes_[index].ended && !nodes_[index].stream_ended) Abort(index, "the other nodes lost it");
}

void SessionNodes::Stop(const pb::Cause& cause, bool kill_now, std::optional<size_t> except) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != except && nodes_[i].is_seen()) out_.Do(action::Stop{i, cause, kill_now});
  }
}

}  // namespace dslaunch
