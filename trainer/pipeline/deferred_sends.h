// When a stage sends the rest of a message of activations (stage_link.h). Pure.
#pragma once

#include <vector>

#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Whether an action is part of what two stages exchange.
bool IsExchange(ActionKind kind);

// Where activations of a chunk go to, or come from.
struct ChunkPlace {
  int stage = 0;
  int chunk = 0;
  bool operator==(const ChunkPlace&) const = default;
};
ChunkPlace After(const PipelineSchedule& schedule, const ChunkPlace& place);
ChunkPlace Before(const PipelineSchedule& schedule, const ChunkPlace& place);
bool IsFirst(const ChunkPlace& place);
bool IsLast(const PipelineSchedule& schedule, const ChunkPlace& place);

// For each action of `stage`: to whom it sends, right after it, the rest of the oldest message that
// has one. A receiver asks for the rest in the forward pass, so in the row of all that the two
// exchange the rest follows what the receiver has exchanged by then, as its list says; the sender
// comes to this place without waiting for the receiver to go on. Where both have something for each
// other at one place, that of the lower stage goes first.
std::vector<std::vector<ChunkPlace>> DeferredSendsAfter(const PipelineSchedule& schedule,
                                                        int stage);

}  // namespace dslaunch
