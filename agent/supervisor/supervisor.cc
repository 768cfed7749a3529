#include "agent/supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "agent/supervisor/cgroup.h"
#include "agent/supervisor/front_end_link.h"
#include "agent/supervisor/left_process.h"
#include "agent/supervisor/rank_looks.h"
#include "agent/supervisor/serving_process.h"
#include "agent/supervisor/supervisor_core.h"
#include "agent/supervisor/supervisor_pump.h"
#include "agent/supervisor/supervisor_workers.h"
#include "agent/supervisor/watchdog.h"
#include "base/exit_code.h"
#include "base/os/build_id.h"
#include "base/os/process_tree.h"
#include "base/os/socket_pair.h"
#include "base/os/subprocess.h"
#include "base/unique_fd.h"
#include "proto/supervisor.pb.h"
#include "proto/wire/framed_socket.h"

namespace dslaunch {
namespace {

// Limit for writing the hello line. A front end that does not read the line has failed.
constexpr milliseconds kHelloLimit{10'000};
constexpr std::array kHandledSignals = {SIGCHLD, SIGTERM, SIGINT,  SIGHUP,
                                        SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2};
constexpr size_t kStatusQueueBytes = 1 << 20;  // limit of the queue to which Forward() adds

void LogLine(const std::string& text) {
  char host[256] = "?";
  gethostname(host, sizeof host - 1);
  std::fprintf(stderr, "dslaunch-agent on %s: %s\n", host, text.c_str());
}

// The descriptors between the front end, the supervisor and its agent.
struct Streams {
  UniqueFd front_end_in;
  UniqueFd front_end_out;
  UniqueFd grpc;
  UniqueFd control;
  UniqueFd sockets;
  std::optional<ResumePlace> resume;  // nullopt if the stream ends with its connection
  // The front end's end of the link, if the stream can be resumed. front_end_in and front_end_out
  // are then duplicates of the other end of this socket.
  UniqueFd link_local;
  UniqueFd connection_in;
  UniqueFd connection_out;
};

// Carries out the actions of SupervisorCore. Owns the processes, the descriptors and the only
// timer.
class Supervisor {
 public:
  Supervisor(pid_t agent_pid, bool in_step, Streams streams, Watchdog watchdog)
      : agent_pid_(agent_pid),
        watchdog_(std::move(watchdog)),
        inbound_(io_, std::move(streams.front_end_in), DuplicateFd(streams.grpc.get())),
        outbound_(io_, std::move(streams.grpc), std::move(streams.front_end_out)),
        workers_(io_, std::move(streams.sockets),
                 {.on_status = [this](const pb::SupervisorEvent& status) { Forward(status); },
                  .on_start = [this](uint32_t local_rank,
                                     const SpawnResult& result) { OnStart(local_rank, result); }}),
        core_({.agent_pid = agent_pid, .in_step = in_step}) {
    control_ = std::make_unique<FramedSocket>(
        io_, std::move(streams.control), [this](std::string_view bytes) { OnRequest(bytes); },
        [this](const std::string&) { CarryOut(core_.OnControlLost(Clock::now())); });
    looks_ = std::make_unique<RankLooks>(io_, [this](const pb::SupervisorEvent& looked) {
      if (control_) control_->Send(looked);
    });
    if (!streams.resume) return;
    link_ = std::make_unique<FrontEndLink>(
        io_, std::move(streams.link_local), *std::move(streams.resume),
        FrontEndLink::Handlers{
            .on_broken = [this] { CarryOut(core_.OnConnectionBroken(Clock::now())); },
            .on_resumed = [this] { CarryOut(core_.OnConnectionResumed()); },
            .on_all_sent = [this] { CarryOut(core_.OnOutboundEnded(Clock::now())); }});
    link_->Start(std::move(streams.connection_in), std::move(streams.connection_out));
  }

  // Runs until the core finishes, and returns the exit code. `unblocked` is the signal mask to run
  // with. Precondition: the handled signals are blocked.
  int Run(const sigset_t& unblocked) {
    for (const int signal : kHandledSignals) signals_.add(signal);
    AwaitSignal();
    sigprocmask(SIG_SETMASK, &unblocked, nullptr);
    inbound_.Start([this](SupervisorPump::Event event) {
      if (event == SupervisorPump::Event::kSourceEnded)
        CarryOut(core_.OnFrontEndGone(Clock::now()));
    });
    outbound_.Start([this](SupervisorPump::Event event) {
      if (event == SupervisorPump::Event::kSinkFailed)
        CarryOut(core_.OnFrontEndGone(Clock::now()));
      else if (!link_)  // a link first has to send the data that it has received
        CarryOut(core_.OnOutboundEnded(Clock::now()));
    });
    io_.run();
    watchdog_.End();
    DropCgroup();
    if (!end_.line.empty()) LogLine(end_.line);
    return end_.exit_code;
  }

 private:
  // --- Events for the core ---

  void AwaitSignal() {
    signals_.async_wait([this](std::error_code error, int signal) {
      if (error) return;
      AwaitSignal();
      if (signal == SIGCHLD) return Reap();
      CarryOut(core_.OnSignal(signal, Clock::now()));
    });
  }

  void OnRequest(std::string_view bytes) {
    pb::SupervisorRequest request;
    if (request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      if (request.has_look())
        looks_->Begin(request.look(), workers_.PidOf(request.look().local_rank()));
      if (request.has_signal() || request.has_stop()) looks_->FinishQueued();
      return CarryOut(core_.OnRequest(std::move(request), Clock::now()));
    }
    control_.reset();
    CarryOut(core_.OnControlLost(Clock::now()));
  }

  void OnStart(uint32_t local_rank, const SpawnResult& result) {
    CarryOut(result.pid > 0 ? core_.workers().OnStarted(local_rank, result.pid)
                            : core_.workers().OnStartFailed(local_rank, result.failure));
  }

  void Reap() {
    while (true) {
      siginfo_t child = {};
      const int status = waitid(P_ALL, 0, &child, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
      if (status != 0 || child.si_pid == 0) break;
      const bool killed = child.si_code == CLD_KILLED || child.si_code == CLD_DUMPED;
      const bool ended = killed || child.si_code == CLD_EXITED;
      if (child.si_pid == watchdog_.pid()) {
        if (ended) watchdog_.Reaped();
      } else if (child.si_pid != agent_pid_ || agent_ended_) {
        if (const auto change = workers_.OnChild(child))
          CarryOut(core_.workers().OnChange(change->local_rank, change->change));
      } else if (ended) {
        agent_ended_ = true;
        CarryOut(core_.OnAgentEnd({child.si_status, killed}));
      }
    }
    CarryOut(core_.OnReaped(Clock::now()));
  }

  // --- Actions of the core ---

  void CarryOut(SupervisorActions actions) {
    for (SupervisorAction& action : actions)
      std::visit([this](auto& what) { Do(what); }, action.what);
    const std::optional<Clock::time_point> wake = core_.wake();
    if (wake == armed_for_) return;
    armed_for_ = wake;
    if (!wake) {
      timer_.cancel();
      return;
    }
    timer_.expires_at(*wake);
    timer_.async_wait([this](std::error_code error) {
      if (error) return;
      armed_for_.reset();
      CarryOut(core_.OnTime(Clock::now()));
    });
  }

  void Do(const supervisor_action::SendToAgent& send) {
    if (send.event.has_stopped())
      Forward(send.event);
    else if (control_)
      control_->Send(send.event);
  }

  void Do(const supervisor_action::MakeCgroup& make) {
    const Result<std::string> cgroup = CreateWorkerCgroup(make.job_id);
    if (cgroup) {
      cgroup_ = *cgroup;
      workers_.StartIn(cgroup_);
    }
    CarryOut(core_.workers().OnCgroup(cgroup));
  }

  void Do(const supervisor_action::StartWatchdog& start) {
    watchdog_.Start({.job_id = start.job_id, .session = session_, .cgroup = cgroup_},
                    start.graceful_kill);
  }

  void Do(const supervisor_action::StartWorker& start) {
    const SpawnResult begun = workers_.Start(start.spec, *start.shared);
    if (begun.pid <= 0) return OnStart(start.spec.local_rank(), begun);
    watchdog_.AddGroup(begun.pid);
  }

  void Do(const supervisor_action::SignalWorkers& send) {
    workers_.Signal(send.signal, send.local_rank);
  }

  void Do(const supervisor_action::CountLeft&) {
    Reap();
    CarryOut(core_.OnLeft(CountLeft(), Clock::now()));
  }

  void Do(const supervisor_action::SignalLeft& send) {
    SignalLeft(std::array{send.signal, SIGCONT}, send.targets);
  }

  void Do(const supervisor_action::KillLeft& kill) {
    if (!cgroup_.empty() && kill.targets == KillTargets::kAll) KillCgroup(cgroup_);
    SignalLeft(std::array{SIGKILL}, kill.targets);
  }

  void Do(const supervisor_action::ListLeft&) {
    CarryOut(core_.OnLeftListed(DescribeLeft(All()), Clock::now()));
  }

  void Do(const supervisor_action::ForgetWorkers&) {
    DropCgroup();
    workers_.ForgetGroups();
    watchdog_.ForgetGroups();
  }

  void Do(const supervisor_action::CloseInbound&) { inbound_.CloseSink(); }

  void Do(const supervisor_action::RefuseFrontEnd&) {
    if (link_) link_->Close();
  }

  void Do(const supervisor_action::KillAgent&) {
    // The agent is not reaped yet, so the pid is still valid.
    if (!agent_ended_) kill(agent_pid_, SIGKILL);
  }

  void Do(const supervisor_action::Print& print) { LogLine(print.line); }

  void Do(const supervisor_action::Finish& end) {
    end_ = end;
    io_.stop();
  }

  // Sends an event that a rank can cause at any rate: a status line, or that the rank was stopped
  // or continued. Drops the event if the agent is far behind, so that the queue stays bounded.
  void Forward(const pb::SupervisorEvent& event) {
    if (control_ && control_->queued_bytes() <= kStatusQueueBytes) control_->Send(event);
  }

  void DropCgroup() {
    if (cgroup_.empty()) return;
    RemoveCgroup(cgroup_);
    cgroup_.clear();
  }

  // --- Processes that remain in a graceful kill ---

  // Returns the children that are neither workers nor processes that workers have started.
  std::vector<pid_t> Companions() const {
    std::vector<pid_t> pids = {watchdog_.pid()};
    if (!agent_ended_) pids.push_back(agent_pid_);
    return pids;
  }

  LeftCount CountLeft() const {
    // This process is a sub-reaper, so orphans become its children, and without children it has no
    // descendants.
    std::vector<pid_t> children = OwnChildren();
    for (const pid_t companion : Companions()) std::erase(children, companion);
    LeftCount left;
    std::vector<pid_t> apart;
    for (const pid_t child : children) {
      const std::optional<ProcessInfo> info = ReadProcess(child);
      info && !IsOfRanks(*info) ? apart.push_back(child) : void(++left.ranks);
    }
    if (children.empty() && !cgroup_.empty()) {
      for (const ProcessInfo& info : CgroupProcesses(cgroup_))
        IsOfRanks(info) ? void(++left.ranks) : apart.push_back(info.id.pid);
    }
    left.apart = apart.size();
    left.serves = left.ranks == 0 && std::ranges::any_of(apart, Serves);
    return left;
  }

  bool IsOfRanks(const ProcessInfo& info) const {
    return ::dslaunch::IsOfRanks(info, session_, workers_.groups());
  }

  // Returns all processes that must end: the descendants, and other processes in the workers'
  // cgroup.
  std::vector<ProcessInfo> All() const {
    std::vector<ProcessInfo> all = Descendants(getpid(), Companions());
    if (cgroup_.empty()) return all;
    for (const ProcessInfo& info : CgroupProcesses(cgroup_)) {
      if (std::ranges::find(all, info.id, &ProcessInfo::id) == all.end()) all.push_back(info);
    }
    return all;
  }

  // Sends each signal once to each process. No fork escapes a signal to a process group, so the
  // members of workers' groups get the signal through their group, and other processes directly.
  // Processes may leave their group or be forked meanwhile, as by setsid(1), so the search is
  // repeated. kMostLooks bounds the search for programs that never stop forking.
  void SignalLeft(std::span<const int> signals, KillTargets targets) {
    constexpr int kMostLooks = 5;
    std::vector<pid_t> groups;
    std::vector<ProcessId> alone;
    for (int look = 0; look < kMostLooks; ++look) {
      const size_t groups_before = groups.size();
      const size_t alone_before = alone.size();
      for (const ProcessInfo& info : All()) {
        if (targets == KillTargets::kRanks && !IsOfRanks(info)) continue;
        if (std::ranges::find(workers_.groups(), info.group) != workers_.groups().end()) {
          if (std::ranges::find(groups, info.group) == groups.end()) groups.push_back(info.group);
        } else if (std::ranges::find(alone, info.id) == alone.end()) {
          alone.push_back(info.id);
        }
      }
      for (const int signal : signals) {
        for (size_t i = alone_before; i < alone.size(); ++i) SignalProcess(alone[i], signal);
        for (size_t i = groups_before; i < groups.size(); ++i) kill(-groups[i], signal);
      }
      if (groups.size() == groups_before && alone.size() == alone_before) return;
    }
  }

  asio::io_context io_{1};
  asio::signal_set signals_{io_};
  asio::steady_timer timer_{io_};
  std::optional<Clock::time_point> armed_for_;

  const pid_t agent_pid_;
  const pid_t session_ = getsid(0);
  bool agent_ended_ = false;  // whether the agent was reaped
  Watchdog watchdog_;
  SupervisorPump inbound_;   // pump from the front end to the agent
  SupervisorPump outbound_;  // pump from the agent to the front end
  // Link between the pumps and the front end; nullptr if the pumps use stdin and stdout directly.
  std::unique_ptr<FrontEndLink> link_;
  SupervisorWorkers workers_;
  std::string cgroup_;  // folder of the workers' cgroup; empty if there is none
  std::unique_ptr<FramedSocket> control_;
  std::unique_ptr<RankLooks> looks_;
  SupervisorCore core_;
  supervisor_action::Finish end_;
};

// Opens the descriptors 0 to 2 if they are missing. Otherwise the next socket would get one of
// these numbers, and printing would corrupt the socket's data.
void OpenStandardFds() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Duplicates stdin and stdout and replaces them by /dev/null, so that closing the duplicates really
// closes them, and no output is printed into them. Returns false on failure.
bool TakeStdio(Streams& streams) {
  streams.front_end_in = DuplicateFd(STDIN_FILENO);
  streams.front_end_out = DuplicateFd(STDOUT_FILENO);
  const UniqueFd dev_null(open("/dev/null", O_RDWR | O_CLOEXEC));
  return streams.front_end_in.valid() && streams.front_end_out.valid() &&
         dup2(dev_null.get(), STDIN_FILENO) >= 0 && dup2(dev_null.get(), STDOUT_FILENO) >= 0;
}

bool WriteAll(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty() && !deadline.Expired()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd poll_fd = {fd, POLLOUT, 0};
      poll(&poll_fd, 1, deadline.PollMs());
    } else if (errno != EINTR) {
      return false;
    }
  }
  return bytes.empty();
}

bool OpenStream(UniqueFd& ours, UniqueFd& agents) {
  Result<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return false;
  ours = std::move(pair->ours);
  agents = std::move(pair->theirs);
  return true;
}

// Inserts the supervisor's link between its pumps and stdin and stdout. Returns false on failure.
bool MakeResumable(Streams& streams) {
  Result<ResumePlace> place = OpenResumePlace();
  UniqueFd pumps;
  if (!place.ok() || !OpenStream(pumps, streams.link_local)) return false;
  streams.resume = *std::move(place);
  streams.connection_in = std::move(streams.front_end_in);
  streams.connection_out = std::move(streams.front_end_out);
  streams.front_end_in = DuplicateFd(pumps.get());
  streams.front_end_out = std::move(pumps);
  return streams.front_end_in.valid();
}

void ChangeProcess() {
  MakeProcessPrivate();
  // The memory of supervisor and agent contains keys of the job, and ranks run as the same user, so
  // the memory is made unreadable. A worker becomes readable again when it executes its program.
  prctl(PR_SET_DUMPABLE, 0);
  // A rendezvous needs several descriptors per node, so the limit is raised, and the agent inherits
  // it.
  RaiseOpenFileLimit();
  std::signal(SIGPIPE, SIG_IGN);
  setsid();  // fails if this process already leads a session or a group
}

// Lets the agent survive signals that Slurm sends to all processes of a step. Programs of the agent
// would inherit ignored signals, so handlers are used.
void LeaveSignalsToSupervisor() {
  for (const int signal : kHandledSignals) {
    if (signal != SIGCHLD) std::signal(signal, [](int) {});
  }
}

int Fail(const char* what) {
  LogLine(std::string("the supervisor cannot start: ") + what + ": " + std::strerror(errno));
  return ToInt(ExitCode::kInternal);
}

}  // namespace

int RunSupervisor(const SupervisorOptions& options) {
  // A signal during the setup must not be lost or end this process, so signals stay blocked until
  // they are handled.
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : kHandledSignals) sigaddset(&handled, signal);
  sigprocmask(SIG_BLOCK, &handled, &before);
  OpenStandardFds();
  ChangeProcess();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return Fail("become sub-reaper");

  Streams streams;
  if (!TakeStdio(streams)) return Fail("take over stdin and stdout");
  std::string hello = FormatHello(options.nonce, options.build_id);
  if (options.resumable) {
    if (!MakeResumable(streams)) return Fail("open a socket for reconnections of the front end");
    hello += FormatTicket(streams.resume->ticket);
  }
  const int out = options.resumable ? streams.connection_out.get() : streams.front_end_out.get();
  if (!WriteAll(out, hello, Deadline::After(kHelloLimit))) {
    return Fail("write the hello line");
  }
  UniqueFd agent_grpc, agent_control, agent_sockets;
  if (!OpenStream(streams.grpc, agent_grpc) || !OpenStream(streams.control, agent_control) ||
      !OpenStream(streams.sockets, agent_sockets)) {
    return Fail("socketpair");
  }
  Watchdog watchdog;
  if (!watchdog.Open()) return Fail("open the watchdog's pipe");
  const pid_t agent = fork();
  if (agent < 0) return Fail("fork");
  if (agent == 0) {
    setpgid(0, 0);
    LeaveSignalsToSupervisor();
    streams = Streams();
    watchdog.HoldFromAgent();
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const int code =
        options.run_agent(agent_grpc.Release(), agent_control.Release(), agent_sockets.Release());
    std::fflush(nullptr);
    _exit(code);
  }
  setpgid(agent, agent);
  agent_grpc.Reset();
  agent_control.Reset();
  agent_sockets.Reset();
  UniqueFd(options.command_fd).Reset();

  for (const int signal : kHandledSignals) sigdelset(&before, signal);
  return Supervisor(agent, options.in_step, std::move(streams), std::move(watchdog)).Run(before);
}

}  // namespace dslaunch
