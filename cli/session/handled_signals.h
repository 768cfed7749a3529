// Defines the signals that a front end handles while its job runs, and after the exit code is
// known.
#pragma once

#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <vector>

#include "base/text/signal_name.h"

namespace dslaunch {

// Signals that end the job in order, so that its ranks get the grace period to save. The kernel and
// SGE send SIGXCPU to warn of a CPU limit.
inline constexpr std::initializer_list<int> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT,
                                                            SIGXCPU};
// Signals that are forwarded to the ranks. Batch systems send them as warnings (sbatch --signal,
// bsub -wa, qsub -notify).
inline constexpr std::initializer_list<int> kRankSignals = {SIGUSR1, SIGUSR2};

// Returns all signals that a front end handles and that were not ignored when it started. Call it
// before handlers for these signals are set.
inline std::vector<int> HandledSignals() {
  std::vector<int> all = NotIgnored({SIGTSTP});
  for (const auto& signals : {kStopSignals, kRankSignals}) {
    const std::vector<int> heeded = NotIgnored(signals);
    all.insert(all.end(), heeded.begin(), heeded.end());
  }
  return all;
}

// Makes each of kStopSignals that is not ignored end the process at once, with `exit_code`, or with
// 128 + the signal if `exit_code` is 0. The process does not die of the signal itself, because
// salloc treats that as success. kRankSignals are ignored from now on, because no rank is left.
// Call it once.
inline void ExitOnStopSignals(int exit_code) {
  static volatile std::sig_atomic_t code = 0;
  code = exit_code;
  for (const int signal_number : NotIgnored(kStopSignals)) {
    std::signal(signal_number, [](int sent) { ::_exit(code != 0 ? code : 128 + sent); });
  }
  for (const int signal_number : kRankSignals) std::signal(signal_number, SIG_IGN);
}

}  // namespace dslaunch
