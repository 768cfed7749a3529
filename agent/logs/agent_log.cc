#include "agent/logs/agent_log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

namespace dslaunch {

AgentLog::AgentLog() = default;
AgentLog::~AgentLog() = default;

Result<void> AgentLog::Open(const std::string& path) {
  try {
    logger_ = std::make_unique<spdlog::logger>(
        "agent", std::make_shared<spdlog::sinks::basic_file_sink_st>(path));
  } catch (const spdlog::spdlog_ex& error) {
    return Error{ExitCode::kIo, std::string("cannot make the agent's log: ") + error.what()};
  }
  logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %v");
  logger_->flush_on(spdlog::level::info);
  // A full disk is said by log_keeping; here it costs lines, not the job.
  logger_->set_error_handler([](const std::string&) {});
  return {};
}

void AgentLog::Write(const std::string& line) {
  if (logger_) logger_->info("{}", line);
}

}  // namespace dslaunch
