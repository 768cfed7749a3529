// The data of a report: the values in the ranks' files (proto/contract/rank_files.h) and the job's
// events. Times are in seconds, memory in bytes. Numbers that are missing or not valid are NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr double kNotRecorded = std::numeric_limits<double>::quiet_NaN();

// Names with numbers, in the order of the file.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

// A line of metrics.jsonl: a window of optimizer steps.
struct MetricsPoint {
  int64_t step = 0;  // the last step of the window
  double step_s = kNotRecorded;
  double compute_s = kNotRecorded;  // part of step_s that is this rank's own work
  double data_epoch = kNotRecorded;
  double loss = kNotRecorded;
  bool loss_is_bad = false;  // reported, but NaN or infinite
  double lr = kNotRecorded;
  double grad_norm = kNotRecorded;
  double loss_scale = kNotRecorded;
  bool skipped = false;
  double samples_per_s = kNotRecorded;
  double tokens_per_s = kNotRecorded;
  double mfu = kNotRecorded;  // 0 to 1
};

// An evaluation, which is a separate line of metrics.jsonl.
struct EvalPoint {
  int64_t step = 0;  // step of the evaluated weights; 0 if not reported
  double loss = kNotRecorded;
  double accuracy = kNotRecorded;  // 0 to 1
  double perplexity = kNotRecorded;
  NamedNumbers others = {};  // other measured values, such as a plugin's metrics
};

struct RankMetrics {
  std::vector<MetricsPoint> points;  // in the order of the file
  std::vector<EvalPoint> evals;      // in the order of the file
  NamedNumbers memory;               // maximum of each category
  size_t bad_lines = 0;              // number of lines that are not valid
};

// The content of run.json.
struct ReportedRun {
  std::string model;
  std::string dtype;
  double parameters = kNotRecorded;
  double world_size = kNotRecorded;
  double zero_stage = kNotRecorded;
  double flops_per_step = kNotRecorded;
  double batch = kNotRecorded;  // samples per step, over all ranks
  double micro_batch = kNotRecorded;
  double accumulation_steps = kNotRecorded;
  double lr = kNotRecorded;
  std::string optimizer;
  std::string data;
  NamedNumbers memory_plan;
};

// The content of profile.json: sums over `steps` steps, which took `wall_s`.
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

// The files of one start of one rank.
struct RankFiles {
  std::string node;
  uint64_t attempt = 1;
  uint32_t rank = 0;
  std::optional<RankMetrics> metrics;
  std::optional<ReportedRun> run;
  std::optional<RankProfile> profile;
  std::string trace_path;  // path on its node; empty if there is no trace
  uint64_t trace_bytes = 0;
};

// The time of the job's ranks by its use.
struct ReportedGoodput {
  double wall_s = 0;
  double ranks = 0;
  NamedNumbers seconds;  // sums of all ranks, in the order of GoodputBucket
};

// The content of events.jsonl, which the front end writes.
struct JobEvents {
  struct Start {
    double t = 0;  // Unix time
    uint64_t attempt = 1;
    int64_t world_size = 0;
    std::vector<std::string> nodes;
  };
  struct Restart {
    uint64_t attempt = 1;  // the attempt that ended
    std::string cause;
    std::string reason;
    double t = 0;  // Unix time
  };
  // What was found when no rank moved, with the ranks' stacks.
  struct Hang {
    double t = 0;  // Unix time
    std::string text;
  };
  std::vector<Start> starts;      // sorted by attempt, one for each
  std::vector<Restart> restarts;  // sorted by attempt, one for each
  std::vector<Hang> hangs;        // in the order of the file
  std::string cause;              // why the job failed; empty for success and while it runs
  std::optional<ReportedGoodput> goodput;  // nullopt while it runs, and if no rank was started
  std::string evidence;                    // the rank's output that shows the cause; often empty
  size_t bad_lines = 0;
};

// The content of preflight.json: what --preflight measured before the job.
struct ReportedPreflight {
  struct Value {
    std::string figure;  // "send"
    std::string text;    // "9.41 Gbit/s"
    bool slow = false;   // the front end named the node for it
  };
  struct Node {
    std::string name;
    std::vector<Value> values;  // only the slowest of several devices
    std::vector<std::string> findings;
  };
  std::vector<Node> nodes;
  double took_s = kNotRecorded;
};

struct ReportData {
  std::string job_id;
  std::string command;  // as typed by the user
  std::string state;    // "running", "ended (137)"
  std::string detail;   // a sentence about the state; often empty
  bool ended = false;
  int exit_code = 0;  // valid if `ended`
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;   // 0 if running or unknown
  int64_t made_unix_ms = 0;    // when the report was made
  int64_t copied_step = -1;    // newest step that all ranks have copied into memory; -1: none
  int64_t copied_unix_ms = 0;  // when it was
  std::vector<std::string> nodes;
  JobEvents events;
  std::optional<ReportedPreflight> preflight;
  std::vector<RankFiles> ranks;  // sorted by attempt, then by rank
  // sentences: nodes that did not answer, data that was left out.
  std::vector<std::string> troubles;
};

}  // namespace dslaunch
