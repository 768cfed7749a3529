// All ranks choose one checkpoint: they check that they all see it, and each reads a part of its
// files.
#pragma once

#include <functional>
#include <string>

#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

// Calls CheckpointFolder::Choose or ChooseTag with a request that is the same on all ranks.
using ChooseFrom = std::function<ResumeDecision(const CheckpointFolder::Listing& listing,
                                                const CheckpointFolder::Judge& judge)>;

// Collective. `folder` is this rank's view of it. Throws on every rank if the ranks see different
// checkpoints, if one cannot read the folder, or if the decision is kRefused.
ResumeDecision ChooseTogether(const CheckpointFolder& folder, const ChooseFrom& choose,
                              const ProcessGroup& group);

}  // namespace dslaunch
