// Predicts the step time of a configuration from the configurations that were measured.
// Deterministic, without side effects.
//
//   log(time) = log(RelativeCost) + c + one unknown for each value of each axis + a rest
//
// The unknowns are the errors of the formulas about, for example, "ZeRO 2" or "micro-batch 8" on
// these nodes. They are independent and normal with the deviations in step_time_model.cc, except
// that micro-batches of similar size have similar unknowns. Trials estimate them: this is
// regression by a Gaussian process with an additive kernel (Rasmussen and Williams, Gaussian
// Processes for Machine Learning, algorithm 2.1). An unknown that no trial concerns keeps its
// deviation, so a prediction also has an uncertainty.
#pragma once

#include <vector>

#include "cli/tune/candidate.h"

namespace dslaunch {

class StepTimeModel {
 public:
  explicit StepTimeModel(TuneProblem problem) : problem_(std::move(problem)) {}

  // Adds a measured step time, which must be above 0. `noise` is the relative deviation of the
  // measured steps; the model assumes at least 2 %.
  void Add(const Candidate& candidate, double seconds, double noise = 0);
  bool empty() const { return measured_.empty(); }

  struct Prediction {
    double seconds = 0;
    double deviation = 0;  // standard deviation of log(seconds)
  };
  // Predicts the step time of a candidate. Takes time proportional to the number of trials.
  // Precondition: !empty().
  Prediction Predict(const Candidate& candidate) const;

 private:
  struct Measured {
    Candidate candidate;
    double log_excess;  // logarithm of seconds / RelativeCost
    double noise;       // standard deviation of log_excess
  };

  void Fit();

  TuneProblem problem_;
  std::vector<Measured> measured_;
  double mean_ = 0;
  std::vector<double> factor_;  // lower Cholesky factor, row by row
  // Inverse of the covariance, multiplied by the excesses over the mean.
  std::vector<double> weights_;
};

}  // namespace dslaunch
