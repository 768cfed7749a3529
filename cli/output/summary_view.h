// Formats the summary at the end of a job: its first cause, the last lines of the rank that failed
// first, and how the other ranks ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output/goodput.h"

namespace dslaunch {

// The cause of the job's end. The kinds equal the kinds of proto's Cause.
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
  int rank = -1;  // rank that is the cause; -1 if no particular rank is
  int local_rank = 0;
  int exit_code = 0;  // exit code of the rank, for kWorkerExit
  int signal = 0;     // number of the signal, for kWorkerSignal and kInterrupted
  bool core_dumped = false;
  bool out_of_memory = false;
  // True if the error of the rank is about another rank, and no rank left an error of its own.
  bool victim = false;
  bool timed_out = false;  // whether the victim timed out waiting for another rank
  // The prospect of starting the program again, according to the text of the failure.
  enum class Restart { kUnknown, kCanHelp, kCannotHelp };
  Restart restart = Restart::kUnknown;
  std::string restart_reason;  // clause with the reason for `restart`; empty if unknown
  std::string restart_line;    // line of output that shows the reason; empty if unknown
  // The text that shows the cause, or the program's own error; empty if neither is known.
  std::string evidence;
  // One sentence, which is the first line of the summary unless the cause is the end of a rank.
  std::string message;
  std::string last_lines;  // last output of the rank, unmodified
  bool was_shown = false;  // whether the last lines are already on the terminal
  std::string log_path;    // log file of the rank on its node; empty if unknown
};

struct RankSummary {
  int rank = 0;
  bool reported = true;  // false if the node did not report the end of the rank
  int exit_code = 0;     // exit code of the rank; valid if `signal` is 0
  int signal = 0;
  bool stopping = false;  // whether the rank ended after its node had received a request to stop
  bool victim = false;    // whether the rank failed because of the first cause
  // Line of output that shows why the rank failed; empty if no line does.
  std::string evidence = {};
};

// A process that could not be killed at the end of the job.
struct LeftEnd {
  std::string node;
  int pid = 0;
  std::string command;
  std::string state;     // state letter as printed by ps; empty if unknown
  std::string waits_in;  // kernel function in which the process waits; empty if unknown
};

struct NodeSummary {
  std::string name;
  std::string state;   // state at the end: "done", "lost" or "absent"
  bool member = true;  // whether the node had ranks in the last attempt
  std::string log_dir;
};

struct JobSummary {
  std::string job_id;
  bool is_local = false;  // whether all nodes are this machine
  std::vector<NodeSummary> nodes;
  // Number of nodes of the last attempt, to which world_size and workers refer too.
  int num_nodes = 1;
  int world_size = 1;
  double duration_s = 0;  // time from the start of the ranks to the end of the job
  EndCause cause;
  std::string hint;  // advice to the user about the cause; empty if unknown
  std::vector<RankSummary> workers;
  std::vector<LeftEnd> left;
  uint64_t attempts = 1;
  uint64_t restarts = 0;
  std::string logs;  // log folder of the first node as returned by PathOnNode; empty if unknown
  std::vector<std::string> remarks;  // further failures, such as other lost nodes
  // Use of the ranks' time; nullopt if no rank was started.
  std::optional<Goodput> goodput;
  // The newest evaluation: "step" and the values that the program measured; nullopt if no
  // evaluation was reported.
  std::optional<std::vector<std::pair<std::string, double>>> result;
  int exit_code = 0;  // exit code of dslaunch for the job
  // True if every rank saved and stopped on request, which is not a failure.
  bool saved_on_request = false;
};

// Returns a path on a node of the job for the user: "node2:/logs", or "/logs" on this machine.
std::string PathOnNode(const JobSummary& summary, const std::string& node, const std::string& path);

// Returns the first failure without the last lines of output: a sentence, or a message of several
// lines.
std::string FirstCauseText(const JobSummary& summary);

// Returns the summary, with a newline after each line. For a successful job, ranks ended by a
// signal are listed as tolerated losses. Output of ranks is sanitized for a terminal.
std::string SummaryText(const JobSummary& summary);

// Default limit of the lines that LastLines returns.
inline constexpr size_t kMaxLastLines = 50;

// Returns the last lines of `text`, the output of a rank, at most `most`. The lines are views into
// `text`, without their line endings.
std::vector<std::string_view> LastLines(std::string_view text, size_t most = kMaxLastLines);

}  // namespace dslaunch
