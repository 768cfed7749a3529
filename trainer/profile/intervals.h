// Sets of times. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

struct Interval {
  int64_t begin = 0;  // ns
  int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Sorted and disjoint; empty intervals are left out.
std::vector<Interval> Union(std::vector<Interval> intervals);

// Of two sets that are sorted and disjoint, and so is the result.
std::vector<Interval> Intersection(const std::vector<Interval>& a, const std::vector<Interval>& b);

// Of a set that is disjoint, in ns.
int64_t Length(const std::vector<Interval>& intervals);

}  // namespace dslaunch
