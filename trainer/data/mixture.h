// The order in which samples of several sources follow one another. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch {

// An endless sequence of sources in proportion to their weights. Each sample is from the source
// that is furthest behind its share; of several, from the first. The sequence repeats every kPeriod
// samples, so any position can be computed at once, on any rank and after any resumption.
class Mixture {
 public:
  static constexpr int64_t kPeriod = 10000;

  struct Place {
    int64_t source = 0;
    int64_t number = 0;  // number of earlier samples of this source
  };

  // Weights are rounded to multiples of 1 / kPeriod of their sum, and to at least 1 / kPeriod.
  // Preconditions: from 1 to kPeriod weights, all above 0 and finite.
  explicit Mixture(std::span<const double> weights);

  // Returns the source of sample `index`, which must not be negative, and the number of the sample
  // in it.
  Place At(int64_t index) const;

  // Returns the number of samples of each source in a period.
  const std::vector<int64_t>& shares() const { return shares_; }

 private:
  std::vector<int64_t> shares_;
  std::vector<Place> places_;  // the places of one period
};

}  // namespace dslaunch
