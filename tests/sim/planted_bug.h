// Lists bugs that the simulator must find. A simulator that does not find them would not find real
// bugs either.
#pragma once

namespace dslaunch::sim {

enum class PlantedBug {
  kNone,
  kNoFence,       // accepts messages of an older attempt, or of an agent that counts as lost
  kEarlyReaped,   // a supervisor reports its processes as ended once it has sent SIGTERM
  kEarlyDrained,  // an agent reports that its ranks have ended before the supervisor does
  // The front end names another rendezvous before the lease of the lost one has run out.
  kFailsOverTooEarly,
  kEarlyCommandEnd,  // a node's command does not wait for the end of its agent
  // A bug of detached jobs: one node counts as a majority.
  kMinority,
  // A bug of detached jobs: the nodes elect another rendezvous before the leases of the lost one
  // have run out.
  kNoElectionFence,
};

}  // namespace dslaunch::sim
