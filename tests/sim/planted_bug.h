// The bugs that the simulator is to find: one that finds nothing wrong with them would find nothing
// at all.
#pragma once

namespace dslaunch::sim {

enum class PlantedBug {
  kNone,
  kNoFence,       // messages of an older attempt, or of an agent that counts as lost, are accepted
  kEarlyReaped,   // a supervisor takes everything for ended once it has sent SIGTERM
  kEarlyDrained,  // an agent reports that its ranks have ended before the supervisor does
  kFailsOverTooEarly,  // the front end names another rendezvous before the lease of the lost one is
                       // over
  kEarlyCommandEnd,    // the command of a node does not wait for its agent's end
  // Of detached jobs: one node counts as a majority; the nodes elect another rendezvous before the
  // leases of the lost one are over.
  kMinority,
  kNoElectionFence,
};

}  // namespace dslaunch::sim
