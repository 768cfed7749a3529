// Writes the log files of dslaunch's own processes: dslaunch.log of the front end and agent.log of
// each agent, in the job's folder on each node.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "base/log_level.h"

namespace spdlog {
class logger;
}

namespace dslaunch {

// A log file. Each line gets the time and a level, and is flushed at once so that it survives a
// crash. Not thread-safe.
class LogFile {
 public:
  LogFile();
  ~LogFile();

  // Opens the file at `path` for appending. Lines that were written before Open() are lost. Fails
  // with kIo if the file cannot be created.
  Result<void> Open(const std::string& path);

  // Appends a line. The line is lost if the write fails.
  void Write(LogLevel level, const std::string& line);

 private:
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace dslaunch
