#include "base/os/subprocess.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace dslaunch {
namespace {

constexpr int kFirstFreeFd = 3;

// A step of the start that can fail. The child writes the failed step to the error pipe.
enum Step : int {
  kSetsid,
  kSetpgid,
  kDeathSignal,
  kNoNewPrivileges,
  kCpus,
  kMemory,
  kStdoutFile,
  kStderrFile,
  kChdir,
  kDup2,
  kPassFd,
  kOpenFiles,
  kLimits,
  kMask,
  kExecve
};
constexpr const char* kStepNames[] = {"setsid",
                                      "setpgid",
                                      "prctl(PR_SET_PDEATHSIG)",
                                      "prctl(PR_SET_NO_NEW_PRIVS)",
                                      "bind to CPUs",
                                      "bind to memory",
                                      "open stdout file",
                                      "open stderr file",
                                      "chdir",
                                      "dup2",
                                      "keep descriptor open",
                                      "setrlimit(RLIMIT_NOFILE)",
                                      "setrlimit",
                                      "sigprocmask",
                                      "execve"};
struct ChildError {
  int error_number;
  int step;
};

// A set of small numbers as the bit mask that system calls expect.
class BitMask {
 public:
  explicit BitMask(const std::vector<int>& numbers) {
    for (const int number : numbers) {
      const auto bit = static_cast<size_t>(number);
      if (words_.size() <= bit / kWordBits) words_.resize(bit / kWordBits + 1);
      words_[bit / kWordBits] |= 1UL << (bit % kWordBits);
    }
  }

  const unsigned long* words() const { return words_.data(); }
  // Returns the size of the mask in bytes; 0 if the set is empty.
  size_t bytes() const { return words_.size() * sizeof(unsigned long); }
  size_t bits() const { return words_.size() * kWordBits; }

 private:
  static constexpr size_t kWordBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> words_;
};

// The data that the child needs. The child must not allocate memory, so the data is prepared before
// the fork.
struct ChildPlan {
  const char* executable;
  char* const* argv;
  char* const* envp;
  const char* cwd;          // nullptr for the caller's current folder
  int stdio[3];             // descriptors for stdin, stdout and stderr, all above 2
  const char* stdout_file;  // path that replaces stdio[1]; nullptr to use stdio[1]
  const char* stderr_file;
  const std::vector<int>& pass_fds;
  const std::vector<int>& kept_fds;  // descriptors to keep open (pass_fds and error_fd), ascending
  int error_fd;
  int max_fd;                // highest open descriptor, for kernels without close_range
  const rlimit* open_files;  // nullptr to keep the caller's limit
  const std::vector<SpawnLimit>& limits;
  std::optional<mode_t> umask;  // nullopt to keep the caller's umask
  int parent_death_signal;
  bool readable_by_parent;
  bool no_new_privileges;
  bool own_session;
  bool own_group;
  pid_t parent;
  const BitMask& cpus;
  const BitMask& memory_nodes;
  int memory_mode;
};

[[noreturn]] void Fail(const ChildPlan& plan, Step step) {
  const ChildError error{errno, step};
  ssize_t written = 0;
  do {
    written = write(plan.error_fd, &error, sizeof error);
  } while (written < 0 && errno == EINTR);
  _exit(127);
}

void CloseSpan(unsigned first, unsigned last, int max_fd) {
  if (first > last || close_range(first, last, 0) == 0) return;
  for (int fd = static_cast<int>(first); fd <= max_fd && static_cast<unsigned>(fd) <= last; ++fd) {
    close(fd);
  }
}

// Closes all descriptors above 2, except the descriptors in the ascending `kept`.
void CloseAllBut(const std::vector<int>& kept, int max_fd) {
  unsigned next = kFirstFreeFd;
  for (const int keep : kept) {
    CloseSpan(next, static_cast<unsigned>(keep) - 1, max_fd);
    next = static_cast<unsigned>(keep) + 1;
  }
  CloseSpan(next, ~0u, max_fd);
}

// Opens a log file on a descriptor above 2, so that dup2() does not overwrite the descriptor.
// Opening may block, for example on a FIFO. Exits on failure.
int OpenLog(const ChildPlan& plan, const char* path, Step step) {
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NOCTTY, 0600);
  if (fd < 0) Fail(plan, step);
  if (fd >= kFirstFreeFd) return fd;
  const int above = fcntl(fd, F_DUPFD, kFirstFreeFd);
  if (above < 0) Fail(plan, step);
  return above;
}

// Sets up the child and executes the program. Runs between fork and execve with all signals
// blocked, so it makes only async-signal-safe calls.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  // The C library's function takes a lock for SIGABRT (glibc 2.41) that another thread may hold at
  // the fork, so the raw system call is used. Zeros stand for SIG_DFL.
  constexpr size_t kSignalSetBytes = 8;
  const uint64_t default_action[8] = {};
  for (int signal = 1; signal < NSIG; ++signal)
    syscall(SYS_rt_sigaction, signal, default_action, nullptr, kSignalSetBytes);

  if (plan.own_session) {
    if (setsid() < 0) Fail(plan, kSetsid);
  } else if (plan.own_group && setpgid(0, 0) < 0) {
    Fail(plan, kSetpgid);
  }
  if (plan.parent_death_signal != 0) {
    if (prctl(PR_SET_PDEATHSIG, plan.parent_death_signal) < 0) Fail(plan, kDeathSignal);
    if (getppid() != plan.parent) _exit(127);  // the parent has exited before the call of prctl()
  }
  // Without Yama, reading memory is not restricted and this call fails, so failure is ignored.
  if (plan.readable_by_parent) prctl(PR_SET_PTRACER, plan.parent, 0, 0, 0);
  if (plan.no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    Fail(plan, kNoNewPrivileges);
  if (plan.cpus.bytes() > 0 &&
      syscall(SYS_sched_setaffinity, 0, plan.cpus.bytes(), plan.cpus.words()) < 0) {
    Fail(plan, kCpus);
  }
  // The kernel uses one bit less than `maxnode`, so one bit is added.
  if (plan.memory_nodes.bytes() > 0 &&
      syscall(SYS_set_mempolicy, plan.memory_mode, plan.memory_nodes.words(),
              plan.memory_nodes.bits() + 1) < 0) {
    Fail(plan, kMemory);
  }
  int stdio[3] = {plan.stdio[0], plan.stdio[1], plan.stdio[2]};
  if (plan.stdout_file != nullptr) stdio[1] = OpenLog(plan, plan.stdout_file, kStdoutFile);
  if (plan.stderr_file != nullptr) stdio[2] = OpenLog(plan, plan.stderr_file, kStderrFile);
  if (plan.cwd != nullptr && chdir(plan.cwd) < 0) Fail(plan, kChdir);
  for (int fd = 0; fd < kFirstFreeFd; ++fd) {
    if (dup2(stdio[fd], fd) < 0) Fail(plan, kDup2);
  }
  for (const int fd : plan.pass_fds) {
    if (fcntl(fd, F_SETFD, 0) < 0) Fail(plan, kPassFd);
  }
  CloseAllBut(plan.kept_fds, plan.max_fd);
  if (plan.open_files != nullptr && setrlimit(RLIMIT_NOFILE, plan.open_files) < 0)
    Fail(plan, kOpenFiles);
  if (plan.umask) umask(*plan.umask);
  for (const SpawnLimit& one : plan.limits) {
    if (setrlimit(static_cast<__rlimit_resource_t>(one.resource), &one.limit) < 0)
      Fail(plan, kLimits);
  }

  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, nullptr) < 0) Fail(plan, kMask);
  execve(plan.executable, plan.argv, plan.envp);
  Fail(plan, kExecve);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

const char* PathOrNull(const std::string& path) { return path.empty() ? nullptr : path.c_str(); }

SpawnResult Failed(int error_number, const char* step) { return {-1, {error_number, step}}; }

// Descriptors for the child's stdin, stdout and stderr. All are above 2, so that dup2() onto 0-2
// cannot overwrite a descriptor that is still needed.
struct StdioSources {
  UniqueFd dev_null;
  UniqueFd failed_over[3];
  int fds[3] = {-1, -1, -1};

  bool Prepare(const SpawnSpec& spec) {
    const int wanted[3] = {spec.stdin_fd, spec.stdout_fd, spec.stderr_fd};
    for (int i = 0; i < 3; ++i) {
      int source = wanted[i];
      if (source < 0) {
        if (!dev_null.valid()) dev_null.Reset(open("/dev/null", O_RDWR | O_CLOEXEC));
        source = dev_null.get();
        if (source < 0) return false;
      }
      if (source < kFirstFreeFd) {
        failed_over[i].Reset(fcntl(source, F_DUPFD_CLOEXEC, kFirstFreeFd));
        source = failed_over[i].get();
        if (source < 0) return false;
      }
      fds[i] = source;
    }
    return true;
  }
};

bool OpenErrorPipe(UniqueFd& read_end, UniqueFd& write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) < 0) return false;
  read_end.Reset(fds[0]);
  write_end.Reset(fds[1]);
  if (write_end.get() >= kFirstFreeFd) return true;
  write_end.Reset(fcntl(write_end.get(), F_DUPFD_CLOEXEC, kFirstFreeFd));
  return write_end.valid();
}

// Returns the highest open descriptor on kernels without close_range (before 5.9); 0 on other
// kernels. Closing all numbers up to the limit instead could take a million calls.
int MaxFd() {
  // The call succeeds only if the kernel has close_range, so the result is then 0.
  if (close_range(~0u, ~0u, 0) == 0) return 0;
  int highest = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    highest = std::max(highest, std::atoi(entry->path().filename().c_str()));
  }
  if (highest > 0) return highest;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

// Limit before RaiseOpenFileLimit(), which is restored in children; nullopt if the limit was not
// raised.
std::optional<rlimit> open_files_before_raise;

// Umask and core limit before MakeProcessPrivate(); nullopt if that was not called.
struct BeforePrivate {
  mode_t umask = 0;
  rlimit core = {};
};
std::optional<BeforePrivate> before_private;

// Returns the limits that the child sets: first the limits to restore, then the limits of the spec.
std::vector<SpawnLimit> LimitsOf(const SpawnSpec& spec) {
  std::vector<SpawnLimit> limits;
  if (spec.as_before && before_private) limits.push_back({RLIMIT_CORE, before_private->core});
  limits.insert(limits.end(), spec.limits.begin(), spec.limits.end());
  return limits;
}

std::optional<mode_t> UmaskOf(const SpawnSpec& spec) {
  if (spec.umask || !spec.as_before || !before_private) return spec.umask;
  return before_private->umask;
}

// Forks without running the fork handlers of libraries, because the child calls none of these
// libraries. Starts the child in its cgroup, because moving it later waits for the whole kernel (16
// ms). If the kernel cannot do that (before 5.7) or refuses, the child starts in the caller's
// cgroup.
pid_t Fork(int cgroup_fd) {
  if (cgroup_fd >= 0) {
    clone_args args = {};
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<uint64_t>(cgroup_fd);
    const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof args));
    if (pid >= 0) return pid;
  }
  return _Fork();
}

bool IsProgram(const std::string& path) {
  std::error_code ignored;
  return ::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, ignored);
}

}  // namespace

void RaiseOpenFileLimit() {
  rlimit limit = {};
  if (open_files_before_raise || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) open_files_before_raise = limit;
}

OpenFiles ReadOpenFiles() {
  OpenFiles files;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) files.limit = limit.rlim_cur;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++files.open;
  }
  if (files.open > 0) --files.open;  // does not count the descriptor of this directory listing
  return files;
}

void MakeProcessPrivate() {
  if (before_private) return;
  BeforePrivate before;
  before.umask = umask(077);
  getrlimit(RLIMIT_CORE, &before.core);
  const rlimit no_core = {0, before.core.rlim_max};
  setrlimit(RLIMIT_CORE, &no_core);
  before_private = before;
}

std::string FindProgram(const std::string& name) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    return IsProgram(name) ? std::filesystem::absolute(name, ignored).string() : "";
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!name.empty()) {
    const size_t colon = rest.find(':');
    const std::filesystem::path folder(rest.substr(0, colon));
    const std::string candidate = (folder / name).string();
    if (folder.is_absolute() && IsProgram(candidate)) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return "";
}

void CloseFrom(int first) { CloseSpan(static_cast<unsigned>(first), ~0u, MaxFd()); }

std::vector<std::string> CurrentEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

Spawning::Spawning(const SpawnSpec& spec) : result_(Begin(spec)) {}

std::optional<SpawnResult> Spawning::Begin(const SpawnSpec& spec) {
  for (const int fd : spec.pass_fds) {
    if (fd < kFirstFreeFd) return Failed(EINVAL, kStepNames[kPassFd]);
  }
  const std::vector<char*> argv = Pointers(spec.argv);
  const std::vector<char*> envp = Pointers(spec.env);
  StdioSources stdio;
  if (!stdio.Prepare(spec)) return Failed(errno, "open standard descriptors");
  UniqueFd error_write;
  if (!OpenErrorPipe(outcome_, error_write)) return Failed(errno, "pipe");
  std::vector<int> kept_fds = spec.pass_fds;
  kept_fds.push_back(error_write.get());
  std::ranges::sort(kept_fds);
  const BitMask cpus(spec.cpus);
  const BitMask memory_nodes(spec.memory_nodes);
  const std::vector<SpawnLimit> limits = LimitsOf(spec);
  const ChildPlan plan = {
      .executable = spec.executable.c_str(),
      .argv = argv.data(),
      .envp = envp.data(),
      .cwd = PathOrNull(spec.cwd),
      .stdio = {stdio.fds[0], stdio.fds[1], stdio.fds[2]},
      .stdout_file = PathOrNull(spec.stdout_file),
      .stderr_file = PathOrNull(spec.stderr_file),
      .pass_fds = spec.pass_fds,
      .kept_fds = kept_fds,
      .error_fd = error_write.get(),
      .max_fd = MaxFd(),
      .open_files = open_files_before_raise ? &*open_files_before_raise : nullptr,
      .limits = limits,
      .umask = UmaskOf(spec),
      .parent_death_signal = spec.parent_death_signal,
      .readable_by_parent = spec.readable_by_parent,
      .no_new_privileges = spec.no_new_privileges,
      .own_session = spec.own_session,
      .own_group = spec.own_group,
      .parent = getpid(),
      .cpus = cpus,
      .memory_nodes = memory_nodes,
      .memory_mode = spec.memory_preferred ? MPOL_PREFERRED : MPOL_BIND,
  };

  // A handler of this process must not run in the child, so signals are blocked until the child has
  // reset its dispositions.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = Fork(spec.cgroup_fd);
  if (pid_ == 0) RunChild(plan);
  const int fork_errno = errno;
  // The caller may kill the group as soon as this function returns, so parent and child both set
  // the group.
  if (pid_ > 0 && spec.own_group && !spec.own_session) setpgid(pid_, pid_);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) return Failed(fork_errno, "fork");
  return std::nullopt;
}

std::optional<SpawnResult> Spawning::Result() {
  if (result_) return result_;
  pollfd ready = {outcome_.get(), POLLIN, 0};
  if (poll(&ready, 1, 0) <= 0) return std::nullopt;
  ChildError error = {};
  const ssize_t got = read(outcome_.get(), &error, sizeof error);
  if (got < 0 && errno == EINTR) return std::nullopt;
  result_ = got == static_cast<ssize_t>(sizeof error)
                ? Failed(error.error_number, kStepNames[error.step])
                : SpawnResult{pid_, {}};
  return result_;
}

SpawnResult Spawn(const SpawnSpec& spec) {
  Spawning spawning(spec);
  const Deadline deadline = Deadline::After(kSpawnTimeout);
  while (!deadline.Expired()) {
    const std::optional<SpawnResult> result = spawning.Result();
    if (!result) {
      pollfd ready = {spawning.fd(), POLLIN, 0};
      poll(&ready, 1, deadline.PollMs());
      continue;
    }
    if (result->pid < 0 && spawning.pid() > 0) {
      while (waitpid(spawning.pid(), nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    return *result;
  }
  kill(spawning.pid(), SIGKILL);
  return Failed(ETIMEDOUT, kStepNames[kExecve]);
}

}  // namespace dslaunch
