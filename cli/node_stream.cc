#include "cli/node_stream.h"

#include <asio/post.hpp>
#include <thread>
#include <utility>

namespace dslaunch {

// The next event is read when the last one has been dealt with.
class NodeStream::Reader final : public NodeStream::Reactor {
 public:
  explicit Reader(NodeStream& stream) : stream_(stream) {
    stream_.handlers_.start(stream_.channel_, &context_, this);
    StartRead(&event_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    asio::post(stream_.loop_, [this] { Handle(); });
  }
  void OnDone(const grpc::Status&) override {
    asio::post(stream_.loop_, [this] { stream_.handlers_.over({}); });
  }

 private:
  void Handle() {
    if (event_.has_log())
      return stream_.handlers_.log(event_.log(), [this] { StartRead(&event_); });
    stream_.handlers_.event(event_);
    StartRead(&event_);
  }

  NodeStream& stream_;
  grpc::ClientContext context_;
  pb::NodeEvent event_;
};

NodeStream::NodeStream(asio::io_context& loop, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {}
NodeStream::~NodeStream() = default;

void NodeStream::Open(const JobRecord& record, size_t node, AgentRole::Kind kind,
                      const AgentBinary& agent, Deadline deadline) {
  std::thread([this, record, node, kind, agent, deadline] {
    const Result<NodeVisit*> visit = NodeVisit::Open(record, node, kind, agent, deadline);
    asio::post(loop_, [this, visit] { OnOpened(visit); });
  }).detach();
}

void NodeStream::OnOpened(const Result<NodeVisit*>& visit) {
  if (!visit.ok()) return handlers_.over(visit.error());
  channel_ = (*visit)->channel();
  reader_ = std::make_unique<Reader>(*this);
}

}  // namespace dslaunch
