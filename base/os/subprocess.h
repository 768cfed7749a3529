// Starting one process: the one place in dslaunch that forks and executes.
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

// This process's environment, as SpawnSpec takes it.
std::vector<std::string> CurrentEnvironment();

// The absolute path of a program: `name` itself where it has a slash, else as PATH says; empty when
// there is none. Elements of PATH that are relative, or empty, are left out: nothing is run because
// of the folder that the user stands in.
std::string FindProgram(const std::string& name);

// Closes every descriptor from `first` on. Async-signal-safe.
void CloseFrom(int first);

// Raises this process's soft limit of descriptors to the hard one: the front end of many nodes, and
// the rendezvous' node, need a few for each. What is started from here gets the old limit back,
// since programs exist that break above 1024 (select). Before there are threads; again does
// nothing.
void RaiseOpenFileLimit();

// Descriptors of this process.
struct OpenFiles {
  size_t limit = 0;  // the soft one; 0: not known
  size_t open = 0;
};
OpenFiles ReadOpenFiles();

// Makes what this process writes private: its umask is 077, and it dumps no core. A child gets the
// umask and limit from before by SpawnSpec::as_before. Before there are threads.
void MakeProcessPrivate();

struct SpawnLimit {
  int resource = 0;  // RLIMIT_NOFILE ...
  rlimit limit = {};
};

// What to start and how. Every string reaches the program byte for byte; no shell is involved.
struct SpawnSpec {
  std::string executable = {};         // absolute path
  std::vector<std::string> argv = {};  // argv[0] included
  std::vector<std::string> env = {};   // NAME=VALUE; the complete environment
  std::string cwd = {};                // empty: the caller's
  int stdin_fd = -1;                   // -1: /dev/null; borrowed
  int stdout_fd = -1;                  // likewise
  int stderr_fd = -1;                  // likewise
  // In place of a descriptor: a file that the child itself opens to append, so that a slow disk
  // holds up only the child. Readable by its user alone. Absolute.
  std::string stdout_file = {};
  std::string stderr_file = {};
  std::vector<int> pass_fds = {};  // above 2: kept open in the child at their own numbers
  bool own_session = false;        // setsid(): out of the terminal's reach
  bool own_group = false;          // setpgid(0, 0): can be killed as a group
  int cgroup_fd = -1;  // folder of a cgroup v2 to start in if the kernel lets it; -1: the caller's
  int parent_death_signal = 0;         // sent to it when the *thread* that spawns it ends; 0: none
  bool no_new_privileges = false;      // neither it nor what it starts gains rights by setuid files
  std::vector<int> cpus = {};          // where it may run; empty: where the caller may
  std::vector<int> memory_nodes = {};  // where its memory comes from; empty: as the caller's
  bool memory_preferred = false;       // from elsewhere too, once those are full
  bool as_before = false;            // with the umask and core limit from before MakeProcessPrivate
  std::optional<mode_t> umask = {};  // else the caller's
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

// A start that takes longer (a hung network file system) is given up with ETIMEDOUT.
inline constexpr milliseconds kSpawnTimeout{30'000};

// Starts the process with default signal dispositions, an empty signal mask and no descriptor above
// 2 but `pass_fds`. Resource limits and the umask are the caller's unless the spec changes them.
// Returns once execve has succeeded or failed, so a program that cannot run is known at once; after
// kSpawnTimeout it is killed. The caller reaps. Safe in a process with several threads; with
// parent_death_signal call it from a thread that outlives the child. A zombie is left for the
// caller's reaper only after a time-out.
SpawnResult Spawn(const SpawnSpec& spec);

// The same for a caller that waits for many at once: returns once the process exists, which is not
// its program yet. The caller reaps it in any case, and ends it after kSpawnTimeout.
class Spawning {
 public:
  explicit Spawning(const SpawnSpec& spec);

  // -1: there is no process, and Result() says why.
  pid_t pid() const { return pid_; }
  // Readable once Result() has an answer.
  int fd() const { return outcome_.get(); }
  // Without waiting; nullopt: it starts still. After a failed step the process ends by itself. One
  // that was killed before execve counts as started.
  std::optional<SpawnResult> Result();

 private:
  // Forks; the result where that is the end of it.
  std::optional<SpawnResult> Begin(const SpawnSpec& spec);

  pid_t pid_ = -1;
  UniqueFd outcome_;
  std::optional<SpawnResult> result_;
};

}  // namespace dslaunch
