#pragma once

namespace dslaunch {

// Levels of log messages. A log that is set to a level contains the messages of this level and of
// the levels before it.
enum class LogLevel { kError, kWarning, kInfo, kDebug };

}  // namespace dslaunch
