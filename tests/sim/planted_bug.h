// The bugs that the simulator is to find: one that finds nothing wrong with them would find nothing
// at all.
#pragma once

namespace dslaunch::sim {

enum class PlantedBug {
  kNone,
  kNoFence,       // what an agent says of an older attempt, or after it counts as lost, is heard
  kEarlyReaped,   // a supervisor takes everything for ended once it has sent SIGTERM
  kEarlyDrained,  // an agent says that its ranks have ended before the supervisor has said so
  kFailsOverTooEarly,  // the front end names another rendezvous before the lease of the lost one is
                       // over
  // Of detached jobs: one node counts as a majority; the nodes elect another rendezvous before the
  // leases of the lost one are over.
  kMinority,
  kNoElectionFence,
};

}  // namespace dslaunch::sim
