#include "cli/tune/step_time_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/tune/cost_model.h"

namespace dslaunch {
namespace {

// Standard deviations of the unknowns in log(time), by axis.
constexpr double kDeviation[kAxisCount] = {/*micro-batch*/ 0.25, /*ZeRO*/ 0.12,
                                           /*recompute*/ 0.12,   /*offload*/ 0.25,
                                           /*pipeline*/ 0.25,    /*tensor*/ 0.25};
constexpr double kCommon = 0.3;  // deviation of the constant c around the mean of the trials
constexpr double kRest = 0.03;   // deviation of joint effects of several axes
constexpr double kNoise = 0.02;  // least relative deviation of a measured step time
// Doublings between micro-batches whose unknowns are still similar.
constexpr double kAlikeWithin = 2;

double Covariance(const Candidate& one, const Candidate& other) {
  double sum = kCommon * kCommon;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    const double variance = kDeviation[axis] * kDeviation[axis];
    const auto a = static_cast<double>(one.values[axis]);
    const auto b = static_cast<double>(other.values[axis]);
    if (axis == static_cast<size_t>(Axis::kMicroBatch)) {
      sum += variance * std::exp(-std::abs(std::log2(a / b)) / kAlikeWithin);
    } else if (a == b) {
      sum += variance;
    }
  }
  return one == other ? sum + kRest * kRest : sum;
}

// Solves L x = b, where L is the lower triangle `factor` of n rows.
std::vector<double> SolveLower(const std::vector<double>& factor, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= factor[i * n + k] * b[k];
    b[i] /= factor[i * n + i];
  }
  return b;
}

// Solves L^T x = b, the transposed system of SolveLower.
std::vector<double> SolveUpper(const std::vector<double>& factor, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= factor[k * n + i] * b[k];
    b[i] /= factor[i * n + i];
  }
  return b;
}

}  // namespace

void StepTimeModel::Add(const Candidate& candidate, double seconds, double noise) {
  measured_.push_back(
      {candidate, std::log(seconds / RelativeCost(problem_, candidate)), std::max(noise, kNoise)});
  Fit();
}

void StepTimeModel::Fit() {
  const size_t n = measured_.size();
  mean_ = std::accumulate(measured_.begin(), measured_.end(), 0.0,
                          [](double sum, const Measured& one) { return sum + one.log_excess; }) /
          static_cast<double>(n);
  factor_.assign(n * n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double value = Covariance(measured_[i].candidate, measured_[j].candidate);
      if (i == j) value += measured_[i].noise * measured_[i].noise;
      for (size_t k = 0; k < j; ++k) value -= factor_[i * n + k] * factor_[j * n + k];
      factor_[i * n + j] = i == j ? std::sqrt(value) : value / factor_[j * n + j];
    }
  }
  std::vector<double> excess;
  for (const Measured& one : measured_) excess.push_back(one.log_excess - mean_);
  weights_ = SolveUpper(factor_, SolveLower(factor_, std::move(excess)));
}

StepTimeModel::Prediction StepTimeModel::Predict(const Candidate& candidate) const {
  std::vector<double> covariance;
  for (const Measured& one : measured_) {
    covariance.push_back(Covariance(one.candidate, candidate));
  }
  double log_excess = mean_;
  for (size_t i = 0; i < measured_.size(); ++i) log_excess += covariance[i] * weights_[i];
  double variance = Covariance(candidate, candidate);
  for (const double part : SolveLower(factor_, std::move(covariance))) variance -= part * part;
  return {.seconds = std::exp(log_excess) * RelativeCost(problem_, candidate),
          .deviation = std::sqrt(std::max(variance, 0.0))};
}

}  // namespace dslaunch
