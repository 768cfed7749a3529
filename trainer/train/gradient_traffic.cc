#include "trainer/train/gradient_traffic.h"

#include <algorithm>

#include "trainer/parallel/zero/flat_parameter.h"

namespace dslaunch {

int64_t MostOnTheirWay(const std::vector<GradientUnit>& units, bool overlap) {
  const auto on_their_way = [&](size_t end, size_t count) {
    int64_t bytes = 0;
    for (size_t i = end - std::min(count, end); i < end; ++i) {
      bytes += units[i].message + units[i].others;
    }
    return bytes;
  };
  const size_t at_once = overlap ? kMostUnderWay : 0;
  int64_t most = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const int64_t next = i + 1 < units.size() ? units[i + 1].message : 0;
    most = std::max({most, next + units[i].message + on_their_way(i, at_once),
                     next + on_their_way(i + 1, std::max<size_t>(at_once, 1))});
  }
  return most;
}

int64_t MostWithPasses(const std::vector<GradientUnit>& units, bool overlap,
                       const std::vector<GradientArrival>& arrivals, int64_t at_end) {
  std::vector<size_t> unit_of;
  std::vector<size_t> missing;  // number of gradients of each unit that are not complete yet
  for (size_t i = 0; i < units.size(); ++i) {
    missing.push_back(units[i].parameters.size());
    for (const size_t parameter : units[i].parameters) {
      unit_of.resize(std::max(unit_of.size(), parameter + 1), units.size());
      unit_of[parameter] = i;
    }
  }
  int64_t travels = 0, most = 0;
  size_t sent = 0, awaited = 0;
  const auto await_oldest = [&] {
    travels -= units[awaited].message + units[awaited].others;
    ++awaited;
  };
  for (const GradientArrival& arrival : arrivals) {
    most = std::max(most, travels + arrival.peak);
    const size_t own = unit_of[arrival.parameter];
    if (missing[own] == units[own].parameters.size()) travels += units[own].message;
    most = std::max(most, travels + arrival.live);
    --missing[own];
    for (; sent < units.size() && missing[sent] == 0; ++sent) {
      if (sent - awaited == kMostUnderWay) await_oldest();
      travels += units[sent].others;
      most = std::max(most, travels + arrival.left);
      if (!overlap) await_oldest();
    }
  }
  return std::max(most, travels + at_end);
}

}  // namespace dslaunch
