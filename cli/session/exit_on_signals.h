// The end of a process whose exit code is known.
#pragma once

#include <unistd.h>

#include <csignal>
#include <initializer_list>

#include "base/signal_name.h"

namespace dslaunch {

// From here on each of these signals that is not ignored ends the process at once: with
// `exit_code`, or with 128 + the signal in place of 0. Death by the signal would hide that the
// process had failed; salloc takes it for success. Once.
inline void ExitOnSignals(std::initializer_list<int> signal_numbers, int exit_code) {
  static volatile std::sig_atomic_t code = 0;
  code = exit_code;
  for (const int signal_number : NotIgnored(signal_numbers)) {
    std::signal(signal_number, [](int sent) { ::_exit(code != 0 ? code : 128 + sent); });
  }
}

}  // namespace dslaunch
