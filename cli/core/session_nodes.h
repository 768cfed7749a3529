// The nodes of a session: their connections, and the requests that prepare and run them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/core/job_state.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Numeric addresses; `own` may be empty, like NodeLink::OwnAddress.
struct NodeAddresses {
  std::string node;
  std::string own;
};

// A node's index is its index in the plan.
class SessionNodes {
 public:
  struct Node {
    const Host* planned = nullptr;
    // Whether the node was reached at least once. The fields below describe the newest connection.
    bool is_reached = false;
    NodeAddresses addresses;
    bool is_held = false;  // reached again, but there is no rendezvous to join
    bool is_preparing = false;
    size_t prepared_for = 0;  // host of the rendezvous that was sent to the node's agent
    // True once Goodbye was sent or the connection was aborted; the lease is then not renewed any
    // more.
    bool goodbye_said = false;
    int attempts = 0;       // attempts to reconnect to the node since its ranks last started
    bool is_tried = false;  // an attempt to reach the node is in progress
    std::optional<pb::PreparedNode> info;
    bool stream_ended = false;  // the stream of the node's events has ended
    bool ended = false;         // nothing more will arrive: done, or lost and its link ended
    bool is_empty = false;      // the node and its ranks have certainly ended

    bool is_seen() const { return is_reached && !ended; }
  };

  // Both arguments must outlive this object.
  SessionNodes(const SessionOptions& options, JobState& job, SessionOutbox& out);

  size_t size() const { return nodes_.size(); }
  const std::vector<Node>& all() const { return nodes_; }
  const Node& operator[](size_t index) const { return nodes_[index]; }
  const std::vector<std::string>& names() const { return names_; }
  // Returns the job's folder on the node; empty if the node did not report it.
  std::string JobFolderOf(size_t index) const;
  // Index of the node that hosts the rendezvous.
  size_t host() const { return prepare_.rendezvous_node(); }
  // Whether all nodes have received the request to run.
  bool running() const { return run_.has_value(); }
  bool connecting_stopped() const { return connecting_stopped_; }

  // --- Preparing and running ---

  // Called when the connection to a new agent of a node is made.
  void OnReached(size_t index, NodeAddresses addresses);
  // Lets the job start without the node, which could not be reached.
  void SetAbsent(size_t index);
  // Chooses the host of the rendezvous among the nodes that are reached.
  void ChooseHost();
  // Returns the approximate size of a node's request to prepare.
  size_t RequestBytes() const { return prepare_.ByteSizeLong(); }
  void Prepare(size_t index);
  // Called when the node has answered, also with an error.
  void OnPrepareAnswered(size_t index) { nodes_[index].is_preparing = false; }
  void OnPrepared(size_t index, pb::PreparedNode info);
  // Sends the request to run to the nodes that are reached, and tries to reach the others again.
  void RunAll(pb::RunRequest run);
  // Sends the request to run to a node that was prepared again.
  void RunAgain(size_t index);
  pb::Device device() const { return run_->device(); }  // kind of the job's devices
  // Called when the ranks of the node have started.
  void OnStarted(size_t index) { nodes_[index].attempts = 0; }

  // --- Failover ---

  void MoveHost(size_t host, const pb::RendezvousOpened& opened);
  // Marks a reconnected node as waiting for the rendezvous. TakeHeld returns the mark and removes
  // it.
  void Hold(size_t index) { nodes_[index].is_held = true; }
  bool TakeHeld(size_t index) { return std::exchange(nodes_[index].is_held, false); }
  // Returns the endpoints at which the node can reach the rendezvous.
  std::vector<std::string> EndpointsFor(size_t index) const;

  // --- The end of a connection ---

  void OnStreamEnd(size_t index) { nodes_[index].stream_ended = true; }
  void OnEnded(size_t index, bool is_empty);
  // Tries to reconnect to a lost node, unless the job is ending or continues without it.
  void Reconnect(size_t index);
  // Called when an attempt to reach a node has failed and another one follows, or has succeeded.
  void RetryConnect(size_t index);
  void OnRetried(size_t index) { nodes_[index].is_tried = false; }
  void StopConnecting();
  void SayGoodbye(size_t index);
  void Abort(size_t index, const std::string& why);
  // Ends a node that the other nodes have declared lost, whatever it is still doing.
  void Abandon(size_t index);
  // Stops all connected nodes.
  void Stop(const pb::Cause& cause, bool kill_now, std::optional<size_t> except = {});

 private:
  void FillPrepare();
  void Run(size_t index);
  // Whether the node's own command decides what the node runs (pb::OwnPart), so that this is not
  // sent over the network.
  bool HasOwnPart(size_t index) const {
    return options_.plan.launcher == Launcher::kPerNode && index > 0;
  }

  const SessionOptions& options_;
  JobState& job_;
  SessionOutbox& out_;
  std::vector<Node> nodes_;
  std::vector<std::string> names_;
  pb::PrepareRequest prepare_;
  std::optional<pb::RunRequest> run_;
  bool connecting_stopped_ = false;
};

}  // namespace dslaunch
