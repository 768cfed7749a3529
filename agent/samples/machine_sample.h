// Reads how much of its resources the whole machine uses.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/sample.pb.h"

namespace dslaunch {

// Contents of files in /proc.
struct MachineTexts {
  std::string_view stat;
  std::string_view network;  // content of /proc/net/dev
  std::string_view disks;    // content of /proc/diskstats
};

// Parses counters, which are 0 if their text is missing or malformed. `ticks_per_s`: the unit of
// the times in `stat`. Pure.
pb::MachineSample ParseMachineTexts(const MachineTexts& texts, int64_t ticks_per_s);

pb::MachineSample ReadMachineSample();

}  // namespace dslaunch
