#include "trainer/profile/intervals.h"

#include <algorithm>

namespace dslaunch {

std::vector<Interval> Union(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& one) { return one.end <= one.begin; });
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> set;
  for (const Interval& next : intervals) {
    if (set.empty() || next.begin > set.back().end) {
      set.push_back(next);
    } else {
      set.back().end = std::max(set.back().end, next.end);
    }
  }
  return set;
}

std::vector<Interval> Intersection(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> both;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const Interval common = {std::max(a[i].begin, b[k].begin), std::min(a[i].end, b[k].end)};
    if (common.begin < common.end) both.push_back(common);
    ++(a[i].end < b[k].end ? i : k);
  }
  return both;
}

int64_t Length(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const Interval& one : intervals) length += one.end - one.begin;
  return length;
}

}  // namespace dslaunch
