// Signals as people know them, and as a process was started with them.
#pragma once

#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace dslaunch {

// "SIGKILL"; "signal 70" for one without a name.
inline std::string SignalName(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  return name == nullptr ? "signal " + std::to_string(signal_number) : std::string("SIG") + name;
}

// Those that are not ignored: one that was ignored when the process started stays so, as nohup and
// shells that start something in the background want it. To be called before they are handled.
inline std::vector<int> NotIgnored(std::initializer_list<int> signal_numbers) {
  std::vector<int> wanted;
  for (const int signal_number : signal_numbers) {
    struct sigaction now {};
    const bool known = ::sigaction(signal_number, nullptr, &now) == 0;
    if (!known || now.sa_handler != SIG_IGN) wanted.push_back(signal_number);
  }
  return wanted;
}

}  // namespace dslaunch
