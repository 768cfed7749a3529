// How the front end starts a job.
#include <algorithm>
#include <memory>
#include <utility>

#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_visit.h"

namespace dslaunch::sim {

void FrontEnd::Start() {
  pending_ = nodes_.size();
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const bool absent = std::ranges::count(world_.job.absent, i) > 0;
    world_.timeline.After(world_.random.Between(100, 2'000), &process_,
                          [this, i, absent] { OnConnected(i, !absent && Reach(i)); });
  }
  RenewAll();
}

bool FrontEnd::Reach(uint32_t index) {
  const Place self = world_.network.front_end();
  if (world_.machines[index].off || world_.network.IsCut(self, index) ||
      world_.network.IsCut(index, self))
    return false;
  world_.visits.push_back(std::make_unique<NodeVisit>(world_, world_.visits.size(), index));
  nodes_[index].client = world_.visits.back().get();
  nodes_[index].heard_us.reset();
  nodes_[index].over = nodes_[index].link_closed = nodes_[index].keeper_ended = false;
  nodes_[index].prepared = false;
  return true;
}

void FrontEnd::OnConnected(uint32_t index, bool reached) {
  nodes_[index].failed = !reached;
  if (--pending_ == 0) OnAllConnected();
}

bool FrontEnd::CanStartWithout(size_t failures) const {
  return nodes_.size() - failures >= static_cast<size_t>(world_.job.plan.min_nodes);
}

void FrontEnd::OnAllConnected() {
  const auto failures = static_cast<size_t>(std::ranges::count_if(nodes_, &NodeState::failed));
  if (failures > 0 && !CanStartWithout(failures)) {
    failed_to_start_ = true;
    return Finish();
  }
  std::optional<uint32_t> host;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].failed) {
      nodes_[i].failed = false;
      nodes_[i].ended = true;
      story_.OnAbsent(i);
      prepare_.add_absent_nodes(i);
    } else if (!host || (world_.job.node(*host).spare() && !world_.job.node(i).spare())) {
      host = i;
    }
  }
  prepare_.set_rendezvous_node(*host);
  story_.SetRendezvous(*host);
  Say([&] { return "the rendezvous is to be on " + world_.NameOf(*host); });
  pending_ = nodes_.size() - failures;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].client != nullptr) Prepare(i);
  }
}

void FrontEnd::Prepare(uint32_t index) {
  NodeState& node = nodes_[index];
  node.preparing = true;
  NodeVisit& visit = *node.client;
  if (node.link_closed) {
    return world_.timeline.After(0, &process_,
                                 [this, index] { OnPrepared(index, false, nullptr); });
  }
  Tell(visit, [this, &visit, request = std::make_shared<pb::PrepareRequest>(prepare_)] {
    const bool ok = visit.Prepare(*request);
    const int64_t arrival =
        world_.network.Send(visit.up(), visit.node(), world_.network.front_end());
    world_.timeline.At(arrival, &process_, [this, &visit, ok, endpoint = visit.server()] {
      if (const auto again = IndexOf(visit)) OnPrepared(*again, ok, endpoint);
    });
  });
  world_.timeline.After(dead_after().count(), &process_, [this, index, &visit] {
    if (nodes_[index].client != &visit || !nodes_[index].preparing) return;
    SayGoodbye(index);  // nothing was heard of the node
    OnPrepared(index, false, nullptr);
  });
}

void FrontEnd::OnPrepared(uint32_t index, bool ok, Rendezvous* endpoint) {
  NodeState& node = nodes_[index];
  if (!std::exchange(node.preparing, false)) return;
  if (endpoint != nullptr && !running_) endpoint_ = endpoint;
  running_ ? OnPreparedAgain(index, ok) : OnPreparedAtStart(index, ok);
}

void FrontEnd::OnPreparedAtStart(uint32_t index, bool ok) {
  nodes_[index].prepared = ok;
  nodes_[index].failed = !ok;
  if (--pending_ > 0) return;
  if (std::ranges::none_of(nodes_, &NodeState::failed)) return RunAll();
  failed_to_start_ = true;
  Finish();
}

void FrontEnd::RunAll() {
  running_ = true;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].client != nullptr ? RunNode(i) : TryAgain(i);
  }
  Watch();
}

void FrontEnd::RunNode(uint32_t index) {
  NodeState& node = nodes_[index];
  node.listening_since = node.heard_at = Now();
  NodeVisit& visit = *node.client;
  if (node.link_closed)
    return world_.timeline.After(0, &process_, [this, &visit] { OnStreamEnd(visit); });
  Tell(visit, [&visit, endpoint = endpoint_] { visit.Run(endpoint); });
}

}  // namespace dslaunch::sim
