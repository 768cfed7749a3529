// Recorded events of a profiler, and the table of operators for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/profile_names.h"

namespace dslaunch {

// One event of one thread. The events of a thread are nested or disjoint, except `async` ones:
// these began in a thread and ended elsewhere, while the thread continued.
struct RecordedEvent {
  std::string name;
  uint64_t thread = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool async = false;
  uint64_t correlation = 0;  // id by which the kernels of a device refer to the event; 0 if none do
};

// A kernel of a device, started by the event with this correlation.
struct RecordedKernel {
  std::string name;
  uint64_t correlation = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Memory that a thread allocated (bytes > 0) or freed.
struct RecordedAllocation {
  uint64_t thread = 0;
  int64_t at_ns = 0;
  int64_t bytes = 0;
};

// All calls of one operator.
struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  double self_s = 0;       // without the operators it called; 0 for asynchronous ones
  double total_s = 0;      // total time, without calls nested in calls of the same operator
  int64_t self_bytes = 0;  // allocated and not freed, without the operators it called
  // Time of the kernels that it started itself, without those of the operators it called. 0 for a
  // kernel, which has a row of its own.
  double device_s = 0;
  bool kernel = false;
};

// Returns one row for each name, the largest first. ProfilerStep#3 and ProfilerStep#4 count as the
// same name.
std::vector<OperatorRow> OperatorRows(std::vector<RecordedEvent> events,
                                      const std::vector<RecordedAllocation>& allocations,
                                      ProfileSort sort,
                                      const std::vector<RecordedKernel>& kernels = {});

// Returns the first `most_rows` rows for people, with the sums of all rows. `wall_s` is the time of
// the recorded `steps`.
std::string OperatorTable(const std::vector<OperatorRow>& rows, int64_t most_rows, double wall_s,
                          int64_t steps);

}  // namespace dslaunch
