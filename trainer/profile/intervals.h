// Implements operations on sets of time intervals. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

struct Interval {
  int64_t begin = 0;  // nanoseconds
  int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Returns sorted and disjoint intervals that cover the same times as `intervals`. Empty intervals
// are dropped.
std::vector<Interval> Union(std::vector<Interval> intervals);

// Returns the intersection of two sets. The intervals of both arguments and of the result are
// sorted and disjoint.
std::vector<Interval> Intersection(const std::vector<Interval>& a, const std::vector<Interval>& b);

// Returns the total length of disjoint intervals in nanoseconds.
int64_t Length(const std::vector<Interval>& intervals);

}  // namespace dslaunch
