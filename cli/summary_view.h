// The last words of a job: its first cause, the last lines of that rank, how the others ended.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Why the job ended badly; the kinds of proto's Cause.
struct EndCause {
  enum class Kind {
    kNone,  // success
    kWorkerExit,
    kWorkerSignal,
    kStartFailed,
    kNodeLost,
    kTimedOut,
    kInterrupted,
    kFrontEndLost,
    kInternal
  };
  Kind kind = Kind::kNone;
  std::string node;
  int rank = -1;  // -1: no particular rank
  int local_rank = 0;
  int exit_code = 0;  // of the worker, for kWorkerExit
  int signal = 0;     // for kWorkerSignal and kInterrupted
  bool core_dumped = false;
  std::string message;     // one sentence; the first line for all kinds but the two of workers
  std::string last_lines;  // of that rank's output, as it wrote them
  std::string log_path;    // of that rank, on its node; empty: unknown
};

struct WorkerEnd {
  int rank = 0;
  bool reported = true;  // false: nobody said how it ended
  int exit_code = 0;     // when signal is 0
  int signal = 0;
  bool stopping = false;  // after its node was told to stop
};

struct JobSummary {
  int num_nodes = 1;
  int world_size = 1;
  double duration_s = 0;  // from the start of the ranks to the end
  EndCause cause;
  std::vector<WorkerEnd> workers;
  std::string logs;                  // "node:/path" of the first node's log folder; empty: unknown
  std::vector<std::string> remarks;  // what else went wrong: processes left, other nodes lost
  int exit_code = 0;                 // of dslaunch
};

// The closing block, with a newline after each line. Rank output in it is made harmless for a
// terminal.
std::string SummaryText(const JobSummary& summary);

}  // namespace dslaunch
