// Describes the use of the ranks' time to users and programs. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/goodput.h"

namespace dslaunch {

// The times of all ranks together add up to wall_us x ranks.
struct Goodput {
  uint64_t wall_us = 0;  // since the command began
  uint32_t ranks = 0;    // most ranks that the job had at once
  GoodputTimes times;

  // Returns the share of new steps, 0 to 1; 0 if there was no time.
  double ProductiveShare() const;
};

// Returns one line: "84.1 % productive of 4 ranks x 1 h 2 min: first step 8.0 %, save 5.2 %, ...".
// Buckets follow by size; those below 0.1 % are left out.
std::string GoodputText(const Goodput& goodput);

}  // namespace dslaunch
