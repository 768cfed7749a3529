// Was it the kernel that killed a worker, because memory ran out? And where does the kernel put
// what is left of one that crashed?
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// The record of the kernel's log (as /dev/kmsg gives it, one record a line) by which the kernel
// killed this process for memory, at `since_us` after boot or later: pids are recycled. Pure.
std::optional<std::string> FindOutOfMemoryKill(std::string_view kernel_log, pid_t pid,
                                               uint64_t since_us);

// How many processes the kernel has killed for memory since boot, by /proc/vmstat; 0 when it does
// not say. Pure.
uint64_t ParseOutOfMemoryKills(std::string_view vmstat);

// The first such record since `since_us` of a process that `text` names by its pid, as "(pid 123)"
// or "pid(s) 121, 123". Pure.
std::optional<std::string> FindOutOfMemoryKillNamedIn(std::string_view text,
                                                      std::string_view kernel_log,
                                                      uint64_t since_us);

struct OutOfMemoryInfo {
  int signal = 0;                         // that ended the worker
  bool cgroup_counted = false;            // its cgroup counted such a kill
  std::optional<std::string> kernel_log;  // what FindOutOfMemoryKill found
  uint64_t kills_before = 0;              // of the whole node, when it started
  uint64_t kills_now = 0;
};

// The fact that says that it was killed for memory, as a sentence; nullopt: nothing says so. Pure.
std::optional<std::string> DecideOutOfMemory(const OutOfMemoryInfo& details);

// The same of a process that the worker had started; the worker itself has failed in another way.
//   `kernel_log`  of `details`: what FindOutOfMemoryKillNamedIn found in the worker's last lines
//   `last_lines`  of the worker, which may tell of a killed process
std::optional<std::string> DecideChildOutOfMemory(const OutOfMemoryInfo& details,
                                                  std::string_view last_lines);

// The records of the kernel's log that tell of killed processes; empty when this user may not read
// it.
std::string ReadKillsInKernelLog();

// ParseOutOfMemoryKills of this node, now.
uint64_t OutOfMemoryKills();

// Where the kernel put the core dump of a process, as a clause: "in /tmp/core.123". Pure.
//   `pattern`   the content of /proc/sys/kernel/core_pattern
//   `uses_pid`  /proc/sys/kernel/core_uses_pid is not 0
std::string CoreDumpPlace(std::string_view pattern, bool uses_pid, const std::string& cwd,
                          pid_t pid);

}  // namespace dslaunch
