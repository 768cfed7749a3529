#pragma once

#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/program/evaluation_texts.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns for each sequence the natural logarithm of the probability that the model gives to its
// scored tokens. Collective: each replica computes its share, a micro-batch at a time. The result
// is the same on all ranks, and does not depend on their number. Throws kBadInput if it is not
// finite. Precondition: at least one sequence; none has more tokens than the model takes plus one.
std::vector<double> LogLikelihoods(TrainingModel& training_model,
                                   const std::vector<ScoredTokens>& sequences,
                                   const ProcessGroup& group);

}  // namespace dslaunch
