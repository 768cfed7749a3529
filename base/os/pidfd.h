// Calls the system calls for pidfds directly, because glibc 2.36 declares its own functions without
// C linkage.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace dslaunch {

// Returns a descriptor for the process, readable once the process has exited; -1 with errno set on
// failure.
inline int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Sends a signal to the process. Returns 0 on success, or -1 with errno set.
inline int PidfdSendSignal(int pidfd, int signal) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

}  // namespace dslaunch
