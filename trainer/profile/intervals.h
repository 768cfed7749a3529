// Operations on sets of time intervals. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

struct Interval {
  int64_t begin = 0;  // ns
  int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Returns sorted and disjoint intervals; empty ones are dropped.
std::vector<Interval> Union(std::vector<Interval> intervals);

// Returns the intersection of two sets. Arguments and result are sorted and disjoint.
std::vector<Interval> Intersection(const std::vector<Interval>& a, const std::vector<Interval>& b);

// Returns the total length, in ns, of disjoint intervals.
int64_t Length(const std::vector<Interval>& intervals);

}  // namespace dslaunch
