// Where the rendezvous goes when the node that hosts it is lost. Pure: what the front end sees of
// the nodes goes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/agent.pb.h"
#include "proto/contract/deadline.h"

namespace dslaunch {

// What the front end sees of one node.
struct MoveView {
  bool connected = false;    // what it says comes through to us, or may again
  bool awaits_move = false;  // it has lost its rendezvous
  bool spare = false;
  bool is_part = false;  // has ranks, or may get some
  bool silent = false;   // for so long that it counts as lost
};

// A node that has been silent for so long has surely ended its ranks: its lease is over, and so is
// all that follows from its end.
milliseconds GoneAfter(const pb::Timeouts& timeouts);

// Who hosts the next rendezvous, once `lost_host` is surely gone: a node that waits for it, rather
// no spare. nullopt: nobody does, or not all that can still be heard have noticed the loss; one of
// them would go on in the old epoch.
std::optional<size_t> DecideMove(const std::vector<MoveView>& nodes, size_t lost_host);

// `lost` is the word of the newest epoch; `epoch` and `restarts` are what the front end has seen.
pb::MoveRequest MakeMoveRequest(size_t host, const pb::RendezvousLost& lost, uint64_t epoch,
                                uint32_t restarts, const std::vector<MoveView>& nodes);

}  // namespace dslaunch
