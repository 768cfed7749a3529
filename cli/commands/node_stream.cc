#include "cli/commands/node_stream.h"

#include <asio/post.hpp>
#include <thread>
#include <utility>

namespace dslaunch {

NodeStream::NodeStream(asio::io_context& loop, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {}
NodeStream::~NodeStream() = default;

void NodeStream::Open(const JobRecord& record, size_t node, AgentRole::Kind kind,
                      const AgentBinary& agent, Deadline deadline) {
  std::thread([this, record, node, kind, agent, deadline] {
    const Result<NodeInspection*> inspection =
        NodeInspection::Open(record, node, kind, agent, deadline);
    asio::post(loop_, [this, inspection] { OnOpened(inspection); });
  }).detach();
}

void NodeStream::OnOpened(const Result<NodeInspection*>& inspection) {
  if (!inspection.ok()) return handlers_.over(inspection.error());
  channel_ = (*inspection)->channel();
  reader_ = EventReader::Start(
      std::make_shared<LoopPoster>(loop_),
      EventReader::Handlers{handlers_.event, handlers_.log, [this] { handlers_.over({}); }},
      [this](grpc::ClientContext* context, EventReader* reader) {
        handlers_.start(channel_, context, reader);
      });
}

}  // namespace dslaunch
