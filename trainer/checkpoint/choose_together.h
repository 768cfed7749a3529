// Chooses the same checkpoint on all ranks. The ranks check that they all read the same checkpoint,
// and each rank verifies a part of its files.
#pragma once

#include <functional>
#include <string>

#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// Calls CheckpointFolder::Choose or ChooseTag with a request that is equal on all ranks.
using ChooseFrom = std::function<ResumeDecision(const CheckpointFolder::Listing& listing,
                                                const CheckpointFolder::Judge& judge)>;

// Returns the decision of `choose`, which is the same on all ranks. Collective. `folder` is the
// folder on this rank. Throws on every rank if the ranks find different checkpoints, if a rank
// cannot read the folder, or if the decision is kRefused.
ResumeDecision ChooseTogether(const CheckpointFolder& folder, const ChooseFrom& choose,
                              const ProcessGroup& group);

}  // namespace dslaunch
