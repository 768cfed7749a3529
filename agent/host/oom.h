// Detects whether the kernel killed a worker because memory was exhausted, and where the kernel
// writes core dumps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the record about an out-of-memory kill of process `pid`; nullopt if there is none.
// `kernel_log` has the format of /dev/kmsg, with one record per line. Pids are recycled, so records
// before `since_us` after boot are ignored.
std::optional<std::string> FindOutOfMemoryKill(std::string_view kernel_log, pid_t pid,
                                               uint64_t since_us);

// Returns the number of out-of-memory kills since boot from the content of /proc/vmstat; 0 if the
// text has no such number.
uint64_t ParseOutOfMemoryKills(std::string_view vmstat);

// Returns the first record since `since_us` about an out-of-memory kill of a process whose pid
// `text` mentions, as "(pid 123)" or "pid(s) 121, 123". Returns nullopt if there is no such record.
std::optional<std::string> FindOutOfMemoryKillNamedIn(std::string_view text,
                                                      std::string_view kernel_log,
                                                      uint64_t since_us);

struct OutOfMemoryInfo {
  int signal = 0;               // signal that ended the worker; 0 if none did
  bool cgroup_counted = false;  // whether the worker's cgroup counted an out-of-memory kill
  std::optional<std::string> kernel_log;  // kernel's record of the kill, from FindOutOfMemoryKill()
  uint64_t kills_before = 0;              // kills on the whole node until the worker started
  uint64_t kills_now = 0;
};

// Returns the fact that shows that the worker was killed for lack of memory, as a sentence; nullopt
// if no fact shows that.
std::optional<std::string> DecideOutOfMemory(const OutOfMemoryInfo& details);

// Returns the fact that shows that a child of the worker was killed for lack of memory, while the
// worker itself failed in another way; nullopt if no fact shows that.
//   `details`     its `kernel_log` is FindOutOfMemoryKillNamedIn() of the worker's last lines
//   `last_lines`  last lines of the worker's output, which may mention a killed process
std::optional<std::string> DecideChildOutOfMemory(const OutOfMemoryInfo& details,
                                                  std::string_view last_lines);

// Returns the records of the kernel's log about killed processes; empty if this user may not read
// the log.
std::string ReadKillsInKernelLog();

// Returns the number of out-of-memory kills on this node since boot; 0 if the kernel does not count
// them.
uint64_t OutOfMemoryKills();

// Returns the place to which the kernel wrote a process's core dump, as a phrase such as "in
// /tmp/core.123".
//   `pattern`   content of /proc/sys/kernel/core_pattern
//   `uses_pid`  whether /proc/sys/kernel/core_uses_pid is not 0
std::string CoreDumpPlace(std::string_view pattern, bool uses_pid, const std::string& cwd,
                          pid_t pid);

}  // namespace dslaunch
