// Reports the progress of a training run as printed lines, metrics and lines of the status pipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/profile/breakdown.h"
#include "trainer/train/report.h"
#include "trainer/train/schedule.h"
#include "trainer/train/train_log.h"
#include "trainer/train/window.h"

namespace dslaunch {

// The result of one optimizer step on this rank.
struct StepInfo {
  int64_t step = 0;
  double loss = 0;      // mean loss over this rank's share of the global batch
  int64_t samples = 0;  // samples of the step, over all ranks
  double lr = 0;
  double grad_norm = 0;
  double loss_scale = 1;
  bool skipped = false;
  std::string skip_reason = {};
  double compute_s = 0;
  double seconds = 0;  // seconds from the first to the last operation of the step on the device
  PhaseTimes times = {};
};

// Collects this rank's steps in windows and reports them. A window ends when the ranks exchange
// their results.
class Progress {
 public:
  struct Options {
    int rank = 0;  // rank of this process; only rank 0 writes metrics_jsonl
    TrainLog log = {0, EngineLogLevel::kInfo};
    int status_fd = -1;
    std::string metrics_jsonl;
    std::string rank_dir;  // folder for this rank's metrics; empty if the rank writes none
    int64_t attempt = 1;
    int64_t tokens_per_sample = 0;
    // True if the loss scale adapts, so that a skipped step may only mean that the scale is too
    // large.
    bool loss_scale_adapts = false;
  };
  // Opens the files of metrics. Throws kIo if the file of metrics_jsonl cannot be opened. If the
  // file in rank_dir cannot be opened, training continues with a warning, because the user did not
  // request that file.
  explicit Progress(const Options& options);

  // Reports that training starts. `loss_tolerated` states that the other ranks continue if this
  // rank is killed.
  void Ready(bool loss_tolerated = false) { status_.Ready(loss_tolerated); }
  // Reports over the status pipe that training continues from a checkpoint on a disk (StatusPipe).
  void RestoredFromDisk(int64_t step, std::optional<int64_t> reached_step) {
    status_.RestoredFromDisk(step, reached_step);
  }
  // Reports that the run has ended without `rank`, which may still be running.
  void Lost(int rank) { status_.Lost(rank); }
  // Starts the clock of training. `samples_before` is the number of samples that were trained
  // before the first step of `schedule`.
  void Start(const Schedule& schedule, int64_t samples_before);
  void AddStep(const StepInfo& info);
  // Returns this rank's sums over the steps since the last exchange, without stop request and
  // memory.
  RankWindow Window() const;
  int64_t window_steps() const { return window_.steps; }
  // Reports the results of an exchange and begins a new window.
  void EndWindow(const AllWindows& all);
  // Reports that training waits from now on, while a checkpoint of `step` is saved.
  void Saving(int64_t step) { status_.Saving(step); }
  // Reports that training continues after Saving().
  void Saved(int64_t step) { status_.Saved(step); }
  // Writes a status line; call this once per step.
  void WriteStatus() { status_.Step(status_line_); }
  // Sets the floating point operations of an optimizer step and the peak rate of the hardware, both
  // over all ranks. If the peak rate is 0 (unknown), mfu is not reported.
  void SetFlops(double per_step, double peak_per_s) {
    flops_per_step_ = per_step;
    peak_flops_ = peak_per_s;
  }
  // Reports an evaluation of the weights after `step`. Call this on all ranks.
  void AddEvaluation(int64_t step, const EvaluationResults& results);
  // Excludes `time`, which was not spent on training, from all reported rates.
  void LeaveOut(Clock::duration time);

  int64_t samples() const { return samples_; }  // samples since the first step, over all ranks
  // Returns the mean loss over the ranks and over the steps between the last two exchanges; nullopt
  // before the first exchange.
  std::optional<double> window_loss() const { return window_loss_; }
  double training_s() const;

 private:
  struct Span {
    double loss = 0;  // sum of the losses of `losses` steps
    int64_t losses = 0;
    int64_t steps = 0;
    int64_t samples = 0;  // samples of these steps, over all ranks
    double compute_s = 0;
    Clock::time_point start = Clock::now();

    double seconds() const;
  };

  StepMetrics Metrics(double loss, const MemoryBytes& memory) const;
  void NoteBadStep(const StepInfo& info);
  void OpenRankMetrics();
  void WriteMetrics(const StepMetrics& metrics);
  void WriteRankMetrics(const std::string& json);
  void PrintStep(double loss, double samples_per_s) const;
  void PrintEpoch() const;
  // Returns a text such as "5120 samples/s"; for text data "81920 tokens/s".
  std::string Rate(double samples_per_s) const;

  const Options options_;
  Schedule schedule_;
  StatusPipe status_;
  std::optional<MetricsFile> metrics_;
  std::optional<MetricsFile> rank_metrics_;
  double flops_per_step_ = 0;
  double peak_flops_ = 0;
  Span window_;
  Span epoch_;
  std::optional<Divergence> diverged_;
  // The current series of bad steps; nullopt if the newest step is not bad (kMostBadSteps).
  std::optional<Divergence> bad_steps_;
  StepInfo last_;
  StatusLine status_line_;
  int64_t samples_ = 0;
  std::optional<double> window_loss_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace dslaunch
