// What a rank tells the outside: the status pipe, the metrics file and the lines that people read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/contract/deadline.h"
#include "proto/contract/status_line.h"
#include "proto/contract/unique_fd.h"

namespace dslaunch {

// The status pipe (proto/contract/status_line.h). Never blocks and never fails: a reader that is
// gone or slow costs lines, not training time.
class StatusPipe {
 public:
  // `fd` is DSLAUNCH_STATUS_FD, -1 for none. Takes ownership.
  explicit StatusPipe(int fd);
  void Ready();
  // At most ten a second, but always the one of the last step.
  void Step(const StatusLine& line);

 private:
  void Write(const std::string& line);
  UniqueFd fd_;
  Clock::time_point next_;
};

struct StepMetrics {
  int64_t step = 0;      // optimizer steps done
  int64_t attempt = 1;   // which start of the job's ranks this is; a restart runs some steps again
  int64_t epoch = 0;     // of the step's last micro-batch, from 1
  double loss = 0;       // mean over the global batch
  double lr = 0;         // that this step was made at
  double grad_norm = 0;  // L2, of the averaged gradient, before clipping
  int64_t samples = 0;   // samples so far, over all ranks
  double step_s = 0;
  double samples_per_s = 0;
};

// Appends one JSON object a line. Throws kIo when the file cannot be opened or written.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& file);
  void Append(const StepMetrics& metrics);

 private:
  std::string file_;
  UniqueFd fd_;
};

// "<prefix> accuracy 87.12% (8712 of 10000), loss 0.3512"
std::string AccuracyLine(const std::string& prefix, int64_t correct, int64_t count,
                         double mean_loss);

// printf into a string.
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// One line on stdout, flushed.
void PrintLine(const std::string& line);

}  // namespace dslaunch
