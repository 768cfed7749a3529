// Writes the log files of dslaunch's own processes: dslaunch.log of the front end and agent.log of
// each agent, in the job's folders.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "base/log_level.h"

namespace spdlog {
class logger;
}

namespace dslaunch {

// Appends lines with time and level to a file and flushes each line, so that it survives a crash.
// Not thread-safe.
class LogFile {
 public:
  LogFile();
  ~LogFile();

  // Opens the file at `path` for appending. Lines that were written before Open() are dropped.
  // Fails with kIo if the file cannot be created.
  Result<void> Open(const std::string& path);

  // Appends a line. The line is lost if the write fails.
  void Write(LogLevel level, const std::string& line);

 private:
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace dslaunch
