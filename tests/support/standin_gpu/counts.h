// Counts a job's use of the device in each step. If STANDIN_COUNTS is set, each step adds a line of
// JSON to that file: {"step": 3, "launches": 310, "waits": {"aten::item": 1}, "copies": {"to the
// device": [2, 4096]}, "collectives": {"all_reduce": [3, 65536]}}. Each pair is a number of
// operations and their bytes. Step 0 is everything before the first step.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::standin {

// These functions are thread-safe.
void CountLaunch(const char* name);
// Counts a wait of the host. Throws c10::Error if the wait is `hidden` and STANDIN_NO_SYNC forbids
// hidden waits in this step.
void CountWait(const char* why, bool hidden);
void CountCopy(const char* direction, uint64_t bytes);
void CountCollective(const char* name, uint64_t bytes);

}  // namespace dslaunch::standin
