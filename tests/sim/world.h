// Holds all participants of one history (simulated run of a job) and their environment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/invariants.h"
#include "tests/sim/job.h"
#include "tests/sim/network.h"
#include "tests/sim/planted_bug.h"
#include "tests/sim/trace.h"
#include "tests/sim/virtual_time.h"

namespace dslaunch::sim {

class FrontEnd;
class NodeIncarnation;
class PerNode;
class Rendezvous;

struct Machine {
  MachineClock clock;
  bool off = false;
  // Whether the machine was ever stopped or its clock jumped. Its lease may then end a little later
  // than other nodes assume.
  bool stood_still = false;
  int64_t went_on_at = 0;  // time at which the machine, or its agent, last resumed
  int64_t disk_full_until = 0;
};

struct World {
  World(uint64_t seed, Tracing tracing, PlantedBug planted);
  World(uint64_t seed, Tracing tracing, Job given, PlantedBug planted = PlantedBug::kNone);
  World(const World&) = delete;
  ~World();

  template <class MakeText>  // `make_text` returns the line; it is not called without a trace
  void Log(const std::string& party, MakeText make_text) {
    if (trace.on()) trace.Add(timeline.now(), party, make_text());
  }
  std::string NameOf(Place place) const {
    return place == network.front_end() ? "front end" : job.node(place).name();
  }
  bool IsDiskFull(uint32_t node) const { return timeline.now() < machines[node].disk_full_until; }

  Random random;
  Timeline timeline;
  const Job job;
  Network network;
  Invariants invariants;
  Trace trace;
  std::vector<Machine> machines;  // machines of the nodes, by index
  Machine front_end_machine;
  const PlantedBug bug;

  // Results of detached jobs: the number of elected rendezvous, and whether a node stored the
  // result 0.
  int elections = 0;
  bool succeeded = false;

  std::unique_ptr<FrontEnd> front_end;
  std::vector<std::unique_ptr<NodeIncarnation>>
      incarnations;                                     // incarnations on all nodes, oldest first
  std::vector<std::unique_ptr<Rendezvous>> rendezvous;  // oldest first
  std::unique_ptr<PerNode> per_node;  // null if the front end connects to the nodes itself
};

// Runs until the front end has ended, and then until no agent is left. Each phase has its own time
// limit.
void RunToQuiet(World& world);

}  // namespace dslaunch::sim
