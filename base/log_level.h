#pragma once

namespace dslaunch {

// How much is said: each level says what those before it do.
enum class LogLevel { kError, kWarning, kInfo, kDebug };

}  // namespace dslaunch
