// Estimates the cost of a configuration's step relative to other configurations, from formulas
// alone. All functions are pure.
//
// All configurations share the work of a global batch equally among the ranks, so computing it
// costs 1. With A micro-batches of m samples on each replica, P stages, R replicas and T ranks that
// divide each layer:
//
//   compute     (1 + T o / m) x (4/3 if activations are recomputed) x (A + P - 1) / A
//   exchange    x (Psi) / (P T)     if R > 1
//   activations t (T - 1) x (3/2 if activations are recomputed)
//
// o is the number of samples that cost as much as starting the operations of a micro-batch; the
// number of operations does not fall with T. The second forward pass costs a third more (Chen et
// al. 2016, https://arxiv.org/abs/1604.06174), and (A + P - 1) / A is the pipeline's bubble (GPipe,
// https://arxiv.org/abs/1811.06965).
//
// x(Psi) is the volume of the exchanges in units of the parameters (ZeRO paper, section 7,
// https://arxiv.org/abs/1910.02054), multiplied by the cost of a unit: 2 at stages 0 and 1; at
// stage 2 a reduce-scatter for each micro-batch and one all-gather, A + 1; at stage 3 two
// all-gathers and a reduce-scatter for each micro-batch, 3 A.
//
// The ranks that divide layers sum 4 L + 2 activations of each sample (L layers), or 6 L + 2 with
// recomputation (Megatron-LM, https://arxiv.org/abs/1909.08053). Each sum sends 2 (T - 1) / T of
// this volume, and a rank computes T samples for each sample of its own, hence T - 1. t is the cost
// for T = 2, including the part that every rank of the group computes whole. Each level of offload
// moves states to main memory.
//
// The constants are estimates, which StepTimeModel corrects by the measurements of trials.
#pragma once

#include "cli/tune/candidate.h"

namespace dslaunch {

// Returns the cost of a step with `candidate`, in units of the cost of computing the global batch.
double RelativeCost(const TuneProblem& problem, const Candidate& candidate);

}  // namespace dslaunch
