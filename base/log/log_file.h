// Log files with the actions of dslaunch's own processes and their reasons: the front end's
// dslaunch.log and each agent's agent.log, in the job's folders.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "base/log_level.h"

namespace spdlog {
class logger;
}

namespace dslaunch {

// Lines with time and level, appended to a file and flushed one by one, so that they survive the
// process. Not thread-safe.
class LogFile {
 public:
  LogFile();
  ~LogFile();

  // Lines before this are dropped. kIo when the file cannot be made.
  Result<void> Open(const std::string& path);

  // A line that the disk does not take is lost.
  void Write(LogLevel level, const std::string& line);

 private:
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace dslaunch
