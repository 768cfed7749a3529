// The nodes of a session: their connections, and the requests by which they are prepared and run.
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

// Numeric; OwnAddress of NodeLink may be empty.
struct NodeAddresses {
  std::string node;
  std::string own;
};

// A node's index is its index in the plan.
class SessionNodes {
 public:
  struct Node {
    const Host* planned = nullptr;
    bool is_reached = false;  // once at least; what follows is of its newest connection
    NodeAddresses addresses;
    bool is_held = false;  // reached again while there is no rendezvous for it to join
    bool is_preparing = false;
    size_t prepared_for = 0;    // the host of the rendezvous that was named to its agent
    bool goodbye_said = false;  // or it was aborted: its lease is not renewed any more
    int attempts = 0;           // to reach it again, since its ranks started last
    bool is_tried = false;      // one of them is under way
    std::optional<pb::PreparedNode> info;
    bool stream_ended = false;  // the stream of its events
    bool ended = false;         // nothing more will arrive: done, or lost and its link ended
    bool is_empty = false;      // it has ended, and its ranks have surely ended

    bool is_seen() const { return is_reached && !ended; }
  };

  // Both outlive it.
  SessionNodes(const SessionOptions& options, JobState& job, SessionOutbox& out);

  size_t size() const { return nodes_.size(); }
  const std::vector<Node>& all() const { return nodes_; }
  const Node& operator[](size_t index) const { return nodes_[index]; }
  const std::vector<std::string>& names() const { return names_; }
  // Empty if the node did not report it.
  std::string JobFolderOf(size_t index) const;
  // The node that hosts the rendezvous.
  size_t host() const { return prepare_.rendezvous_node(); }
  // All nodes have got the request to run.
  bool running() const { return run_.has_value(); }
  bool connecting_stopped() const { return connecting_stopped_; }

  // --- Preparing and running ---

  // The connection to a node is there. It is of a new agent.
  void OnReached(size_t index, NodeAddresses addresses);
  // The job starts without the node.
  void SetAbsent(size_t index);
  // Lets a node that is reached host the rendezvous.
  void ChooseHost();
  // Returns the size of a node's request to prepare, about.
  size_t RequestBytes() const { return prepare_.ByteSizeLong(); }
  void Prepare(size_t index);
  // The node has answered, well or not.
  void OnPrepareAnswered(size_t index) { nodes_[index].is_preparing = false; }
  void OnPrepared(size_t index, pb::PreparedNode info);
  // Runs the nodes that are reached, and tries the others again.
  void RunAll(pb::RunRequest run);
  // Runs a node that was prepared again.
  void RunAgain(size_t index);
  bool uses_cuda() const { return run_->use_cuda(); }
  // The ranks of the node have started.
  void OnStarted(size_t index) { nodes_[index].attempts = 0; }

  // --- Failover ---

  void MoveHost(size_t host, const pb::RendezvousOpened& opened);
  // Keeps a node that is reached until there is a rendezvous.
  void Hold(size_t index) { nodes_[index].is_held = true; }
  bool TakeHeld(size_t index) { return std::exchange(nodes_[index].is_held, false); }
  // Returns where the node finds the rendezvous.
  std::vector<std::string> EndpointsFor(size_t index) const;

  // --- The end of a connection ---

  void OnStreamEnd(size_t index) { nodes_[index].stream_ended = true; }
  void OnEnded(size_t index, bool is_empty);
  // Tries to reach a lost node, unless the job ends or does without it.
  void Reconnect(size_t index);
  // An attempt has failed, so another follows; or it has succeeded.
  void RetryConnect(size_t index);
  void OnRetried(size_t index) { nodes_[index].is_tried = false; }
  void StopConnecting();
  void SayGoodbye(size_t index);
  void Abort(size_t index, const std::string& why);
  // Ends a node that the other nodes have lost and continue without, whatever it still does.
  void Abandon(size_t index);
  // Stops all nodes that are there.
  void Stop(const pb::Cause& cause, bool kill_now, std::optional<size_t> except = {});

 private:
  void FillPrepare();
  void Run(size_t index);
  // Its own command decides what it runs (pb::OwnPart): nothing of that crosses the network.
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
