// Reads how much of the whole machine's resources is used.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/sample.pb.h"

namespace dslaunch {

// The contents of files in /proc that a sample is made from.
struct MachineTexts {
  std::string_view stat;
  std::string_view network;  // content of /proc/net/dev
  std::string_view disks;    // content of /proc/diskstats
};

// Returns the counters in the texts; a counter is 0 if its text is missing or malformed.
// `ticks_per_s` is the number of ticks per second in `stat`. Pure.
pb::MachineSample ParseMachineTexts(const MachineTexts& texts, int64_t ticks_per_s);

pb::MachineSample ReadMachineSample();

}  // namespace dslaunch
