#include "cli/commands/node_stream.h"

#include <thread>
#include <utility>

namespace dslaunch {

NodeStream::NodeStream(std::shared_ptr<LoopPoster> poster, Handlers handlers)
    : poster_(std::move(poster)), handlers_(std::move(handlers)) {}

NodeStream::~NodeStream() {
  if (reader_) std::exchange(reader_, nullptr)->Cancel();
}

void NodeStream::Open(const JobRecord& record, size_t node, AgentRole::Kind kind,
                      const AgentBinary& agent, Deadline deadline) {
  std::thread([this, poster = poster_, record, node, kind, agent, deadline] {
    Result<std::unique_ptr<NodeInspection>> inspection =
        NodeInspection::Open(record, node, kind, agent, deadline);
    poster->Post(
        [this, inspection = std::move(inspection)]() mutable { OnOpened(std::move(inspection)); });
  }).detach();
}

void NodeStream::OnOpened(Result<std::unique_ptr<NodeInspection>> inspection) {
  if (!inspection.ok()) return handlers_.over(inspection.error());
  inspection_ = *std::move(inspection);
  reader_ = EventReader::Start(
      poster_,
      EventReader::Handlers{handlers_.event, handlers_.log, [this] { handlers_.over({}); },
                            handlers_.broke_rules},
      [this, counted = inspection_->BeginCall()](grpc::ClientContext* context,
                                                 EventReader* reader) {
        handlers_.start(inspection_->channel(), context, reader);
      });
}

}  // namespace dslaunch
