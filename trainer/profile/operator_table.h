// Makes the table of operators from the recorded events of a profiler. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/profile_names.h"

namespace dslaunch {

// An event of a thread. The events of a thread are nested or disjoint, except `async` events, which
// end outside of the thread while it continues.
struct RecordedEvent {
  std::string name;
  uint64_t thread = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool async = false;
  uint64_t correlation = 0;  // id for kernels of a device; 0 if none refers to it
};

// A kernel of a device. The event with the same correlation started it.
struct RecordedKernel {
  std::string name;
  uint64_t correlation = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Memory that a thread allocated (bytes > 0) or freed (bytes < 0).
struct RecordedAllocation {
  uint64_t thread = 0;
  int64_t at_ns = 0;
  int64_t bytes = 0;
};

// The totals of all calls of one operator.
struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  // Time without the operators that it called; 0 for asynchronous operators.
  double self_s = 0;
  double total_s = 0;      // time, not counting calls nested in calls of the same operator twice
  int64_t self_bytes = 0;  // bytes allocated and not freed, without the operators that it called
  // Time of the kernels that the operator started itself, without those of the operators that it
  // called. 0 for a kernel, which has a row of its own.
  double device_s = 0;
  bool kernel = false;
};

// Returns one row for each name, the largest by `sort` first. ProfilerStep#3 and ProfilerStep#4
// count as the same name.
std::vector<OperatorRow> OperatorRows(std::vector<RecordedEvent> events,
                                      const std::vector<RecordedAllocation>& allocations,
                                      ProfileSort sort,
                                      const std::vector<RecordedKernel>& kernels = {});

// Returns a table of the first `most_rows` rows, with the sums of all rows. `wall_s` is the
// duration of the recorded `steps` steps.
std::string OperatorTable(const std::vector<OperatorRow>& rows, int64_t most_rows, double wall_s,
                          int64_t steps);

}  // namespace dslaunch
