// Decides when a stage sends the rest of a message of activations (stage_link.h). Pure.
#pragma once

#include <vector>

#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Whether the action sends to or receives from another stage.
bool IsExchange(ActionKind kind);

// A chunk of the model, by its stage and its number in that stage.
struct ChunkPlace {
  int stage = 0;
  int chunk = 0;
  bool operator==(const ChunkPlace&) const = default;
};
// Return the chunks to which `place` sends its activations and from which it receives them.
ChunkPlace After(const PipelineSchedule& schedule, const ChunkPlace& place);
ChunkPlace Before(const PipelineSchedule& schedule, const ChunkPlace& place);
bool IsFirst(const ChunkPlace& place);
bool IsLast(const PipelineSchedule& schedule, const ChunkPlace& place);

// Returns for each action of `stage` the chunks to which it sends, right after that action, the
// rest of the oldest message that has one.
//
// A receiver asks for the rest in its forward pass. In the order of all messages between the two
// stages the rest therefore follows the last one that the receiver's list has before this pass, and
// the sender reaches that point without waiting for the receiver. If both stages have a rest for
// each other at the same point, the lower stage sends first.
std::vector<std::vector<ChunkPlace>> DeferredSendsAfter(const PipelineSchedule& schedule,
                                                        int stage);

}  // namespace dslaunch
