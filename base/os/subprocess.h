// Starts processes. No other code in dslaunch forks and executes a program.
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
// rendezvous node need a few descriptors for each node. Children get the old limit back, because
// some programs fail above 1024 (select). Repeated calls do nothing. Precondition: the process has
// one thread.
void RaiseOpenFileLimit();

// The limit of descriptors of this process, and the number of open descriptors.
struct OpenFiles {
  size_t limit = 0;  // soft limit; 0 if unknown
  size_t open = 0;
};
OpenFiles ReadOpenFiles();

// Sets umask 077 and disables core dumps. With SpawnSpec::as_before a child gets the previous umask
// and core limit. Precondition: the process has one thread.
void MakeProcessPrivate();

struct SpawnLimit {
  int resource = 0;  // number such as RLIMIT_NOFILE
  rlimit limit = {};
};

// A program to start, and its settings. Strings reach the program byte for byte; no shell is
// involved.
struct SpawnSpec {
  std::string executable = {};         // absolute path of the program
  std::vector<std::string> argv = {};  // arguments, including argv[0]
  std::vector<std::string> env = {};   // complete environment, as NAME=VALUE
  std::string cwd = {};                // empty for the caller's folder
  int stdin_fd = -1;                   // -1 for /dev/null; borrowed
  int stdout_fd = -1;                  // -1 for /dev/null; borrowed
  int stderr_fd = -1;                  // -1 for /dev/null; borrowed
  // Files that the child itself opens for appending instead of the descriptors above, so that a
  // slow disk blocks only the child. Paths are absolute; files are created with mode 0600.
  std::string stdout_file = {};
  std::string stderr_file = {};
  std::vector<int> pass_fds = {};  // descriptors above 2 that the child gets with the same numbers
  bool own_session = false;        // true for setsid(), which detaches the child from the terminal
  bool own_group = false;          // true for setpgid(0, 0), so that the group can be killed
  // Descriptor of the folder of a cgroup v2 to start in if the kernel allows it; -1 for the
  // caller's cgroup.
  int cgroup_fd = -1;
  // Signal for the child when the *thread* that spawned it ends; 0 for none.
  int parent_death_signal = 0;
  // Lets the caller and its descendants read the program's memory where Yama restricts that. The
  // program's children are not included.
  bool readable_by_parent = false;
  // True if the program and its children gain no privileges from setuid files.
  bool no_new_privileges = false;
  std::vector<int> cpus = {};          // CPU affinity; empty for the caller's
  std::vector<int> memory_nodes = {};  // NUMA nodes to allocate from; empty for the caller's
  bool memory_preferred = false;       // true to use other nodes when `memory_nodes` are full
  // True to restore the umask and core limit from before MakeProcessPrivate().
  bool as_before = false;
  std::optional<mode_t> umask = {};     // nullopt for the caller's
  std::vector<SpawnLimit> limits = {};  // resource limits that differ from the caller's
};

// The reason why a process could not be started.
struct SpawnFailure {
  int error_number = 0;   // errno of the failed call
  const char* step = "";  // static string, such as "fork", "chdir" or "execve"
};

struct SpawnResult {
  pid_t pid = -1;        // pid of the process; -1 on failure
  SpawnFailure failure;  // reason if pid is -1
};

// Limit for a start, after which it fails with ETIMEDOUT, as with a network file system that hangs.
inline constexpr milliseconds kSpawnTimeout{30'000};

// Starts the process with default signal dispositions, an empty signal mask and no descriptor above
// 2 except `pass_fds`. Resource limits and the umask are the caller's unless the spec changes them.
// Returns once execve has succeeded or failed, so the caller knows whether the program runs; kills
// the process after kSpawnTimeout. The caller reaps a started process. It must reap a failed
// process only after a timeout. Safe in a process with several threads. With parent_death_signal,
// the calling thread must outlive the child.
SpawnResult Spawn(const SpawnSpec& spec);

// Starts a process as Spawn() does, for callers that wait for many processes at once: returns once
// the process exists, before execve. The caller always reaps the process, and ends it after
// kSpawnTimeout.
class Spawning {
 public:
  explicit Spawning(const SpawnSpec& spec);

  // Returns the pid; -1 if there is no process. Result() then has the reason.
  pid_t pid() const { return pid_; }
  // Returns a descriptor that is readable once Result() returns a value.
  int fd() const { return outcome_.get(); }
  // Returns the result without waiting; nullopt before execve has succeeded or failed. After a
  // failed step the process exits by itself. A process killed before execve counts as started.
  std::optional<SpawnResult> Result();

 private:
  // Forks. Returns a result only if forking failed.
  std::optional<SpawnResult> Begin(const SpawnSpec& spec);

  pid_t pid_ = -1;
  UniqueFd outcome_;
  std::optional<SpawnResult> result_;
};

}  // namespace dslaunch
