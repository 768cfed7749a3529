// Starts processes. All code in dslaunch that executes a program uses this file.
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

// Returns the environment of this process, in the form of SpawnSpec::env.
std::vector<std::string> CurrentEnvironment();

// Returns the absolute path of a program: `name` itself if it contains a slash, otherwise the first
// match in PATH. Empty if there is no match. Skips relative and empty elements of PATH, so the
// current folder never decides which program runs.
std::string FindProgram(const std::string& name);

// Closes every descriptor that is `first` or higher. Async-signal-safe.
void CloseFrom(int first);

// Raises this process's soft limit of descriptors to the hard limit, because the front end and the
// rendezvous node need a few descriptors for each node. Some programs fail with descriptors above
// 1024 (select), so children get the old limit back. Repeated calls do nothing. Precondition: the
// process has one thread.
void RaiseOpenFileLimit();

// The limit of descriptors of this process and the number of open descriptors.
struct OpenFiles {
  size_t limit = 0;  // soft limit of descriptors; 0 if unknown
  size_t open = 0;
};
OpenFiles ReadOpenFiles();

// Sets umask 077 and disables core dumps. A child with SpawnSpec::as_before gets the previous umask
// and core limit. Precondition: the process has one thread.
void MakeProcessPrivate();

struct SpawnLimit {
  int resource = 0;  // resource to limit, such as RLIMIT_NOFILE
  rlimit limit = {};
};

// A program to start, and the settings of its process. The program gets all strings byte for byte;
// no shell is involved.
struct SpawnSpec {
  std::string executable = {};         // absolute path of the program to execute
  std::vector<std::string> argv = {};  // arguments of the program, including argv[0]
  std::vector<std::string> env = {};   // complete environment of the program, as NAME=VALUE
  std::string cwd = {};  // current folder of the program; empty for the caller's folder
  int stdin_fd = -1;     // stdin of the program, borrowed; -1 for /dev/null
  int stdout_fd = -1;    // stdout of the program, borrowed; -1 for /dev/null
  int stderr_fd = -1;    // stderr of the program, borrowed; -1 for /dev/null
  // Files that the child itself opens for appending, instead of stdout_fd and stderr_fd, so that a
  // slow disk blocks only the child. Paths are absolute; missing files are created with mode 0600.
  std::string stdout_file = {};
  std::string stderr_file = {};
  std::vector<int> pass_fds = {};  // descriptors above 2 that the child gets with the same numbers
  bool own_session = false;  // whether to call setsid(), which detaches the child from the terminal
  bool own_group = false;    // whether to call setpgid(0, 0), so that the group can be killed
  // Descriptor of the cgroup v2 folder in which to start, if the kernel allows it; -1 for the
  // caller's cgroup.
  int cgroup_fd = -1;
  // Signal that the child gets when the *thread* that spawned it ends; 0 for none.
  int parent_death_signal = 0;
  // Whether the caller and its descendants may read the program's memory where Yama restricts that.
  // Does not apply to the program's children.
  bool readable_by_parent = false;
  // Whether to prevent the program and its children from gaining privileges by setuid files.
  bool no_new_privileges = false;
  std::vector<int> cpus = {};          // CPU affinity; empty for the caller's affinity
  std::vector<int> memory_nodes = {};  // NUMA nodes for allocations; empty for the caller's nodes
  bool memory_preferred = false;  // whether other nodes may be used when `memory_nodes` are full
  // Whether to restore the umask and core limit from before MakeProcessPrivate().
  bool as_before = false;
  std::optional<mode_t> umask = {};     // umask of the program; nullopt for the caller's umask
  std::vector<SpawnLimit> limits = {};  // resource limits that differ from the caller's
};

// The reason why a process did not start.
struct SpawnFailure {
  int error_number = 0;   // errno of the system call that failed
  const char* step = "";  // static string, such as "fork", "chdir" or "execve"
};

struct SpawnResult {
  pid_t pid = -1;        // pid of the process; -1 on failure
  SpawnFailure failure;  // step and errno of the failure, if `pid` is -1
};

// Limit of the time until execve. A start that takes longer, as on a network file system that
// hangs, fails with ETIMEDOUT.
inline constexpr milliseconds kSpawnTimeout{30'000};

// Starts the process with default signal dispositions, an empty signal mask and no descriptor above
// 2 except `pass_fds`. Resource limits and the umask are the caller's unless the spec changes them.
// Returns once execve has succeeded or failed, so the caller learns whether the program runs; kills
// the process after kSpawnTimeout. The caller must reap a process that started, and also a process
// that failed because of the timeout. Safe in a process with several threads. With
// parent_death_signal, the calling thread must outlive the child.
SpawnResult Spawn(const SpawnSpec& spec);

// A process that is being started. Starts it as Spawn() does, for callers that wait for many
// processes at once: the constructor returns once the process exists, before execve. The caller
// always reaps the process, and kills it if kSpawnTimeout passes.
class Spawning {
 public:
  explicit Spawning(const SpawnSpec& spec);

  // Returns the pid; -1 if no process exists, for the reason that Result() returns.
  pid_t pid() const { return pid_; }
  // Returns a descriptor that poll() reports as readable once Result() returns a value.
  int fd() const { return outcome_.get(); }
  // Returns the result without waiting; nullopt until execve has succeeded or failed. After a
  // failed step the process exits by itself. A process that was killed before execve counts as
  // started.
  std::optional<SpawnResult> Result();

 private:
  // Forks the process. Returns a result only if forking failed.
  std::optional<SpawnResult> Begin(const SpawnSpec& spec);

  pid_t pid_ = -1;
  UniqueFd outcome_;
  std::optional<SpawnResult> result_;
};

}  // namespace dslaunch
