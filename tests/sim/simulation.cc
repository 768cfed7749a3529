#include "tests/sim/simulation.h"

#include <algorithm>

#include "tests/sim/faults.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_incarnation.h"
#include "tests/sim/per_node.h"
#include "tests/sim/rendezvous.h"
#include "tests/sim/world.h"

namespace dslaunch::sim {
namespace {

bool IsOver(const World& world) {
  return (!world.per_node || world.per_node->is_over()) &&
         std::ranges::all_of(world.incarnations,
                             [](const auto& incarnation) { return incarnation->is_over(); });
}

}  // namespace

void RunToQuiet(World& world) {
  Invariants& invariants = world.invariants;
  const int64_t bound = world.job.LongestMs();
  while (invariants.error().empty() && !world.front_end->is_over()) {
    if (!world.timeline.Step() || world.timeline.now() > bound) {
      return invariants.Fail("the job did not end within " + std::to_string(bound) + " ms");
    }
  }
  const int64_t goes_on_ms = world.front_end->has_detached() ? bound : 0;
  // A command that was started late may search for node 0 until its join timeout expires.
  const int64_t quiet_by =
      world.timeline.now() + goes_on_ms + world.job.EmptyWithinMs() + 2 * world.job.join_timeout_ms;
  while (invariants.error().empty() && !IsOver(world)) {
    if (world.timeline.Step() && world.timeline.now() <= quiet_by) continue;
    for (const auto& incarnation : world.incarnations) {
      if (!incarnation->is_over())
        invariants.Fail("all is over, but the agent or supervisor of " +
                        world.NameOf(incarnation->node()) + " still runs");
    }
    if (world.per_node && !world.per_node->is_over())
      invariants.Fail("all is over, but a node's command still runs");
  }
  invariants.OnQuiet();
}

World::World(uint64_t seed, Tracing tracing, PlantedBug planted)
    : random(seed),
      job(DrawJob(random)),
      network(timeline, random, job.size()),
      invariants(job, [this] { return timeline.now(); }),
      trace(tracing),
      machines(job.size()),
      bug(planted) {}

World::World(uint64_t seed, Tracing tracing, Job given, PlantedBug planted)
    : random(seed),
      job(std::move(given)),
      network(timeline, random, job.size()),
      invariants(job, [this] { return timeline.now(); }),
      trace(tracing),
      machines(job.size()),
      bug(planted) {}

World::~World() = default;

namespace {

History Run(World& world) {
  world.Log("job", [&] { return world.job.prepare.ShortDebugString(); });
  world.front_end = std::make_unique<FrontEnd>(world);
  if (world.per_node) {
    world.per_node->Start();
    world.per_node->PlanFaults();
  } else {
    world.front_end->Start();
    PlanFaults(world);
  }
  RunToQuiet(world);
  History history;
  history.error = world.invariants.error();
  history.trace = world.trace.Last();
  history.detached = world.front_end->has_detached();
  history.elected = world.elections > 0;
  history.succeeded = history.detached ? world.succeeded : world.front_end->exit_code() == 0;
  history.restarted = world.invariants.attempts() > 1;
  history.failed_over = world.front_end->failovers() > 0;
  history.lost_front_end = world.front_end->is_over() && !world.front_end->exit_code();
  history.joined_late = world.per_node && world.per_node->joined_late() > 0;
  history.virtual_ms = world.timeline.now();
  return history;
}

}  // namespace

History RunHistory(uint64_t seed, PlantedBug bug, Tracing tracing) {
  World world(seed, tracing, bug);
  return Run(world);
}

History RunDetachedHistory(uint64_t seed, PlantedBug bug, Tracing tracing) {
  Random random(seed);
  World world(seed, tracing, DrawDetachedJob(random), bug);
  return Run(world);
}

History RunPerNodeHistory(uint64_t seed, PlantedBug bug, Tracing tracing) {
  Random random(seed);
  World world(seed, tracing, DrawPerNodeJob(random), bug);
  world.per_node = std::make_unique<PerNode>(world);
  return Run(world);
}

History RunHalfCutHistory(uint64_t seed, PlantedBug bug, Tracing tracing) {
  Random random(seed);
  World world(seed, tracing, DrawHalfCutJob(random, /*detached=*/false), bug);
  return Run(world);
}

History RunDetachedHalfCutHistory(uint64_t seed, PlantedBug bug, Tracing tracing) {
  Random random(seed);
  World world(seed, tracing, DrawHalfCutJob(random, /*detached=*/true), bug);
  return Run(world);
}

}  // namespace dslaunch::sim
