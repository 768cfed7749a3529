// Predicts the step time of a configuration from those that were measured. Pure; deterministic.
//
//   log(time) = log(RelativeCost) + c + one unknown for each value of each axis + a rest
//
// The unknowns say how far the formulas are wrong about "ZeRO 2" or "micro-batch 8" on these
// nodes. They are independent and normal with the deviations in step_time_model.cc, except that
// micro-batches of similar size have similar ones. Trials estimate them: this is regression by a
// Gaussian process with an additive kernel (Rasmussen and Williams, Gaussian Processes for Machine
// Learning, algorithm 2.1). What no trial has touched keeps its deviation, so a prediction
// also has an uncertainty.
#pragma once

#include <vector>

#include "cli/tune/candidate.h"

namespace dslaunch {

class StepTimeModel {
 public:
  explicit StepTimeModel(TuneProblem problem) : problem_(std::move(problem)) {}

  // Adds a measured step time, above 0. `noise` is the relative deviation of its steps; the model
  // assumes at least 2 %.
  void Add(const Candidate& candidate, double seconds, double noise = 0);
  bool empty() const { return measured_.empty(); }

  struct Prediction {
    double seconds = 0;
    double deviation = 0;  // standard deviation of log(seconds)
  };
  // Precondition: !empty(). Takes time in proportion to the number of trials.
  Prediction Predict(const Candidate& candidate) const;

 private:
  struct Measured {
    Candidate candidate;
    double log_excess;  // log(seconds / RelativeCost)
    double noise;       // standard deviation of log_excess
  };

  void Fit();

  TuneProblem problem_;
  std::vector<Measured> measured_;
  double mean_ = 0;
  std::vector<double> factor_;   // lower Cholesky factor, row by row
  std::vector<double> weights_;  // inverse of the covariance times the excesses over the mean
};

}  // namespace dslaunch
