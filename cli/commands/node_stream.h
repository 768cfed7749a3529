// Reads a stream of events from an inspection of a node.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/commands/node_inspection.h"
#include "cli/session/event_reader.h"
#include "net/loop_poster.h"

namespace dslaunch {

// A stream of events. Used on the loop's thread. A separate thread that owns its data connects to
// the node, so destroying a stream does not wait for a host that never answers. Destroy the stream
// after the poster is closed and the loop is destroyed; the destructor ends the call and waits for
// its end, 10 s at most.
class NodeStream {
 public:
  using Reactor = grpc::ClientReadReactor<pb::NodeEvent>;
  struct Handlers {
    // Prepares the call over the new connection; the stream starts the call when `start` returns.
    std::function<void(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*, Reactor*)>
        start;
    std::function<void(const pb::NodeEvent&)> event;  // receives all events except output
    // Receives output. The stream reads the next event after `go_on` was called.
    std::function<void(const pb::LogChunk&, std::function<void()> go_on)> log;
    // Receives the end of the stream, with an error if the node could not be reached.
    std::function<void(Result<void>)> over;
    // Receives a description, `what`, of a message of the agent that violates the protocol; `over`
    // follows.
    std::function<void(const std::string& what)> broke_rules;
  };

  NodeStream(std::shared_ptr<LoopPoster> poster, Handlers handlers);
  NodeStream(const NodeStream&) = delete;
  ~NodeStream();

  // Connects to the node and starts the stream. Call it once.
  void Open(const JobRecord& record, size_t node, AgentRole::Kind kind, const AgentBinary& agent,
            Deadline deadline);

  // Returns the inspection; null until the node is reached.
  NodeInspection* inspection() const { return inspection_.get(); }

 private:
  void OnOpened(Result<std::unique_ptr<NodeInspection>> inspection);

  const std::shared_ptr<LoopPoster> poster_;
  const Handlers handlers_;
  std::unique_ptr<NodeInspection> inspection_;
  std::shared_ptr<EventReader> reader_;
};

}  // namespace dslaunch
