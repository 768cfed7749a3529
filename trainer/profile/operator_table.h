// What a profiler recorded, and the table that people read. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/profile_sort.h"

namespace dslaunch {

// One event of one thread. Those of a thread lie inside of each other or apart, but for what is
// `async`: it began in a thread and ended somewhere else, while that thread did other things.
struct RecordedEvent {
  std::string name;
  uint64_t thread = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool async = false;
  uint64_t correlation = 0;  // by which what a device did for it names it; 0: nothing does
};

// What a device did, for the event of this correlation.
struct RecordedKernel {
  std::string name;
  uint64_t correlation = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Memory that a thread took (bytes > 0) or gave back.
struct RecordedAllocation {
  uint64_t thread = 0;
  int64_t at_ns = 0;
  int64_t bytes = 0;
};

// All calls of one operator.
struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  double self_s = 0;       // less what it called; 0 of what is asynchronous
  double total_s = 0;      // of an operator inside of itself only the outer one's
  int64_t self_bytes = 0;  // taken and not given back, less what it called did
  // Of what a device did for it, less what that did for what it called. A kernel, which has a row
  // of its own, is not for itself.
  double device_s = 0;
  bool kernel = false;
};

// One row for each name, ProfilerStep#3 and ProfilerStep#4 being the same, the greatest first.
std::vector<OperatorRow> OperatorRows(std::vector<RecordedEvent> events,
                                      const std::vector<RecordedAllocation>& allocations,
                                      ProfileSort sort,
                                      const std::vector<RecordedKernel>& kernels = {});

// The first `most_rows` of them for people, with the sums of all. `wall_s` is the time of the
// `steps` that were recorded.
std::string OperatorTable(const std::vector<OperatorRow>& rows, int64_t most_rows, double wall_s,
                          int64_t steps);

}  // namespace dslaunch
