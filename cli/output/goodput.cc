#include "cli/output/goodput.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/count.h"
#include "base/text/size_text.h"

namespace dslaunch {

double Goodput::ProductiveShare() const {
  const uint64_t all = times.Sum();
  return all == 0
             ? 0
             : static_cast<double>(times[GoodputBucket::kProductive]) / static_cast<double>(all);
}

std::string GoodputText(const Goodput& goodput) {
  constexpr double kLeastShare = 0.001;
  char text[64];
  std::snprintf(text, sizeof text, "%.1f %% productive", 100 * goodput.ProductiveShare());
  std::string line = std::string(text) + " of " + Count(goodput.ranks, "rank") + " x " +
                     DurationText(static_cast<int64_t>(goodput.wall_us / 1000));
  std::array<size_t, kGoodputBuckets> order = {};
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return goodput.times.us[i]; });
  const auto all = static_cast<double>(goodput.times.Sum());
  const char* separator = ": ";
  for (const size_t i : order) {
    const double share = static_cast<double>(goodput.times.us[i]) / all;
    if (i == static_cast<size_t>(GoodputBucket::kProductive) || !(share >= kLeastShare)) continue;
    std::string name = kGoodputNames[i];
    std::ranges::replace(name, '_', ' ');
    std::snprintf(text, sizeof text, " %.1f %%", 100 * share);
    line += separator + name + text;
    separator = ", ";
  }
  return line;
}

}  // namespace dslaunch
