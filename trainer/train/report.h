// Writes a rank's reports: status lines, metrics and lines for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "proto/contract/status_line.h"
#include "trainer/base/format.h"
#include "trainer/base/memory_bytes.h"

namespace dslaunch {

// The status pipe (proto/contract/status_line.h). Never blocks and never fails: a closed pipe or a
// slow reader loses lines and does not delay training.
class StatusPipe {
 public:
  // `fd` is DSLAUNCH_STATUS_FD, -1 for none. Takes ownership.
  explicit StatusPipe(int fd);
  void Ready(bool loss_tolerated = false);
  void Lost(int rank);
  // Writes at most ten lines per second, and always the line of the last step.
  void Step(const StatusLine& line);
  // Reports that the training continues after `step` from a checkpoint on a disk. `reached_step` is
  // the last step of an earlier attempt, if known. Copies in memory are reported by themselves
  // (dslaunch/memory_checkpoint.h).
  void RestoredFromDisk(int64_t step, std::optional<int64_t> reached_step);
  void Evaluated(int64_t step, const EvaluationResults& results);
  // Reports that training waits while a checkpoint is saved: the first call reports the start, the
  // second the end.
  void Saving(int64_t step);
  void Saved(int64_t step);

 private:
  void Write(const std::string& line);
  UniqueFd fd_;
  Clock::time_point next_;
};

struct StepMetrics {
  int64_t step = 0;       // optimizer steps done
  int64_t attempt = 1;    // number of the job's start; a restart repeats some steps
  int64_t epoch = 0;      // epoch of the last micro-batch, from 1
  double loss = 0;        // mean over the global batch
  double lr = 0;          // rate in this step
  double grad_norm = 0;   // L2, of the averaged gradient, before clipping
  double loss_scale = 1;  // scale in this step
  bool skipped = false;   // true if gradients were not finite, so the weights stay as they were
  int64_t samples = 0;    // since the first step, over all ranks
  int64_t tokens = 0;     // tokens in these samples; 0 if the data is not text
  int64_t steps = 1;      // number of steps over which times are averaged
  double step_s = 0;
  double compute_s = 0;  // this rank's work, without waiting for other ranks; 0: not known
  double samples_per_s = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu = {};  // model FLOPs divided by the hardware's peak; nullopt: unknown
  MemoryBytes memory = {};         // maximum over the ranks of each category
};

// Returns one JSON object without a newline: all fields, including those that each rank measures
// itself (proto/contract/rank_files.h).
std::string MetricsJson(const StepMetrics& metrics);
std::string OwnMetricsJson(const StepMetrics& metrics);

// Sums of an evaluation over all ranks.
struct EvaluationSums {
  enum class Kind { kClasses, kTokens, kOther };
  Kind kind = Kind::kOther;
  double loss = 0;                 // sum over the targets
  int64_t targets = 0;             // labels or tokens
  int64_t correct = 0;             // correct predictions, with kClasses
  EvaluationResults metrics = {};  // the user's metrics over all ranks
};

// Returns loss, then accuracy (0 to 1), correct and samples, or perplexity and tokens, or samples,
// depending on the task. The user's own metrics follow.
EvaluationResults ResultsOf(const EvaluationSums& sums);

// Returns one JSON object without a newline. Results are under "eval", so that no reader mistakes
// them for the results of a step. `epoch` 0: not known.
std::string EvaluationJson(int64_t step, int64_t epoch, int64_t attempt,
                           const EvaluationResults& results);

// Appends lines. Throws kIo if the file cannot be opened or written; messages begin with `option`,
// the option that named the file.
class MetricsFile {
 public:
  MetricsFile(const std::string& file, const std::string& option);
  void Append(const std::string& json);

 private:
  std::string file_;
  UniqueFd fd_;
};

// "<prefix> accuracy 87.12% (8712 of 10000), loss 0.3512"
// "<prefix> perplexity 12.34, loss 2.5129 (40960 tokens)"
// "<prefix> loss 0.3512 (10000 samples)"
// The user's own metrics follow: ", top_3 0.9712"
std::string EvaluationLine(const std::string& prefix, const EvaluationSums& sums);

// "step 12 was skipped: <reason>"
std::string SkippedLine(int64_t step, const std::string& reason);

// Returns a line about `waited_s`, the time that training waited for data; "" if it is short.
std::string DataWaitLine(double waited_s, double training_s);

// Returns the peak resident memory of this process, or 0 if the system does not report it.
int64_t PeakRssBytes();

}  // namespace dslaunch
