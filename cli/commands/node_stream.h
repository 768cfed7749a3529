// A stream of events from an inspection to one node.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>

#include "cli/commands/node_inspection.h"
#include "cli/session/event_reader.h"

namespace dslaunch {

// Opened on a thread of its own; everything else happens on the loop's thread. Never destroyed:
// its calls and its thread use it until the process ends.
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
    // Nothing more will come; an error when the node could not be reached.
    std::function<void(Result<void>)> over;
  };

  NodeStream(asio::io_context& loop, Handlers handlers);
  NodeStream(const NodeStream&) = delete;
  ~NodeStream();

  // Once.
  void Open(const JobRecord& record, size_t node, AgentRole::Kind kind, const AgentBinary& agent,
            Deadline deadline);

  // Null until it is open.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  void OnOpened(const Result<NodeInspection*>& inspection);

  asio::io_context& loop_;
  const Handlers handlers_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<EventReader> reader_;
};

}  // namespace dslaunch
