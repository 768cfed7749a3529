// The summary at the end of a job: its first cause, the last lines of that rank, and how the other
// ranks ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output/goodput.h"

namespace dslaunch {

// Why the job failed. The kinds equal the kinds of proto's Cause.
struct EndCause {
  enum class Kind {
    kNone,  // the job succeeded
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
  int rank = -1;  // -1 if no particular rank caused it
  int local_rank = 0;
  int exit_code = 0;  // exit code of kWorkerExit
  int signal = 0;     // signal of kWorkerSignal and kInterrupted
  bool core_dumped = false;
  bool out_of_memory = false;
  bool victim = false;     // its error is about another rank, and no rank left an error of its own
  bool timed_out = false;  // the victim timed out waiting for another rank
  // Whether another start of the program can help, by the text of the failure.
  enum class Restart { kUnknown, kCanHelp, kCannotHelp };
  Restart restart = Restart::kUnknown;
  std::string restart_reason;  // a clause; empty if unknown
  std::string restart_line;    // the line that shows it; empty if unknown
  // Text that shows the cause, or the program's own error; empty if there is none.
  std::string evidence;
  // One sentence; the first line of the summary for all kinds except the worker ones.
  std::string message;
  std::string last_lines;  // the last output of the rank, unmodified
  bool was_shown = false;  // the last lines are already on the terminal
  std::string log_path;    // log file of the rank, on its node; empty if unknown
};

struct RankSummary {
  int rank = 0;
  bool reported = true;  // false if the end of the rank was not reported
  int exit_code = 0;     // valid if signal is 0
  int signal = 0;
  bool stopping = false;      // ended after its node was asked to stop
  bool victim = false;        // failed because of the first cause
  std::string evidence = {};  // the line of output that shows why it failed; empty if there is none
};

// A process that could not be killed.
struct LeftEnd {
  std::string node;
  int pid = 0;
  std::string command;
  std::string state;     // state letter, as in ps; empty if unknown
  std::string waits_in;  // kernel function in which it waits; empty if unknown
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
  int num_nodes = 1;  // this, world_size and workers describe the last attempt
  int world_size = 1;
  double duration_s = 0;  // from the start of the ranks to the end
  EndCause cause;
  std::string hint;  // hint about the cause; empty if unknown
  std::vector<RankSummary> workers;
  std::vector<LeftEnd> left;
  uint64_t attempts = 1;
  uint64_t restarts = 0;
  std::string logs;  // log folder of the first node, as PathOnNode; empty if unknown
  std::vector<std::string> remarks;  // further failures, such as other lost nodes
  // Use of the ranks' time; nullopt if no rank was started.
  std::optional<Goodput> goodput;
  // The last evaluation: "step" and the values that the program measured. nullopt if none was
  // reported.
  std::optional<std::vector<std::pair<std::string, double>>> result;
  int exit_code = 0;              // exit code of dslaunch
  bool saved_on_request = false;  // every rank saved and stopped on request, which is not a failure
};

// Returns a path on one of the job's nodes for the user: "node2:/logs", or "/logs" on this machine.
std::string PathOnNode(const JobSummary& summary, const std::string& node, const std::string& path);

// Returns the first failure without the last lines of output: one sentence, or one message of
// several lines.
std::string FirstCauseText(const JobSummary& summary);

// Returns the summary, with a newline after each line. If the job succeeded, ranks ended by a
// signal are listed as tolerated losses. Rank output is sanitized for a terminal.
std::string SummaryText(const JobSummary& summary);

// Returns the last lines of a rank that are worth showing.
inline constexpr size_t kMaxLastLines = 50;
std::vector<std::string_view> LastLines(std::string_view text, size_t most = kMaxLastLines);

}  // namespace dslaunch
