// Returns names of signals, and finds the signals that this process does not ignore.
#pragma once

#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace dslaunch {

// Returns a name such as "SIGKILL", or "signal 70" for a signal without a name.
inline std::string SignalName(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  return name == nullptr ? "signal " + std::to_string(signal_number) : std::string("SIG") + name;
}

// Returns the given signals except the signals that the process ignores. A signal that was ignored
// when the process started must stay ignored, as nohup and background jobs of shells require.
// Precondition: no handlers are installed yet.
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
