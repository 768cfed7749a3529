// What an agent did and why, for whoever looks into a job afterwards.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"

namespace spdlog {
class logger;
}

namespace dslaunch {

// Lines with a time, appended to a file and flushed one by one, so that they survive the agent. Not
// thread-safe.
class AgentLog {
 public:
  AgentLog();
  ~AgentLog();

  // Lines before this are dropped. kIo when the file cannot be made.
  Result<void> Open(const std::string& path);

  // A line that the disk does not take is lost.
  void Write(const std::string& line);

 private:
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace dslaunch
