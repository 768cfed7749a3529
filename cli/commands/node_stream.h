// A stream of events from an inspection to one node.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/commands/node_inspection.h"
#include "cli/session/event_reader.h"
#include "net/loop_poster.h"

namespace dslaunch {

// On the loop's thread. The node is reached by a thread of its own, which owns what it uses: a
// stream that is destroyed does not wait for a host that never answers. To be destroyed after the
// poster is closed and the loop is gone: it then ends its call and waits for that, 10 s at most.
class NodeStream {
 public:
  using Reactor = grpc::ClientReadReactor<pb::NodeEvent>;
  struct Handlers {
    // The call over the new connection; it is started when this returns.
    std::function<void(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*, Reactor*)>
        start;
    std::function<void(const pb::NodeEvent&)> event;  // all but output
    // The next event is read once `go_on` was called.
    std::function<void(const pb::LogChunk&, std::function<void()> go_on)> log;
    // The stream has ended; an error when the node could not be reached.
    std::function<void(Result<void>)> over;
    // Its agent sent `what`, which no agent sends; `over` follows.
    std::function<void(const std::string& what)> broke_rules;
  };

  NodeStream(std::shared_ptr<LoopPoster> poster, Handlers handlers);
  NodeStream(const NodeStream&) = delete;
  ~NodeStream();

  // Once.
  void Open(const JobRecord& record, size_t node, AgentRole::Kind kind, const AgentBinary& agent,
            Deadline deadline);

  // Null until it is open.
  NodeInspection* inspection() const { return inspection_.get(); }

 private:
  void OnOpened(Result<std::unique_ptr<NodeInspection>> inspection);

  const std::shared_ptr<LoopPoster> poster_;
  const Handlers handlers_;
  std::unique_ptr<NodeInspection> inspection_;
  std::shared_ptr<EventReader> reader_;
};

}  // namespace dslaunch
