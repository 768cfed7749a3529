// The last words of a job: its first cause, the last lines of that rank, how the others ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
    kInternal,
    kHang
  };
  Kind kind = Kind::kNone;
  std::string node;
  int rank = -1;  // -1: no particular rank
  int local_rank = 0;
  int exit_code = 0;  // of the worker, for kWorkerExit
  int signal = 0;     // for kWorkerSignal and kInterrupted
  bool core_dumped = false;
  bool out_of_memory = false;
  bool victim = false;     // its error is about another rank, and no rank left one of its own
  bool timed_out = false;  // of a victim: it timed out waiting for that rank
  std::string evidence;    // of the cause, or the program's own word for its error; empty: none
  std::string message;     // one sentence; the first line for all kinds but the two of workers
  std::string last_lines;  // of that rank's output, as it wrote them
  bool was_shown = false;  // the user has seen them
  std::string log_path;    // of that rank, on its node; empty: unknown
};

struct RankEnd {
  int rank = 0;
  bool reported = true;  // false: its end was not reported
  int exit_code = 0;     // when signal is 0
  int signal = 0;
  bool stopping = false;      // after its node was told to stop
  bool victim = false;        // it failed because of the first cause
  std::string evidence = {};  // the line that says why it failed; empty: none
};

// A process that could not be ended.
struct LeftEnd {
  std::string node;
  int pid = 0;
  std::string command;
  std::string state;     // one letter, as ps shows it; empty: unknown
  std::string waits_in;  // a function of the kernel; empty: unknown
};

struct NodeSummary {
  std::string name;
  std::string state;   // "done", "lost" or "absent"
  bool member = true;  // had ranks in the last attempt
  std::string log_dir;
};

struct JobSummary {
  std::string job_id;
  bool is_local = false;  // all nodes are this machine
  std::vector<NodeSummary> nodes;
  int num_nodes = 1;  // of the last attempt, as world_size and workers
  int world_size = 1;
  double duration_s = 0;  // from the start of the ranks to the end
  EndCause cause;
  std::string hint;  // what to do about the cause; empty: nothing is known
  std::vector<RankEnd> workers;
  std::vector<LeftEnd> left;
  uint64_t attempts = 1;
  uint64_t restarts = 0;
  std::string logs;                  // the first node's log folder, as PathOnNode; empty: unknown
  std::vector<std::string> remarks;  // what else went wrong: other nodes lost
  // Of the last evaluation: "step" and what the program measured. nullopt: none was reported.
  std::optional<std::vector<std::pair<std::string, double>>> result;
  int exit_code = 0;              // of dslaunch
  bool saved_on_request = false;  // every rank, which is no failure
};

// A path on one of the job's nodes, as a user reads it: "node2:/logs"; "/logs" on this machine.
std::string PathOnNode(const JobSummary& summary, const std::string& node, const std::string& path);

// What went wrong first, without its node's last lines: one sentence, or several lines that are
// one message.
std::string FirstCauseText(const JobSummary& summary);

// The closing block, with a newline after each line. Where the job succeeded, ranks that a signal
// ended are those whose loss was tolerated. Rank output in it is made harmless for a
// terminal.
std::string SummaryText(const JobSummary& summary);

// The last of a rank's lines that are worth showing.
inline constexpr size_t kMaxLastLines = 50;
std::vector<std::string_view> LastLines(std::string_view text, size_t most = kMaxLastLines);

}  // namespace dslaunch
