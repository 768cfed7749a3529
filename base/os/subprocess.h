// Starts processes. This is the only place in dslaunch that forks and executes.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// Returns this process's environment in the form of SpawnSpec::env.
std::vector<std::string> CurrentEnvironment();

// Returns the absolute path of a program: `name` itself if it contains a slash, otherwise the first
// match in PATH; empty if there is none. Skips relative and empty elements of PATH, so the current
// folder never decides which program runs.
std::string FindProgram(const std::string& name);

// Closes every descriptor from `first` on. Async-signal-safe.
void CloseFrom(int first);

// Raises this process's soft limit of descriptors to the hard limit, because the front end and the
// rendezvous node need a few for each node. Children get the old limit back, since some programs
// fail above 1024 (select). Repeated calls do nothing. Precondition: the process has one thread.
void RaiseOpenFileLimit();

// The descriptor limit and use of this process.
struct OpenFiles {
  size_t limit = 0;  // soft limit; 0 if unknown
  size_t open = 0;
};
OpenFiles ReadOpenFiles();

// Sets umask 077 and disables core dumps. With SpawnSpec::as_before a child gets the previous umask
// and core limit. Precondition: the process has one thread.
void MakeProcessPrivate();

struct SpawnLimit {
  int resource = 0;  // RLIMIT_NOFILE ...
  rlimit limit = {};
};

// A program to start, and its settings. Strings reach the program byte for byte; no shell is
// involved.
struct SpawnSpec {
  std::string executable = {};         // absolute path
  std::vector<std::string> argv = {};  // argv[0] included
  std::vector<std::string> env = {};   // NAME=VALUE, complete
  std::string cwd = {};                // empty: the caller's
  int stdin_fd = -1;                   // -1: /dev/null; borrowed
  int stdout_fd = -1;                  // likewise
  int stderr_fd = -1;                  // likewise
  // Files that the child itself opens for appending instead of the descriptors above, so that a
  // slow disk blocks only the child. Absolute; created with mode 0600.
  std::string stdout_file = {};
  std::string stderr_file = {};
  std::vector<int> pass_fds = {};  // above 2; stay open in the child under the same numbers
  bool own_session = false;        // setsid(): detached from the terminal
  bool own_group = false;          // setpgid(0, 0): can be killed as a group
  // Folder of a cgroup v2 to start in if the kernel allows it; -1: the caller's.
  int cgroup_fd = -1;
  int parent_death_signal = 0;  // sent when the *thread* that spawned it ends; 0: none
  // Lets the caller and its descendants read the program's memory where Yama restricts that; its
  // children are not included.
  bool readable_by_parent = false;
  bool no_new_privileges = false;  // neither it nor its children gain privileges from setuid files
  std::vector<int> cpus = {};      // CPU affinity; empty: the caller's
  std::vector<int> memory_nodes = {};  // NUMA nodes to allocate from; empty: the caller's
  bool memory_preferred = false;       // falls back to other nodes when those are full
  bool as_before = false;  // restores the umask and core limit from before MakeProcessPrivate()
  std::optional<mode_t> umask = {};     // nullopt: the caller's
  std::vector<SpawnLimit> limits = {};  // resource limits that differ from the caller's
};

// Why a process could not be started.
struct SpawnFailure {
  int error_number = 0;   // errno
  const char* step = "";  // "fork", "chdir", "execve", ...: static
};

struct SpawnResult {
  pid_t pid = -1;        // > 0 on success
  SpawnFailure failure;  // when pid is -1
};

// A start that takes longer than this (a hung network file system) fails with ETIMEDOUT.
inline constexpr milliseconds kSpawnTimeout{30'000};

// Starts the process with default signal dispositions, an empty signal mask and no descriptor above
// 2 except `pass_fds`. Resource limits and the umask are the caller's unless the spec changes them.
// Returns once execve has succeeded or failed, so the caller knows at once whether the program
// runs; kills the process after kSpawnTimeout. The caller reaps it; a failed process is left to the
// caller's reaper only after a timeout. Safe in a process with several threads. With
// parent_death_signal, the calling thread must outlive the child.
SpawnResult Spawn(const SpawnSpec& spec);

// Starts a process like Spawn(), for callers that wait for many at once: returns once the process
// exists, before execve. The caller always reaps the process, and ends it after kSpawnTimeout.
class Spawning {
 public:
  explicit Spawning(const SpawnSpec& spec);

  // -1 if there is no process; Result() then has the reason.
  pid_t pid() const { return pid_; }
  // Readable once Result() returns a value.
  int fd() const { return outcome_.get(); }
  // Returns the result without waiting, or nullopt before execve has succeeded or failed. After a
  // failed step the process exits by itself. A process killed before execve counts as started.
  std::optional<SpawnResult> Result();

 private:
  // Forks. Returns a result only if that failed.
  std::optional<SpawnResult> Begin(const SpawnSpec& spec);

  pid_t pid_ = -1;
  UniqueFd outcome_;
  std::optional<SpawnResult> result_;
};

}  // namespace dslaunch
