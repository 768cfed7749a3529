// The order in which samples of several sources follow each other. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch {

// An endless sequence of sources in proportion to their weights: each sample is of the source that
// is furthest behind its share, the first of equal ones. It repeats every kPeriod samples, so any
// sample is found at once, on any rank and after any resumption.
class Mixture {
 public:
  static constexpr int64_t kPeriod = 10000;

  struct Place {
    int64_t source = 0;
    int64_t number = 0;  // samples of this source before it
  };

  // Weights are rounded to multiples of 1 / kPeriod of their sum, and a source gets at least that.
  // Preconditions: from 1 to kPeriod weights, all above 0 and finite.
  explicit Mixture(std::span<const double> weights);

  // Returns the place of sample `index`, which is not negative.
  Place At(int64_t index) const;

  // Returns the number of samples of each source in a period.
  const std::vector<int64_t>& shares() const { return shares_; }

 private:
  std::vector<int64_t> shares_;
  std::vector<Place> places_;  // one period
};

}  // namespace dslaunch
