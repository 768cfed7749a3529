#pragma once

namespace dslaunch {

// Levels of log messages. Each level includes the messages of the levels before it.
enum class LogLevel { kError, kWarning, kInfo, kDebug };

}  // namespace dslaunch
