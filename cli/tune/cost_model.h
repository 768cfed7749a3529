// The cost of a configuration's step relative to others, from formulas alone. Pure.
//
// All configurations share the work of a global batch equally among the ranks, so computing it
// costs 1. With A micro-batches of m samples on each replica, P stages and R replicas:
//
//   compute   (1 + o / m) x (4/3 if activations are recomputed) x (A + P - 1) / A
//   exchange  x (Psi) / P           if R > 1
//
// o are the samples that cost as much as starting the operations of a micro-batch. A third more is
// the second forward pass (Chen et al. 2016, https://arxiv.org/abs/1604.06174), and
// (A + P - 1) / A is the pipeline's bubble (GPipe, https://arxiv.org/abs/1811.06965). x(Psi) is the
// volume of the exchanges in units of the parameters (ZeRO paper, section 7,
// https://arxiv.org/abs/1910.02054) times what one unit costs: 2 at stages 0 and 1; at stage 2 a
// reduce-scatter for each micro-batch and one all-gather, A + 1; at stage 3 two all-gathers and a
// reduce-scatter for each micro-batch, 3 A. Each level of offload moves states to main memory.
//
// The constants are guesses: StepTimeModel corrects them by what trials measure.
#pragma once

#include "cli/tune/candidate.h"

namespace dslaunch {

double RelativeCost(const TuneProblem& problem, const Candidate& candidate);

}  // namespace dslaunch
