// Installs a seccomp filter that denies system calls in a process, as a container's profile does.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <vector>

namespace dslaunch {

// Makes the system calls `numbers` fail with `error_number` from now on, in this process and its
// children. Returns false if the kernel does not allow filters.
inline bool DenySyscalls(const std::vector<int>& numbers, int error_number) {
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int number : numbers) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    filter.push_back(
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error_number)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Returns whether `holds` returns true in a child process in which the system calls `numbers` fail
// with `error_number`. Also returns false if the child cannot be started or filtered.
inline bool HoldsWithout(const std::vector<int>& numbers, int error_number,
                         const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) _exit(DenySyscalls(numbers, error_number) && holds() ? 0 : 1);
  int status = 1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && status == 0;
}

}  // namespace dslaunch
