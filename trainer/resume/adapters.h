// Describes adapters in the checkpoints of runs with `lora`. Such checkpoints contain the adapters,
// and only checksums of the frozen weights.
#pragma once

#include <string>

#include "dslaunch/process_group.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Returns the value of Manifest::adapters for the run's checkpoints; empty without `lora`. The
// ranks divide the reading of run.init_weights among themselves. Throws TrainError on every rank if
// a rank cannot read these weights. Collective.
std::string DescribeAdapters(const Recipe& recipe, const ProcessGroup& group);

// Throws kBadInput, naming `place`, if the checkpoint `saved` has adapters and the run has not, or
// the reverse, or if their settings or base weights differ. `own` is the run's DescribeAdapters().
void CheckAdapters(const Manifest& saved, const std::string& own, const std::string& place);

}  // namespace dslaunch
