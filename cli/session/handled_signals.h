// Which signals a front end heeds while its job runs, and once the exit code is known.
#pragma once

#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <vector>

#include "base/text/signal_name.h"

namespace dslaunch {

// These end the job in order: its ranks get the grace to save. SIGXCPU is the warning of a CPU
// limit, of the kernel's and of SGE's.
inline constexpr std::initializer_list<int> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT,
                                                            SIGXCPU};
// These are passed on to the ranks. Batch systems warn by them (sbatch --signal, bsub -wa, qsub
// -notify).
inline constexpr std::initializer_list<int> kRankSignals = {SIGUSR1, SIGUSR2};

// All that a front end handles and that were not ignored when it started. To be called before they
// are handled.
inline std::vector<int> HandledSignals() {
  std::vector<int> all = NotIgnored({SIGTSTP});
  for (const auto& signals : {kStopSignals, kRankSignals}) {
    const std::vector<int> heeded = NotIgnored(signals);
    all.insert(all.end(), heeded.begin(), heeded.end());
  }
  return all;
}

// From here on each of kStopSignals that is not ignored ends the process at once: with `exit_code`,
// or with 128 + the signal in place of 0. Death by the signal would hide that the process had
// failed; salloc takes it for success. kRankSignals are ignored: no rank is left. Once.
inline void ExitOnStopSignals(int exit_code) {
  static volatile std::sig_atomic_t code = 0;
  code = exit_code;
  for (const int signal_number : NotIgnored(kStopSignals)) {
    std::signal(signal_number, [](int sent) { ::_exit(code != 0 ? code : 128 + sent); });
  }
  for (const int signal_number : kRankSignals) std::signal(signal_number, SIG_IGN);
}

}  // namespace dslaunch
