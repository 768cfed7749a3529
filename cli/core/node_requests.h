// Builds the requests that prepare and run a session's nodes. Performs no I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/core/session_options.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The numeric addresses of both ends of a connection: the node, and this machine. `own` is empty if
// the transport makes no connection that shows it.
struct NodeAddresses {
  std::string node;
  std::string own;
};

// Builds each node's requests from the parts that all nodes share and from the addresses at which
// nodes reach each other. A node's index is its index in the plan.
class NodeRequests {
 public:
  // Prepares the requests of a session. `options` must outlive this object.
  explicit NodeRequests(const SessionOptions& options);

  // Returns the index of the node that hosts the rendezvous.
  size_t host() const { return prepare_.rendezvous_node(); }
  void SetHost(size_t host) { prepare_.set_rendezvous_node(static_cast<uint32_t>(host)); }
  // Sets the addresses of the newest connection to the node.
  void SetAddresses(size_t index, NodeAddresses addresses) {
    addresses_[index] = std::move(addresses);
  }

  // Adds a node to the nodes without which the job starts.
  void AddAbsent(size_t index) { prepare_.add_absent_nodes(static_cast<uint32_t>(index)); }
  // Returns the approximate size of a node's request to prepare.
  size_t PrepareBytes() const { return prepare_.ByteSizeLong(); }

  // Returns the request that prepares a node.
  pb::PrepareRequest PrepareFor(size_t index) const;

  // Returns whether SetRun() was called, which begins the run of the job. Precondition of device(),
  // RunFor(), MoveHost() and EndpointsFor(): running().
  bool running() const { return run_.has_value(); }
  void SetRun(pb::RunRequest run) { run_ = std::move(run); }
  // Returns the kind of the job's devices.
  pb::Device device() const { return run_->device(); }

  // Returns the request that runs a node's part of the job.
  pb::RunRequest RunFor(size_t index) const;
  // Sets the new host of the rendezvous. `opened` is the answer of the new host.
  void MoveHost(size_t host, const pb::RendezvousOpened& opened);
  // Returns the endpoints at which the node can reach the rendezvous.
  std::vector<std::string> EndpointsFor(size_t index) const;

 private:
  // Returns whether the node's own command decides what the node runs (pb::OwnPart), so that the
  // program is not sent over the network.
  bool HasOwnPart(size_t index) const {
    return options_.plan.launcher == Launcher::kPerNode && index > 0;
  }

  const SessionOptions& options_;
  // Addresses of each node's newest connection, indexed by node.
  std::vector<NodeAddresses> addresses_;
  pb::PrepareRequest prepare_;
  std::optional<pb::RunRequest> run_;
};

}  // namespace dslaunch
