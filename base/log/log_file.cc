#include "base/log/log_file.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kDebug:
      break;
  }
  return spdlog::level::debug;
}

}  // namespace

LogFile::LogFile() = default;
LogFile::~LogFile() = default;

Result<void> LogFile::Open(const std::string& path) {
  try {
    logger_ = std::make_unique<spdlog::logger>(
        "dslaunch", std::make_shared<spdlog::sinks::basic_file_sink_st>(path));
  } catch (const spdlog::spdlog_ex& error) {
    return Error{ExitCode::kIo, std::string("cannot make a log file: ") + error.what()};
  }
  logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l: %v");
  logger_->set_level(spdlog::level::debug);
  logger_->flush_on(spdlog::level::debug);
  // A full disk loses log lines but must not affect the job, so errors are ignored. The owner of
  // the file reports the full disk elsewhere.
  logger_->set_error_handler([](const std::string&) {});
  return {};
}

void LogFile::Write(LogLevel level, const std::string& line) {
  if (logger_) logger_->log(ToSpdlog(level), "{}", SanitizeMessage(line));
}

}  // namespace dslaunch
