// Decides when a stage sends the second part (the rest) of a message of activations (stage_link.h).
// Pure functions.
#pragma once

#include <vector>

#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Returns whether an action of this kind sends to or receives from another stage.
bool IsExchange(ActionKind kind);

// Position of a chunk of the model: its stage and its number in that stage.
struct ChunkPlace {
  int stage = 0;
  int chunk = 0;
  bool operator==(const ChunkPlace&) const = default;
};
// Returns the chunk to which the chunk at `place` sends its activations. Precondition: the chunk is
// not the last.
ChunkPlace After(const PipelineSchedule& schedule, const ChunkPlace& place);
// Returns the chunk from which the chunk at `place` receives activations. Precondition: the chunk
// is not the first.
ChunkPlace Before(const PipelineSchedule& schedule, const ChunkPlace& place);
bool IsFirst(const ChunkPlace& place);
bool IsLast(const PipelineSchedule& schedule, const ChunkPlace& place);

// Returns, for each action of `stage`, the chunks to which the stage sends the rest of the oldest
// unsettled message directly after that action.
//
// A receiver reads the rest in its forward pass. In the order of all messages between the two
// stages, the rest therefore follows the last message before this pass in the receiver's list. The
// sender reaches that point without waiting for the receiver. If both stages send a rest to each
// other at the same point, the lower stage sends first.
std::vector<std::vector<ChunkPlace>> DeferredSendsAfter(const PipelineSchedule& schedule,
                                                        int stage);

}  // namespace dslaunch
