// Manages the nodes of a session and the state of the newest connection to each node.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/core/node_requests.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Keeps the state of each node and sends requests to the nodes. A node's index is its index in the
// plan.
class SessionNodes {
 public:
  struct Node {
    const Host* planned = nullptr;
    // True if the node was reached at least once. The fields below describe the newest connection.
    bool is_reached = false;
    bool is_preparing = false;
    size_t prepared_for = 0;  // index of the rendezvous' host that was sent to the node's agent
    // True once Goodbye was sent or the connection was aborted; the lease is then not renewed any
    // more.
    bool goodbye_said = false;
    std::optional<pb::PreparedNode> info;
    bool stream_ended = false;  // true if the stream of the node's events has ended
    // True if nothing more will arrive: the node is done, or it is lost and its link ended.
    bool ended = false;
    bool is_empty = false;  // true if the node and its ranks have certainly ended

    bool is_seen() const { return is_reached && !ended; }
  };

  // Creates an entry for each node of the plan. All arguments must outlive this object.
  SessionNodes(const SessionOptions& options, NodeRequests& requests, SessionOutbox& out);

  size_t size() const { return nodes_.size(); }
  const std::vector<Node>& all() const { return nodes_; }
  const Node& operator[](size_t index) const { return nodes_[index]; }
  const std::vector<std::string>& names() const { return names_; }

  // Records a new connection to an agent of the node.
  void OnReached(size_t index, NodeAddresses addresses);
  void Prepare(size_t index);
  // Records that the node has answered the request to prepare, successfully or with an error.
  void OnPrepareAnswered(size_t index) { nodes_[index].is_preparing = false; }
  void OnPrepared(size_t index, pb::PreparedNode info);
  // Sends the request to run to a node that is prepared, for the first time or again.
  void Run(size_t index);

  // --- The end of a connection ---

  void OnStreamEnd(size_t index) { nodes_[index].stream_ended = true; }
  void OnEnded(size_t index, bool is_empty);
  void SayGoodbye(size_t index);
  void Abort(size_t index, const std::string& why);
  // Ends a node that the other nodes have declared lost, whatever it is still doing.
  void Abandon(size_t index);
  // Stops all connected nodes.
  void Stop(const pb::Cause& cause, bool kill_now, std::optional<size_t> except = {});

 private:
  NodeRequests& requests_;
  SessionOutbox& out_;
  std::vector<Node> nodes_;
  std::vector<std::string> names_;
};

}  // namespace dslaunch
