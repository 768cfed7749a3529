// Lists the processes in /proc, and sends signals that never reach a recycled pid. Omits processes
// that exit while they are read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Identifies a process until the machine restarts. A pid can be recycled, but not together with its
// start time.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // start time in clock ticks since boot

  bool operator==(const ProcessId&) const = default;
};

struct ProcessInfo {
  ProcessId id;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  // R, S, D (uninterruptible sleep), T (stopped) or another letter of /proc/PID/stat.
  char state = '?';
  std::string command;  // kernel's name of the process, at most 15 bytes
  bool ended = false;   // whether the process is a zombie and none of its threads runs
};

// Returns the process that the content of /proc/PID/stat describes; nullopt if the content is
// malformed. Pure.
std::optional<ProcessInfo> ParseProcessStat(std::string_view stat);

// Returns the process with this pid; nullopt if no such process exists.
std::optional<ProcessInfo> ReadProcess(pid_t pid);

// Returns all processes of this PID namespace.
std::vector<ProcessInfo> AllProcesses();

// Returns the living descendants of `root`, parents before children. Omits `root`, and the
// processes in `except` and their descendants. A process that forks meanwhile may hide a child, so
// call this function again after sending signals.
std::vector<ProcessInfo> Descendants(pid_t root, std::span<const pid_t> except);

// Returns the children of the calling process, including zombies. The list is complete if the
// process has one thread and reaps no child meanwhile. Costs one small read if the kernel has
// /proc/PID/task/TID/children.
std::vector<pid_t> OwnChildren();

// Returns the living processes of this user that were executed with `variable`=`value` in their
// environment.
std::vector<ProcessInfo> ProcessesWithVariable(std::string_view variable, std::string_view value);

// Returns the value of a variable in the environment with which a process was executed. Returns
// nullopt if the variable is not set or the environment cannot be read.
std::optional<std::string> VariableOf(pid_t pid, std::string_view variable);

// Sends the signal to exactly this process. Returns false if the process has exited or may not be
// signalled.
bool SignalProcess(const ProcessId& id, int signal);

}  // namespace dslaunch
