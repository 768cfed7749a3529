#pragma once

namespace dslaunch {

// Log levels. Each level includes the messages of those before it.
enum class LogLevel { kError, kWarning, kInfo, kDebug };

}  // namespace dslaunch
