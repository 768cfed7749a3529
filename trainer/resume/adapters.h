// Describes adapters in checkpoints of runs with `lora`, which hold the adapters, and only
// checksums of the frozen weights.
#pragma once

#include <string>

#include "dslaunch/process_group.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Collective. Returns Manifest::adapters of the run's checkpoints; empty without `lora`. The ranks
// divide the reading of run.init_weights among themselves. Throws on every rank the errors of
// SumWeights.
std::string DescribeAdapters(const Recipe& recipe, const ProcessGroup& group);

// Throws kBadInput, naming `place`, if the checkpoint `saved` has adapters and the run has none, or
// the reverse, or if their settings or the weights to which they belong differ. `own` is the run's
// DescribeAdapters().
void CheckAdapters(const Manifest& saved, const std::string& own, const std::string& place);

}  // namespace dslaunch
