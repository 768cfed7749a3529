#include "tests/sim/relay_tree.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "cli/relay/relay_tree.h"
#include "proto/wire/node_list.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/rendezvous.h"
#include "tests/sim/simulation.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {
namespace {

constexpr int64_t kLossAtMs = 8'000;  // time after all ranks have started and before any has ended
constexpr int64_t kShortestRankMs = 20'000;
constexpr int64_t kSilentMs = 30'000;  // kUsualSilence, of the front end's link to a relay

Job MakeJob(const TreeJob& tree) {
  Job job;
  job.prepare.mutable_job()->set_job_id("job");
  job.prepare.mutable_job()->mutable_ranks()->mutable_program()->add_argv("python3");
  for (uint32_t index = 0; index < tree.nodes; ++index) {
    pb::Node& node = job.nodes.emplace_back();
    node.set_name("node" + std::to_string(index));
    node.set_slots(1);
    Host& planned = job.plan.nodes.emplace_back();
    planned.name = node.name();
    planned.slots = 1;
  }
  *job.prepare.mutable_job()->mutable_nodes() = PackNodes(job.nodes);
  pb::Timeouts& timeouts = *job.prepare.mutable_job()->mutable_timeouts();
  timeouts.set_grace_ms(2'000);
  timeouts.set_join_ms(20'000);
  timeouts.set_ready_ms(10'000);
  timeouts.set_teardown_ms(2'000);
  timeouts.set_heartbeat_ms(1'000);
  timeouts.set_suspect_ms(3'000);
  timeouts.set_dead_ms(6'000);
  timeouts.set_lease_ms(15'000);
  if (tree.max_restarts > 0) {
    pb::Policy& policy = *job.prepare.mutable_job()->mutable_policy();
    policy.set_max_restarts(tree.max_restarts);
    policy.set_min_nodes(tree.nodes - tree.fanout);
    policy.set_max_nodes(tree.nodes);
    policy.set_node_failures(tree.max_restarts);
  }
  job.plan.ranks = NumberRanksOf(job.plan.nodes);
  job.plan.launcher = Launcher::kSsh;
  job.plan.min_nodes =
      static_cast<int>(tree.max_restarts > 0 ? tree.nodes - tree.fanout : tree.nodes);
  job.plan.max_nodes = static_cast<int>(tree.nodes);
  job.shortest_rank_ms = kShortestRankMs;
  job.longest_rank_ms = kShortestRankMs + 5'000;
  job.most_reconnects = static_cast<int>(tree.fanout);
  job.is_calm = true;
  return job;
}

class Loss {
 public:
  Loss(World& world, const TreeJob& tree)
      : world_(world),
        first_(
            world.network.RelayOf(tree.lost_group == TreeJob::Group::kFirst ? 0 : tree.nodes - 1)),
        end_(std::min(first_ + std::max(tree.fanout, 1u), tree.nodes)) {}

  // Ends the relay process. The group then uses its next node as the relay.
  void LoseRelay() {
    for (NodeIncarnation* one : OfGroup()) one->ResetLink();
    for (uint32_t node = first_; node < end_; ++node) world_.network.SetRelay(node, first_ + 1);
  }

  // Cuts the power of the relay's machine. Its peers detect the loss only after kSilentMs.
  void LoseMachine() {
    world_.machines[first_].off = true;
    const int64_t until = world_.timeline.now() + kSilentMs;
    for (NodeIncarnation* one : OfGroup()) {
      if (one->node() == first_) {
        one->LosePower();
        continue;
      }
      one->up().is_lost = one->down().is_lost = true;
    }
    world_.timeline.At(until, nullptr, [this] {
      for (NodeIncarnation* one : OfGroup()) world_.front_end->OnLinkClosed(*one, false);
      for (uint32_t node = first_; node < end_; ++node) world_.network.SetRelay(node, first_ + 1);
    });
  }

 private:
  std::vector<NodeIncarnation*> OfGroup() const {
    std::vector<NodeIncarnation*> group;
    for (const auto& incarnation : world_.incarnations) {
      if (incarnation->node() >= first_ && incarnation->node() < end_)
        group.push_back(incarnation.get());
    }
    return group;
  }

  World& world_;
  const Place first_;
  const uint32_t end_;
};

}  // namespace

TreeRun RunTree(uint64_t seed, const TreeJob& tree) {
  const std::clock_t began = std::clock();
  World world(seed, Tracing::kNone, MakeJob(tree));
  world.network.SetCalm();
  if (tree.fanout > 0) {
    std::vector<Place> relays;
    for (uint32_t node = 0; node < tree.nodes; ++node)
      relays.push_back(static_cast<Place>(RelayOf(node, tree.fanout) * tree.fanout));
    world.network.SetRelays(std::move(relays));
  }
  world.front_end = std::make_unique<FrontEnd>(world);
  world.front_end->Start();
  Loss loss(world, tree);
  if (tree.lost != TreeJob::Lost::kNothing) {
    world.timeline.At(kLossAtMs, nullptr, [&] {
      tree.lost == TreeJob::Lost::kRelay ? loss.LoseRelay() : loss.LoseMachine();
    });
  }
  RunToQuiet(world);
  TreeRun run;
  run.error = world.invariants.error();
  run.exit_code = world.front_end->exit_code();
  run.attempts = world.invariants.attempts();
  run.virtual_ms = world.timeline.now();
  run.messages_per_node = static_cast<double>(world.network.messages()) / tree.nodes;
  run.cpu_us_per_node =
      static_cast<double>(std::clock() - began) * 1e6 / CLOCKS_PER_SEC / tree.nodes;
  return run;
}

}  // namespace dslaunch::sim
