// Formats the use of the ranks' time for users and programs. All functions are pure.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/goodput.h"

namespace dslaunch {

// The time of a job's ranks by use. The times of all ranks together add up to wall_us x ranks.
struct Goodput {
  uint64_t wall_us = 0;  // time since the command began, in microseconds
  uint32_t ranks = 0;    // largest number of concurrent ranks
  GoodputTimes times;

  // Returns the share of the time spent on new steps, from 0 to 1; 0 if there was no time.
  double ProductiveShare() const;
};

// Returns one line such as "84.1 % productive of 4 ranks x 1 h 2 min: first step 8.0 %, save 5.2 %,
// ...". The other buckets are sorted by size; buckets below 0.1 % are left out.
std::string GoodputText(const Goodput& goodput);

}  // namespace dslaunch
