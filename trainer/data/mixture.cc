#include "trainer/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dslaunch {
namespace {

// Returns `weights` in proportion, rounded to whole numbers of at least 1 whose sum is
// Mixture::kPeriod.
std::vector<int64_t> SharesOf(std::span<const double> weights) {
  const double largest = *std::ranges::max_element(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  std::vector<int64_t> shares;
  for (const double weight : weights) {
    const double exact = weight / largest / sum * static_cast<double>(Mixture::kPeriod);
    shares.push_back(std::max<int64_t>(1, std::llround(exact)));
  }
  // The largest share changes least in proportion, so it absorbs the rounding error.
  for (int64_t rest = Mixture::kPeriod - std::reduce(shares.begin(), shares.end()); rest != 0;) {
    int64_t& share = *std::ranges::max_element(shares);
    const int64_t change = std::max(rest, 1 - share);
    share += change;
    rest -= change;
  }
  return shares;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights) : shares_(SharesOf(weights)) {
  std::vector<int64_t> counts(shares_.size());
  for (int64_t i = 0; i < kPeriod; ++i) {
    const auto behind = [&](size_t source) {
      return shares_[source] * (i + 1) - counts[source] * kPeriod;
    };
    size_t best = 0;
    for (size_t source = 1; source < shares_.size(); ++source) {
      if (behind(source) > behind(best)) best = source;
    }
    places_.push_back({static_cast<int64_t>(best), counts[best]++});
  }
}

Mixture::Place Mixture::At(int64_t index) const {
  Place place = places_[static_cast<size_t>(index % kPeriod)];
  place.number += index / kPeriod * shares_[static_cast<size_t>(place.source)];
  return place;
}

}  // namespace dslaunch
