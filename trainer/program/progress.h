// What training tells people and programs while it goes on: lines, metrics and the status pipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/program/report.h"
#include "trainer/program/schedule.h"
#include "trainer/program/window.h"

namespace dslaunch {

// One optimizer step as this rank saw it.
struct StepFacts {
  int64_t step = 0;
  double loss = 0;      // the mean over this rank's share of the global batch
  int64_t samples = 0;  // over all ranks
  double lr = 0;
  double grad_norm = 0;
  double loss_scale = 1;
  bool skipped = false;
  std::string skip_reason = {};
  double compute_s = 0;
};

// Adds up this rank's steps into windows that end where the ranks exchange theirs.
class Progress {
 public:
  struct Options {
    int rank = 0;            // rank 0 prints and writes the metrics
    bool tells_info = true;  // engine.log_level: lines that are neither asked for nor a warning
    bool tells_warnings = true;
    int status_fd = -1;
    std::string metrics_jsonl;
    int64_t attempt = 1;
    int64_t tokens_per_sample = 0;
    int64_t samples_before = 0;  // this run
    Schedule schedule;
  };
  // Throws kIo where the metrics file cannot be opened.
  explicit Progress(const Options& options);

  void Ready() { status_.Ready(); }
  void Start();  // training begins now
  void AddStep(const StepFacts& facts);
  // The steps since the last exchange, without stop and memory.
  RankWindow Window() const;
  int64_t window_steps() const { return window_.steps; }
  // After the exchange that followed the last step.
  void EndWindow(const AllWindows& all);
  void WriteStatus() { status_.Step(status_line_); }  // once per step
  // Time that was no training.
  void LeaveOut(Clock::duration time);

  int64_t samples() const { return samples_; }  // since the first step, over all ranks
  double training_s() const;

 private:
  struct Span {
    double loss = 0;  // sum over `losses` steps
    int64_t losses = 0;
    int64_t steps = 0;
    int64_t samples = 0;  // over all ranks
    Clock::time_point start = Clock::now();

    double seconds() const;
  };

  void WriteMetrics(double loss, double seconds, const MemoryBytes& memory);
  void PrintStep(double loss, double samples_per_s) const;
  void PrintEpoch() const;
  std::string Rate(double samples_per_s) const;  // "5120 samples/s", of text "81920 tokens/s"

  Options options_;
  StatusPipe status_;
  std::optional<MetricsFile> metrics_;
  Span window_;
  Span epoch_;
  std::optional<BadLoss> bad_;
  StepFacts last_;
  StatusLine status_line_;
  int64_t samples_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace dslaunch
