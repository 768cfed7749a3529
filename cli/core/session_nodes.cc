#include "cli/core/session_nodes.h"

#include <utility>

namespace dslaunch {

SessionNodes::SessionNodes(const SessionOptions& options, NodeRequests& requests,
                           SessionOutbox& out)
    : requests_(requests), out_(out) {
  for (const Host& planned : options.plan.nodes) {
    nodes_.emplace_back().planned = &planned;
    names_.push_back(planned.name);
  }
}

void SessionNodes::OnReached(size_t index, NodeAddresses addresses) {
  Node& node = nodes_[index];
  node.is_reached = true;
  node.goodbye_said = false;
  requests_.SetAddresses(index, std::move(addresses));
}

void SessionNodes::Prepare(size_t index) {
  Node& node = nodes_[index];
  node.is_preparing = true;
  node.prepared_for = requests_.host();
  out_.Do(action::Prepare{index, requests_.PrepareFor(index)});
}

void SessionNodes::OnPrepared(size_t index, pb::PreparedNode info) {
  nodes_[index].info = std::move(info);
  out_.Record(action::Record::Kind::kConnected, index, nodes_[index].info->job_dir());
}

void SessionNodes::Run(size_t index) {
  nodes_[index].stream_ended = nodes_[index].ended = nodes_[index].is_empty = false;
  out_.Do(action::Run{index, requests_.RunFor(index)});
}

// --- The end of a connection ---

void SessionNodes::OnEnded(size_t index, bool is_empty) {
  nodes_[index].ended = true;
  nodes_[index].is_empty = is_empty;
}

void SessionNodes::SayGoodbye(size_t index) {
  nodes_[index].goodbye_said = true;
  out_.Do(action::Goodbye{index});
}

void SessionNodes::Abort(size_t index, const std::string& why) {
  nodes_[index].goodbye_said = true;
  out_.Do(action::Abort{index, why});
}

void SessionNodes::Abandon(size_t index) {
  if (!nodes_[index].ended && !nodes_[index].stream_ended) Abort(index, "the other nodes lost it");
}

void SessionNodes::Stop(const pb::Cause& cause, bool kill_now, std::optional<size_t> except) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i != except && nodes_[i].is_seen()) out_.Do(action::Stop{i, cause, kill_now});
  }
}

}  // namespace dslaunch
