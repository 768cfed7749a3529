// Writes a rank's reports: status lines, metrics and printed lines.
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

// The writing end of the status pipe (proto/contract/status_line.h). Calls never block and never
// fail: if the pipe is closed or the reader is slow, lines are lost, and training is not delayed.
class StatusPipe {
 public:
  // Takes ownership of the descriptor `fd`, the value of DSLAUNCH_STATUS_FD; -1 if there is no
  // pipe.
  explicit StatusPipe(int fd);
  void Ready(bool loss_tolerated = false);
  void Lost(int rank);
  // Writes `line`, but at most ten lines per second. The line of the last step is always written.
  void Step(const StatusLine& line);
  // Reports that training continues after `step` from a checkpoint on a disk. `reached_step` is the
  // last step of an earlier attempt, if known. A start from copies in memory is reported by
  // dslaunch/memory_checkpoint.h.
  void RestoredFromDisk(int64_t step, std::optional<int64_t> reached_step);
  void Evaluated(int64_t step, const EvaluationResults& results);
  // Reports that training waits from now on, while a checkpoint of `step` is saved.
  void Saving(int64_t step);
  // Reports that training continues after Saving().
  void Saved(int64_t step);

 private:
  void Write(const std::string& line);
  UniqueFd fd_;
  Clock::time_point next_;
};

struct StepMetrics {
  int64_t step = 0;       // number of completed optimizer steps
  int64_t attempt = 1;    // number of the job's start, from 1; a restart repeats some steps
  int64_t epoch = 0;      // epoch, from 1, of the step's last micro-batch
  double loss = 0;        // mean loss over the global batch
  double lr = 0;          // learning rate in this step
  double grad_norm = 0;   // L2 norm of the averaged gradient, before clipping
  double loss_scale = 1;  // loss scale in this step
  bool skipped = false;   // true if gradients were not finite, so weights did not change
  int64_t samples = 0;    // samples since the first step, over all ranks
  int64_t tokens = 0;     // tokens in `samples`; 0 if the data is not text
  int64_t steps = 1;      // number of steps over which the times are averaged
  double step_s = 0;
  double compute_s = 0;  // time of this rank's own work; 0 if not known
  double samples_per_s = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu = {};  // model FLOPs utilization, 0 to 1; nullopt if not known
  MemoryBytes memory = {};         // maximum over the ranks in each category of memory
};

// Returns all members as one JSON object without a newline.
std::string MetricsJson(const StepMetrics& metrics);
// Returns the members that each rank measures itself (proto/contract/rank_files.h) as one JSON
// object without a newline.
std::string OwnMetricsJson(const StepMetrics& metrics);

// The sums of an evaluation over all ranks.
struct EvaluationSums {
  // The kind of targets; kAnswers is the kind of tokens of answers in chat data.
  enum class Kind { kClasses, kTokens, kAnswers, kOther };
  Kind kind = Kind::kOther;
  double loss = 0;                 // sum of the losses of all targets
  int64_t targets = 0;             // number of labels or tokens
  int64_t correct = 0;             // number of correct predictions; only for kClasses
  EvaluationResults metrics = {};  // results of the user's metrics
};

// Returns the named results, which depend on the task: the loss, then accuracy (0 to 1), correct
// and samples for kClasses; perplexity and tokens for kTokens and kAnswers; or samples for kOther.
// The user's own metrics follow.
EvaluationResults ResultsOf(const EvaluationSums& sums);

// Returns the results as one JSON object without a newline. They are under "eval", so that readers
// do not mistake them for the results of a step. `epoch` is 0 if not known.
std::string EvaluationJson(int64_t step, int64_t epoch, int64_t attempt,
                           const EvaluationResults& results);

// Appends lines to a file. Throws kIo if the file cannot be opened or written. Messages begin with
// `option`, which is the name of the option that set the file.
class MetricsFile {
 public:
  MetricsFile(const std::string& file, const std::string& option);
  void Append(const std::string& json);

 private:
  std::string file_;
  UniqueFd fd_;
};

// Returns the line of an evaluation, which depends on the task:
//   "<prefix> accuracy 87.12% (8712 of 10000), loss 0.3512"
//   "<prefix> perplexity 12.34, loss 2.5129 (40960 tokens)"
//   "<prefix> perplexity 3.21, loss 1.1663 (1209 tokens of answers)"
//   "<prefix> loss 0.3512 (10000 samples)"
// The user's own metrics follow: ", top_3 0.9712"
std::string EvaluationLine(const std::string& prefix, const EvaluationSums& sums);

// Returns "step 12 was skipped: <reason>".
std::string SkippedLine(int64_t step, const std::string& reason);

// Returns a line about `waited_s`, the seconds that training waited for data; "" if they are less
// than 1 s or less than 5 % of `training_s`.
std::string DataWaitLine(double waited_s, double training_s);

// Returns the peak resident memory of this process in bytes, or 0 if the system does not report it.
int64_t PeakRssBytes();

}  // namespace dslaunch
