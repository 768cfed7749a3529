// What /proc says about processes, and signals that never hit a recycled pid. Everything here is
// robust against processes that vanish while they are looked at: they are left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Names one process until the machine restarts: pids are recycled, start times are not.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // since boot

  bool operator==(const ProcessId&) const = default;
};

struct ProcessInfo {
  ProcessId id;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';     // one letter: R, S, D (an uninterruptible wait), T (stopped), ...
  std::string command;  // its name, as the kernel shows it: 15 bytes
  bool ended = false;   // a zombie: nothing of it runs any more
};

// By the content of /proc/PID/stat; nullopt when that is not what it is. Pure.
std::optional<ProcessInfo> ParseProcessStat(std::string_view stat);

// nullopt when there is no such process.
std::optional<ProcessInfo> ReadProcess(pid_t pid);

// All processes of this PID namespace.
std::vector<ProcessInfo> AllProcesses();

// The living descendants of `root`, parents before children, without `root` and without the
// processes in `except` and theirs. A process that forks meanwhile may hide a child: look again
// after signalling.
std::vector<ProcessInfo> Descendants(pid_t root, std::span<const pid_t> except);

// The children of the calling process, zombies included. Complete when the process has one thread
// and reaps nothing meanwhile; costs one small read where the kernel has
// /proc/PID/task/TID/children.
std::vector<pid_t> OwnChildren();

// The living processes of this user whose environment, as it was at execve, has exactly
// `variable`=`value`.
std::vector<ProcessInfo> ProcessesWithVariable(std::string_view variable, std::string_view value);

// Sends the signal to exactly that process. False when it is gone or may not be signalled.
bool SignalProcess(const ProcessId& id, int signal);

}  // namespace dslaunch
