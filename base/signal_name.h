// Signals as people know them.
#pragma once

#include <cstring>
#include <string>

namespace dslaunch {

// "SIGKILL"; "signal 70" for one without a name.
inline std::string SignalName(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  return name == nullptr ? "signal " + std::to_string(signal_number) : std::string("SIG") + name;
}

}  // namespace dslaunch
