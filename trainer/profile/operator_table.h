// Makes a table of operators from the events that a profiler has recorded. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/profile_names.h"

namespace dslaunch {

// An event of a thread. The events of a thread are nested or disjoint. Only `async` events may end
// outside of the thread while the thread continues.
struct RecordedEvent {
  std::string name;
  uint64_t thread = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool async = false;
  uint64_t correlation = 0;  // id that kernels refer to; 0 if no kernel refers to the event
};

// A kernel of a device. It was started by the event with the same correlation.
struct RecordedKernel {
  std::string name;
  uint64_t correlation = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Memory that a thread allocated (`bytes` > 0) or freed (`bytes` < 0).
struct RecordedAllocation {
  uint64_t thread = 0;
  int64_t at_ns = 0;
  int64_t bytes = 0;
};

// The totals of all calls of one operator.
struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  // Seconds without the operators that this operator called; 0 for asynchronous operators.
  double self_s = 0;
  // Seconds in all calls; a call nested in a call of the same operator is not counted again.
  double total_s = 0;
  // Bytes allocated and not freed, without the operators that this operator called.
  int64_t self_bytes = 0;
  // Seconds of the kernels that the operator started itself, without the kernels of operators that
  // it called. 0 for a kernel, which has its own row.
  double device_s = 0;
  bool kernel = false;
};

// Returns one row for each name, in descending order of `sort`. ProfilerStep#3 and ProfilerStep#4
// count as the same name.
std::vector<OperatorRow> OperatorRows(std::vector<RecordedEvent> events,
                                      const std::vector<RecordedAllocation>& allocations,
                                      ProfileSort sort,
                                      const std::vector<RecordedKernel>& kernels = {});

// Returns a table of the first `most_rows` rows, with the sums of all rows. `wall_s` is the
// duration in seconds of the `steps` recorded steps.
std::string OperatorTable(const std::vector<OperatorRow>& rows, int64_t most_rows, double wall_s,
                          int64_t steps);

}  // namespace dslaunch
