#include "cli/core/node_requests.h"

#include "cli/plan/job_spec.h"
#include "net/addresses.h"
#include "proto/wire/node_list.h"

namespace dslaunch {

NodeRequests::NodeRequests(const SessionOptions& options)
    : options_(options), addresses_(options.plan.nodes.size()) {
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

pb::PrepareRequest NodeRequests::PrepareFor(size_t index) const {
  pb::PrepareRequest request = PrepareRequestFor(prepare_, options_.plan, index);
  if (HasOwnPart(index)) {
    request.mutable_job()->clear_ranks();
    request.clear_devices();
  }
  return request;
}

pb::RunRequest NodeRequests::RunFor(size_t index) const {
  pb::RunRequest request = *run_;
  const std::vector<std::string> endpoints = EndpointsFor(index);
  *request.mutable_rendezvous_endpoints() = {endpoints.begin(), endpoints.end()};
  // The node's own command shows the output of its ranks, so this process requests no output.
  if (HasOwnPart(index)) request.clear_shown();
  return request;
}

void NodeRequests::MoveHost(size_t host, const pb::RendezvousOpened& opened) {
  SetHost(host);
  *run_->mutable_rendezvous_endpoints() = opened.rendezvous_endpoints();
}

// In the per-node style, each node has connected to this machine. So the address that the node used
// leads to this machine, and the node's own address is known.
std::vector<std::string> NodeRequests::EndpointsFor(size_t index) const {
  std::vector<std::string> endpoints(run_->rendezvous_endpoints().begin(),
                                     run_->rendezvous_endpoints().end());
  if (options_.plan.launcher != Launcher::kPerNode || endpoints.empty() || index == host())
    return endpoints;
  const int port = std::stoi(endpoints.front().substr(endpoints.front().rfind(':') + 1));
  if (host() == 0 && !options_.own_address.empty())
    return {JoinHostPort(options_.own_address, port)};
  const std::string& address = host() == 0 ? addresses_[index].own : addresses_[host()].node;
  if (!address.empty()) endpoints.insert(endpoints.begin(), JoinHostPort(address, port));
  return endpoints;
}

}  // namespace dslaunch
