// The signals that a front end handles while its job runs, and after the exit code is known.
#pragma once

#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <vector>

#include "base/text/signal_name.h"

namespace dslaunch {

// Signals that end the job in order: its ranks get the grace period to save. SIGXCPU warns of a CPU
// limit, of the kernel and of SGE.
inline constexpr std::initializer_list<int> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT,
                                                            SIGXCPU};
// Signals that are passed on to the ranks. Batch systems use them as warnings (sbatch --signal,
// bsub -wa, qsub -notify).
inline constexpr std::initializer_list<int> kRankSignals = {SIGUSR1, SIGUSR2};

// Returns all signals that a front end handles and that were not ignored when it started. Call it
// before they are handled.
inline std::vector<int> HandledSignals() {
  std::vector<int> all = NotIgnored({SIGTSTP});
  for (const auto& signals : {kStopSignals, kRankSignals}) {
    const std::vector<int> heeded = NotIgnored(signals);
    all.insert(all.end(), heeded.begin(), heeded.end());
  }
  return all;
}

// From now on each of kStopSignals that is not ignored ends the process at once: with `exit_code`,
// or with 128 + the signal if that is 0. Dying of the signal instead would hide that the process
// had failed, because salloc treats it as success. kRankSignals are ignored, because no rank is
// left. Call it once.
inline void ExitOnStopSignals(int exit_code) {
  static volatile std::sig_atomic_t code = 0;
  code = exit_code;
  for (const int signal_number : NotIgnored(kStopSignals)) {
    std::signal(signal_number, [](int sent) { ::_exit(code != 0 ? code : 128 + sent); });
  }
  for (const int signal_number : kRankSignals) std::signal(signal_number, SIG_IGN);
}

}  // namespace dslaunch
