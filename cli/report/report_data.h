// What a report is made of: the values of the ranks' files (proto/contract/rank_files.h) and of the
// job's events. Times in seconds, memory in bytes. A number that was not told, or is none, is NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

inline constexpr double kNotRecorded = std::numeric_limits<double>::quiet_NaN();

// A name and a number, in the order in which a file has them.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

// One line of metrics.jsonl: a window of optimizer steps.
struct MetricsPoint {
  int64_t step = 0;  // the last of the window
  double step_s = kNotRecorded;
  double compute_s = kNotRecorded;  // of it this rank's own work
  double data_epoch = kNotRecorded;
  double loss = kNotRecorded;
  bool loss_is_bad = false;  // told, and not finite
  double lr = kNotRecorded;
  double grad_norm = kNotRecorded;
  double loss_scale = kNotRecorded;
  bool skipped = false;
  double samples_per_s = kNotRecorded;
  double tokens_per_s = kNotRecorded;
  double mfu = kNotRecorded;  // 0 to 1
};

// An evaluation, which has a line of metrics.jsonl of its own.
struct EvalPoint {
  int64_t step = 0;  // of the weights that were evaluated; 0: not told
  double loss = kNotRecorded;
  double accuracy = kNotRecorded;  // 0 to 1
  double perplexity = kNotRecorded;
  NamedNumbers others = {};  // what else was measured, such as metrics of a plugin
};

struct RankMetrics {
  std::vector<MetricsPoint> points;  // in the order of the file
  std::vector<EvalPoint> evals;      // likewise
  NamedNumbers memory;               // of each category the most
  size_t bad_lines = 0;              // that could not be understood
};

// run.json
struct RunInfo {
  std::string model;
  std::string dtype;
  double parameters = kNotRecorded;
  double world_size = kNotRecorded;
  double zero_stage = kNotRecorded;
  double flops_per_step = kNotRecorded;
  double batch = kNotRecorded;  // samples of a step, over all ranks
  double micro_batch = kNotRecorded;
  double accumulation_steps = kNotRecorded;
  double lr = kNotRecorded;
  std::string optimizer;
  std::string data;
  NamedNumbers memory_plan;
};

// profile.json: sums over `steps` steps, which took `wall_s`.
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
  double hidden_s = kNotRecorded;  // of communication_s, while this rank computed
  std::vector<Communication> kinds;
};

// What is known of one start of one rank.
struct RankFiles {
  std::string node;
  uint64_t attempt = 1;
  uint32_t rank = 0;
  std::optional<RankMetrics> metrics;
  std::optional<RunInfo> run;
  std::optional<RankProfile> profile;
  std::string trace_path;  // on its node; empty: there is none
  uint64_t trace_bytes = 0;
};

// The job's own story: events.jsonl, which the front end keeps.
struct JobEvents {
  struct Start {
    double t = 0;  // seconds since 1970
    uint64_t attempt = 1;
    int64_t world_size = 0;
    std::vector<std::string> nodes;
  };
  struct Restart {
    uint64_t attempt = 1;  // that ended
    std::string cause;
    std::string reason;
  };
  std::vector<Start> starts;      // by attempt, each once
  std::vector<Restart> restarts;  // likewise
  std::string cause;              // of its end; empty for success, and while it runs
  std::string evidence;           // of the cause: what the rank said; often empty
  size_t bad_lines = 0;
};

struct ReportData {
  std::string job_id;
  std::string command;  // as the user typed it
  std::string state;    // "running", "ended (137)"
  std::string detail;   // of the state, a sentence; often empty
  bool ended = false;
  int exit_code = 0;  // once it has ended
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;  // 0: not, or unknown
  int64_t made_unix_ms = 0;   // when the report was
  std::vector<std::string> nodes;
  JobEvents events;
  std::vector<RankFiles> ranks;       // by attempt, then by rank
  std::vector<std::string> troubles;  // sentences: nodes that did not answer, what was left out
};

}  // namespace dslaunch
