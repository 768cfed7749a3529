#pragma once

#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/program/evaluation_texts.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns, for each sequence, the natural logarithm of the probability that the model assigns to
// the scored tokens. Collective: each replica computes its share, one micro-batch at a time. The
// result is the same on all ranks and for any number of ranks. Throws kBadInput if a result is NaN
// or infinite. Preconditions: there is a sequence, and each sequence has at most one token more
// than the model accepts.
std::vector<double> LogLikelihoods(TrainingModel& training_model,
                                   const std::vector<ScoredTokens>& sequences,
                                   const ProcessGroup& group);

}  // namespace dslaunch
