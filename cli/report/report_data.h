// Defines the data of a report: the values in the ranks' files (proto/contract/rank_files.h) and
// the job's events. Times are in seconds, memory in bytes. Numbers that are missing or not valid
// are NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr double kNotRecorded = std::numeric_limits<double>::quiet_NaN();

// Numbers by name, in the order of the file.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

// A line of metrics.jsonl, which describes a window of optimizer steps.
struct MetricsPoint {
  int64_t step = 0;  // last step of the window
  double step_s = kNotRecorded;
  double compute_s = kNotRecorded;  // part of step_s in which this rank itself computes
  double data_epoch = kNotRecorded;
  double loss = kNotRecorded;
  bool loss_is_bad = false;  // whether the loss was reported, but as NaN or infinite
  double lr = kNotRecorded;
  double grad_norm = kNotRecorded;
  double loss_scale = kNotRecorded;
  bool skipped = false;
  double samples_per_s = kNotRecorded;
  double tokens_per_s = kNotRecorded;
  double mfu = kNotRecorded;  // model FLOPs utilization, from 0 to 1
};

// An evaluation, which is a separate line of metrics.jsonl.
struct EvalPoint {
  int64_t step = 0;  // step of the evaluated weights; 0 if not reported
  double loss = kNotRecorded;
  double accuracy = kNotRecorded;  // accuracy as a fraction from 0 to 1
  double perplexity = kNotRecorded;
  NamedNumbers others = {};  // other measured values, such as the metrics of a plugin
};

struct RankMetrics {
  std::vector<MetricsPoint> points;  // windows in the order of the file
  std::vector<EvalPoint> evals;      // evaluations in the order of the file
  NamedNumbers memory;               // measured maximum of each category, in bytes
  size_t bad_lines = 0;              // number of lines that are not valid
};

// The content of run.json, which describes the training run.
struct ReportedRun {
  std::string model;
  std::string dtype;
  double parameters = kNotRecorded;
  double world_size = kNotRecorded;
  double zero_stage = kNotRecorded;
  double flops_per_step = kNotRecorded;
  double batch = kNotRecorded;  // number of samples per step, over all ranks
  double micro_batch = kNotRecorded;
  double accumulation_steps = kNotRecorded;
  double lr = kNotRecorded;
  std::string optimizer;
  std::string data;
  NamedNumbers memory_plan;
};

// The content of profile.json: sums over `steps` steps, which together took `wall_s`.
struct RankProfile {
  struct Operator {
    std::string name;
    double calls = 0;
    double self_s = 0;
    double self_bytes = kNotRecorded;
  };
  struct Communication {
    std::string kind;
    double calls = 0;
    double bytes = 0;
    double s = 0;
  };
  double steps = 1;
  double wall_s = kNotRecorded;
  std::vector<Operator> operators;
  double communication_s = kNotRecorded;
  // Part of communication_s that overlaps with this rank's computation.
  double hidden_s = kNotRecorded;
  std::vector<Communication> kinds;
};

// The files that one rank wrote in one attempt.
struct RankFiles {
  std::string node;
  uint64_t attempt = 1;
  uint32_t rank = 0;
  std::optional<RankMetrics> metrics;
  std::optional<ReportedRun> run;
  std::optional<RankProfile> profile;
  std::string trace_path;  // path of the trace on the rank's node; empty if there is none
  uint64_t trace_bytes = 0;
};

// The time of the job's ranks by its use.
struct ReportedGoodput {
  double wall_s = 0;
  double ranks = 0;
  NamedNumbers seconds;  // sums over all ranks, in the order of GoodputBucket
};

// The content of events.jsonl, which the front end writes.
struct JobEvents {
  struct Start {
    double t = 0;  // Unix time of the start, in seconds
    uint64_t attempt = 1;
    int64_t world_size = 0;
    std::vector<std::string> nodes;
  };
  struct Restart {
    uint64_t attempt = 1;  // number of the attempt that ended
    std::string cause;
    std::string reason;
    double t = 0;  // Unix time of the restart, in seconds
  };
  // A message about a hang of all ranks, with their stacks.
  struct Hang {
    double t = 0;  // Unix time of the message, in seconds
    std::string text;
  };
  std::vector<Start> starts;      // starts of the job, one for each attempt, sorted by attempt
  std::vector<Restart> restarts;  // restarts of the job, one for each attempt, sorted by attempt
  std::vector<Hang> hangs;        // hangs in the order of the file
  std::string cause;  // cause of the failure; empty after success and while the job runs
  // Use of the ranks' time; nullopt while the job runs, and if no rank was started.
  std::optional<ReportedGoodput> goodput;
  std::string evidence;  // output of the rank that shows the cause; empty if unknown
  size_t bad_lines = 0;
};

// The content of preflight.json: the measurements of --preflight before the job.
struct ReportedPreflight {
  struct Value {
    std::string figure;  // name of the figure, such as "send"
    std::string text;    // value with its unit, such as "9.41 Gbit/s"
    bool slow = false;   // whether the front end reported the node because of this value
  };
  struct Node {
    std::string name;
    std::vector<Value> values;  // values of the node; of several devices only the slowest
    std::vector<std::string> findings;
  };
  std::vector<Node> nodes;
  double took_s = kNotRecorded;
};

struct ReportData {
  std::string job_id;
  std::string command;  // command line as typed by the user
  std::string state;    // state such as "running" or "ended (137)"
  std::string detail;   // sentence that explains the state; may be empty
  bool ended = false;
  int exit_code = 0;  // exit code of the job; valid if `ended`
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;   // Unix time of the job's end; 0 if running or unknown
  int64_t made_unix_ms = 0;    // time at which the report was made
  int64_t copied_step = -1;    // newest step that all ranks have copied into memory; -1 if none
  int64_t copied_unix_ms = 0;  // Unix time of the copy of `copied_step`
  std::vector<std::string> nodes;
  JobEvents events;
  std::optional<ReportedPreflight> preflight;
  std::vector<RankFiles> ranks;  // files of ranks, sorted by attempt, then by rank
  // Sentences about missing data: nodes that did not answer, and data that was left out.
  std::vector<std::string> troubles;
};

}  // namespace dslaunch
