// Defines the order in which samples of several sources follow one another. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch {

// An endless sequence of sources in proportion to their weights. Each sample is taken from the
// source that is furthest behind its share; of several such sources, from the first. The sequence
// repeats every kPeriod samples, so any position can be computed directly, on any rank and after
// any resumption.
class Mixture {
 public:
  static constexpr int64_t kPeriod = 10000;

  struct Place {
    int64_t source = 0;
    int64_t number = 0;  // number of earlier samples of the same source in the sequence
  };

  // Rounds the weights to multiples of 1 / kPeriod of their sum, and to at least 1 / kPeriod.
  // Preconditions: there are from 1 to kPeriod weights, which are finite and above 0.
  explicit Mixture(std::span<const double> weights);

  // Returns the source of sample `index` of the sequence, and the sample's number in that source.
  // Precondition: `index` is not negative.
  Place At(int64_t index) const;

  // Returns the number of samples of each source in a period.
  const std::vector<int64_t>& shares() const { return shares_; }

 private:
  std::vector<int64_t> shares_;
  std::vector<Place> places_;  // place of each sample of one period
};

}  // namespace dslaunch
