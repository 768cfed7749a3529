#include "dslaunch/spawn.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/os/child_watch.h"
#include "base/os/usable_cores.h"
#include "base/unique_fd.h"
#include "proto/contract/peer_failure.h"
#include "proto/contract/port_reservation.h"
#include "proto/contract/worker_env.h"
#include "trainer/base/log.h"
#include "trainer/base/train_error.h"
#include "trainer/sdk/rank_end.h"

namespace dslaunch {
namespace {

constexpr char kPlaceVariable[] = "DSLAUNCH_SPAWN";
constexpr milliseconds kLookAgain{60'000};  // interval between checks while all ranks run
constexpr milliseconds kGrace{5'000};
constexpr milliseconds kKillLimit{10'000};

// The rank that a process becomes. A program that is started again receives its place in
// kPlaceVariable.
struct Place {
  int call = 0;  // number, from 1, of the program's call of Spawn
  int rank = 0;
  int ranks = 0;
  int port = 0;
  int report_fd = -1;  // write end of the pipe to which the rank writes Reports
  int store_fd = -1;   // listening socket of rank 0; -1 on other ranks

  std::string ToText() const {
    std::string text;
    for (const int number : {call, rank, ranks, port, report_fd, store_fd})
      text += std::to_string(number) + " ";
    return text;
  }
  static Place FromText(const char* text) {
    Place place;
    if (std::sscanf(text, "%d %d %d %d %d %d", &place.call, &place.rank, &place.ranks, &place.port,
                    &place.report_fd, &place.store_fd) != 6) {
      throw TrainError(ExitCode::kUsage, std::string(kPlaceVariable) + " is '" + text +
                                             "'; only Spawn sets this variable: unset it");
    }
    return place;
  }
};

// A message from a rank to its parent process.
struct Report {
  enum class What : int { kReachedSpawn, kPeerFailed };
  int rank;
  What what;
};

bool Send(int fd, Report report) { return write(fd, &report, sizeof report) == sizeof report; }

TrainError SystemError(const std::string& what) {
  return {ExitCode::kUnavailable, "Spawn: " + what + ": " + std::strerror(errno)};
}

bool IsSingleThreaded() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) == 1;
}

// Returns the arguments of this program, including argv[0].
std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Sets up this process as the rank, runs fn, and exits. Uses _exit, so that exit handlers and
// static objects of the caller's main() do not run twice.
[[noreturn]] void RunRank(const Place& place, const std::function<void(int)>& fn) {
  WorkerEnv env;
  env.rank = env.local_rank = place.rank;
  env.world_size = env.local_world_size = place.ranks;
  env.master_addr = "127.0.0.1";
  env.master_port = place.port;
  env.socket_ifname = "lo";
  env.omp_num_threads = std::max(1, UsableCores() / place.ranks);
  env.job_id = "spawn-" + std::to_string(getppid());
  for (const auto& [name, value] : env.Required()) setenv(name.c_str(), value.c_str(), 1);
  for (const auto& [name, value] : env.Defaults()) setenv(name.c_str(), value.c_str(), 0);
  for (const char* of_parent : {kStoreFdVariable, kMemoryFdsVariable, kMemoryCheckpointVariable})
    unsetenv(of_parent);
  if (place.store_fd >= 0) {
    fcntl(place.store_fd, F_SETFD, FD_CLOEXEC);
    setenv(kStoreFdVariable, std::to_string(place.store_fd).c_str(), 1);
  }

  int code = 0;
  try {
    // OpenMP has read the variable before this process became a rank, so the number of threads is
    // set.
    if (const int threads = std::atoi(std::getenv("OMP_NUM_THREADS")); threads > 0)
      at::set_num_threads(threads);
    fn(place.rank);
  } catch (...) {
    const TrainError error = ExplainException();
    code = error.exit_code();
    if (ReportsPeerFailure(error.what()))
      Send(place.report_fd, {place.rank, Report::What::kPeerFailed});
    PrintError(std::string(program_invocation_short_name) + ": rank " + std::to_string(place.rank) +
               ": " + error.what());
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);
}

// Runs the rank, without returning, if Spawn has started this program again for this call. Returns
// if this is an earlier call.
void RunIfPlaced(const Place& place, int call, int ranks, const std::function<void(int)>& fn) {
  // The ranks of earlier calls ended successfully before this process was started, so such calls
  // have no effect.
  if (call < place.call) return;
  unsetenv(kPlaceVariable);
  // The name is "exe" after /proc/self/exe was executed, so the program's name is restored.
  prctl(PR_SET_NAME, program_invocation_short_name);
  fcntl(place.report_fd, F_SETFD, FD_CLOEXEC);
  if (ranks != place.ranks) {
    throw TrainError(ExitCode::kUsage, "Spawn is called for " + std::to_string(ranks) +
                                           " ranks here, but for " + std::to_string(place.ranks) +
                                           " in the parent process; both must reach the same "
                                           "Spawn call with the same arguments");
  }
  if (!Send(place.report_fd, {place.rank, Report::What::kReachedSpawn}))
    throw SystemError("reporting that rank " + std::to_string(place.rank) + " has started");
  RunRank(place, fn);
}

// The processes of one Spawn call. The destructor kills processes that still run.
class Ranks {
 public:
  Ranks(int call, int ranks)
      : call_(call),
        ranks_(ranks),
        reached_spawn_(static_cast<size_t>(ranks)),
        victims_(static_cast<size_t>(ranks)) {}
  ~Ranks() {
    Signal(SIGKILL);
    for (const Process& process : alive_) waitpid(process.pid, nullptr, 0);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void Start(const std::function<void(int)>& fn) {
    Result<PortReservation> port = ListenOnLoopback();
    if (!port) throw TrainError(port.error().code, "Spawn: " + port.error().message);
    port_ = std::move(*port);
    std::cout.flush();
    std::fflush(nullptr);  // otherwise each forked rank would write the buffered output too
    const bool fork_only = IsSingleThreaded();
    reached_spawn_.assign(reached_spawn_.size(), fork_only);
    OpenReportPipe();
    for (int rank = 0; rank < ranks_; ++rank) {
      const Place place{call_,
                        rank,
                        ranks_,
                        port_.port,
                        report_write_.get(),
                        rank == 0 ? port_.socket.get() : -1};
      const pid_t pid = fork_only ? Fork(place, fn) : StartAnew(place);
      if (pid < 0) throw SystemError("cannot start rank " + std::to_string(rank));
      alive_.push_back({pid, rank, ChildWatch(pid)});
    }
  }

  // Waits for all ranks and returns them in the order in which they end. As soon as one rank has
  // failed, the other ranks are stopped.
  std::vector<RankEnd> Wait() {
    int sent = 0;  // last signal that was sent; 0 before the first signal
    Deadline deadline = Deadline::After(kGrace);  // grace period, valid after a signal was sent
    while (!alive_.empty()) {
      std::vector<pollfd> polls;
      const Deadline until = sent == 0 ? Deadline::After(kLookAgain) : deadline;
      int wait_ms = until.PollMs();
      for (const Process& process : alive_) {
        polls.push_back({process.watch.fd(), POLLIN, 0});
        wait_ms = std::min(wait_ms, process.watch.PollMs(until));
      }
      if (poll(polls.data(), polls.size(), wait_ms) < 0 && errno != EINTR)
        throw SystemError("poll");
      CollectEnded(sent);
      if (sent == 0 && std::any_of(ends_.begin(), ends_.end(), Failed)) {
        sent = SIGTERM;
        deadline = Deadline::After(kGrace);
      } else if (sent == SIGTERM && deadline.Expired()) {
        sent = SIGKILL;
        deadline = Deadline::After(kKillLimit);
      } else if (sent == SIGKILL && deadline.Expired() && !alive_.empty()) {
        const int rank = alive_.front().rank;
        alive_.clear();
        throw TrainError(ExitCode::kTimedOut,
                         "rank " + std::to_string(rank) + " does not end after SIGKILL");
      } else {
        continue;
      }
      Signal(sent);
    }
    return std::move(ends_);
  }

 private:
  struct Process {
    pid_t pid;
    int rank;
    ChildWatch watch;
  };

  void OpenReportPipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) throw SystemError("pipe");
    report_read_.Reset(fds[0]);
    report_write_.Reset(fds[1]);
  }

  // Forks a rank. Returns the child's pid, or -1 with errno set if no process could be created.
  static pid_t Fork(const Place& place, const std::function<void(int)>& fn) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    DieWith(parent);
    RunRank(place, fn);
  }

  static pid_t StartAnew(const Place& place) {
    std::vector<std::string> arguments = OwnArguments(), variables;
    for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
    variables.push_back(std::string(kPlaceVariable) + "=" + place.ToText());
    const std::vector<char*> argv = Pointers(arguments), envp = Pointers(variables);
    const pid_t parent = getpid();
    const pid_t pid = _Fork();
    if (pid != 0) return pid;
    // Other threads may have held any lock when the process forked, so only async-signal-safe
    // functions may be called before exec.
    DieWith(parent);
    fcntl(place.report_fd, F_SETFD, 0);
    if (place.store_fd >= 0) fcntl(place.store_fd, F_SETFD, 0);
    execve("/proc/self/exe", argv.data(), envp.data());
    _exit(ToInt(ExitCode::kCannotExecute));
  }

  static void DieWith(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(ToInt(ExitCode::kUnavailable));  // the parent died before prctl
  }

  void CollectEnded(int sent) {
    for (const Process& process : alive_) {
      if (!process.watch.Ended()) continue;
      ReadReports();
      RankEnd end;
      end.rank = process.rank;
      if (waitpid(process.pid, &end.wait_status, 0) < 0)
        throw SystemError("how rank " + std::to_string(end.rank) + " ended (is SIGCHLD ignored?)");
      end.stopped = WIFSIGNALED(end.wait_status) && sent != 0 &&
                    (WTERMSIG(end.wait_status) == SIGTERM || WTERMSIG(end.wait_status) == sent);
      end.reached_spawn = reached_spawn_[static_cast<size_t>(end.rank)];
      end.victim = victims_[static_cast<size_t>(end.rank)];
      ends_.push_back(end);
    }
    std::erase_if(alive_, [this](const Process& process) {
      return std::any_of(ends_.begin(), ends_.end(),
                         [&](const RankEnd& end) { return end.rank == process.rank; });
    });
  }

  void Signal(int signal) const {
    // These processes have not been reaped, so their pids are still valid.
    for (const Process& process : alive_) kill(process.pid, signal);
  }

  // Reads all available reports. Ranks write their reports before they end, so the pipe contains
  // all reports of ranks that have ended.
  void ReadReports() {
    Report report;
    while (read(report_read_.get(), &report, sizeof report) == sizeof report) {
      std::vector<bool>& reported =
          report.what == Report::What::kReachedSpawn ? reached_spawn_ : victims_;
      reported[static_cast<size_t>(report.rank)] = true;
    }
  }

  const int call_;
  const int ranks_;
  // Rank 0 may use the port after other ranks try to connect, so the reservation is kept until the
  // end.
  PortReservation port_;
  UniqueFd report_read_, report_write_;
  std::vector<bool> reached_spawn_, victims_;  // indexed by rank
  std::vector<Process> alive_;
  std::vector<RankEnd> ends_;
};

}  // namespace

void Spawn(int ranks, const std::function<void(int rank)>& fn) {
  static int calls = 0;
  const int call = ++calls;
  if (ranks < 1)
    throw TrainError(ExitCode::kUsage, "Spawn: " + std::to_string(ranks) + " ranks; at least 1");
  for (const char* name : {"WORLD_SIZE", "RANK"}) {
    if (std::getenv(name) == nullptr) continue;
    throw TrainError(ExitCode::kUsage,
                     std::string("Spawn: this process is a rank already (") + name + "=" +
                         std::getenv(name) +
                         "); start the program without a launcher, or call the function itself "
                         "instead of Spawn");
  }
  if (const char* text = std::getenv(kPlaceVariable))
    return RunIfPlaced(Place::FromText(text), call, ranks, fn);
  Ranks processes(call, ranks);
  processes.Start(fn);
  const std::vector<RankEnd> ends = processes.Wait();
  if (std::any_of(ends.begin(), ends.end(), Failed)) throw SpawnError(ends);
}

}  // namespace dslaunch
