// Runs with `lora`: their checkpoints hold adapters, and the frozen weights' checksums only.
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
// the reverse, or they differ in settings or in the weights that they belong to. `own` is
// DescribeAdapters() of the run.
void CheckAdapters(const Manifest& saved, const std::string& own, const std::string& place);

}  // namespace dslaunch
