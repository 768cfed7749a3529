// Prints the lines of a training job.
#pragma once

#include <string>

#include "trainer/base/log.h"
#include "trainer/config/engine_config.h"

namespace dslaunch {

// Prints lines on rank 0. Other ranks may make the same calls, which print nothing.
class TrainLog {
 public:
  // Prints only lines of `level`, which is the log_level of the engine configuration, or more
  // severe lines.
  TrainLog(int rank, EngineLogLevel level) : rank_(rank), level_(level) {}

  // Prints a result that the recipe requests, whatever the level is.
  void Result(const std::string& line) const {
    if (rank_ == 0) PrintLine(line);
  }
  void Info(const std::string& line) const {
    if (Prints(EngineLogLevel::kInfo)) PrintLine(line);
  }
  void Warning(const std::string& line) const {
    if (Prints(EngineLogLevel::kWarning)) PrintLine(line);
  }

  // Returns whether Info() prints on this rank.
  bool prints_info() const { return Prints(EngineLogLevel::kInfo); }

 private:
  bool Prints(EngineLogLevel level) const { return rank_ == 0 && level_ <= level; }

  int rank_;
  EngineLogLevel level_;
};

}  // namespace dslaunch
