#include "agent/supervisor/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include <vector>

#include "agent/supervisor/cgroup.h"
#include "agent/supervisor/guard.h"
#include "agent/supervisor/keeper_pump.h"
#include "agent/supervisor/keeper_workers.h"
#include "agent/supervisor/kill_ladder.h"
#include "agent/supervisor/left_process.h"
#include "base/build_id.h"
#include "base/exit_code.h"
#include "base/process_tree.h"
#include "base/signal_name.h"
#include "base/unique_fd.h"
#include "proto/keeper.pb.h"
#include "proto/wire/framed_socket.h"
#include "proto/wire/lease.h"

namespace dslaunch {
namespace {

constexpr milliseconds kHelloLimit{10'000};  // a front end that does not read its hello is gone
constexpr milliseconds kAgentEndLimit{2'000};
constexpr milliseconds kDrainLimit{
    2'000};                          // for the agent's last bytes, when the front end reads slowly
constexpr milliseconds kStall{500};  // a timer this late means that this machine stood still
constexpr std::array kHandledSignals = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
constexpr size_t kStatusQueueBytes = 1 << 20;  // an agent this far behind misses status lines

void SayLine(const std::string& text) {
  char host[256] = "?";
  gethostname(host, sizeof host - 1);
  std::fprintf(stderr, "dslaunch-agent on %s: %s\n", host, text.c_str());
}

// How the agent ended.
struct AgentEnd {
  int code = 0;
  bool by_signal = false;
};

// What is open between the keeper and the outside, and between the keeper and its agent.
struct Streams {
  UniqueFd front_end_in;
  UniqueFd front_end_out;
  UniqueFd grpc;
  UniqueFd control;
};

UniqueFd Duplicate(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

class Keeper {
 public:
  Keeper(pid_t agent_pid, const InheritedLimits& inherited, Streams streams, Guard guard)
      : agent_pid_(agent_pid),
        guard_(std::move(guard)),
        inbound_(io_, std::move(streams.front_end_in), Duplicate(streams.grpc.get())),
        outbound_(io_, std::move(streams.grpc), std::move(streams.front_end_out)),
        workers_(io_, inherited, [this](const pb::KeeperEvent& event) { OnWorkerEvent(event); }) {
    control_ = std::make_unique<FramedSocket>(
        io_, std::move(streams.control), [this](std::string_view bytes) { OnRequest(bytes); },
        [this](const std::string&) { BeginEnding(Why::kAgentEnded); });
  }

  // `unblocked`: the signal mask to run with; the handled signals are blocked until now.
  int Run(const sigset_t& unblocked) {
    for (const int signal : kHandledSignals) signals_.add(signal);
    AwaitSignal();
    sigprocmask(SIG_SETMASK, &unblocked, nullptr);
    inbound_.Start([this](KeeperPump::Event event) {
      if (event == KeeperPump::Event::kSourceEnded) OnFrontEndGone();
    });
    outbound_.Start([this](KeeperPump::Event event) {
      if (event == KeeperPump::Event::kSinkFailed)
        OnFrontEndGone();
      else
        Advance();
    });
    io_.run();
    guard_.End();
    DropCgroup();
    return Verdict();
  }

 private:
  enum class Why { kFrontEndGone, kAgentEnded, kAgentSilent, kSignal };

  void AwaitSignal() {
    signals_.async_wait([this](std::error_code error, int signal) {
      if (error) return;
      AwaitSignal();
      if (signal == SIGCHLD) return Advance();
      if (signal == SIGHUP && detached_) return;  // the user logs out; the job stays
      signal_ = signal;
      BeginEnding(Why::kSignal);
    });
  }

  void OnFrontEndGone() {
    if (!detached_) return BeginEnding(Why::kFrontEndGone);
    inbound_.CloseSink();  // the agent's connection ends
  }

  // --- the agent's requests ---

  void OnRequest(std::string_view bytes) {
    pb::KeeperRequest request;
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      control_.reset();
      return BeginEnding(Why::kAgentEnded);
    }
    switch (request.request_case()) {
      case pb::KeeperRequest::kSpawn:
        OnSpawn(request.spawn());
        break;
      case pb::KeeperRequest::kSignal:
        workers_.Signal(request.signal().signal());
        break;
      case pb::KeeperRequest::kStop:
        stop_requested_ = true;
        StartLadder(request.stop().kill_now());
        Advance();
        break;
      case pb::KeeperRequest::kConfigure:
        Configure(request.configure());
        break;
      case pb::KeeperRequest::kDetach:
        detached_ = true;
        break;
      case pb::KeeperRequest::kAlive:
        OnAlive(request.alive());
        break;
      case pb::KeeperRequest::REQUEST_NOT_SET:
        break;
    }
    last_heard_ = Clock::now();
  }

  void OnAlive(const pb::AgentAlive& alive) {
    lease_end_.reset();
    if (detached_ || !alive.has_lease_left_ms()) return;
    lease_end_ = Clock::now() + milliseconds(alive.lease_left_ms());
    if (*lease_end_ < watch_timer_.expiry()) WatchAgent();
  }

  void OnSpawn(const pb::SpawnWorkers& spawn) {
    if (ladder_ || ending_ || lease_is_over_) return workers_.Refuse(spawn);
    // Only now, so that a job that starts nothing pays nothing.
    if (cgroup_.empty()) MakeCgroup();
    if (!guard_.started()) {
      guard_.Start({.job_id = job_id_, .session = getsid(0), .cgroup = cgroup_}, ladder_options_);
    }
    workers_.Spawn(spawn);
  }

  void MakeCgroup() {
    pb::KeeperEvent event;
    if (Result<std::string> cgroup = CreateWorkerCgroup(job_id_)) {
      cgroup_ = *std::move(cgroup);
      workers_.StartIn(cgroup_);
      event.mutable_workers_cgroup()->set_folder(cgroup_);
    } else {
      event.mutable_workers_cgroup()->set_none_because(cgroup.error().message);
    }
    Tell(event);
  }

  // Made anew for the next workers: what Linux 6 starts in a cgroup that was killed once dies.
  void DropCgroup() {
    if (cgroup_.empty()) return;
    RemoveCgroup(cgroup_);
    cgroup_.clear();
  }

  void OnWorkerEvent(const pb::KeeperEvent& event) {
    if (event.has_spawned()) guard_.AddGroup(event.spawned().pid());
    Tell(event);
  }

  void Configure(const pb::Configure& configure) {
    job_id_ = configure.job_id();
    ladder_options_.grace = milliseconds(configure.grace_ms());
    ladder_options_.teardown = milliseconds(configure.teardown_ms());
    agent_dead_ = milliseconds(configure.agent_dead_ms());
    last_heard_ = Clock::now();
    WatchAgent();
  }

  void Tell(const pb::KeeperEvent& event) {
    if (!control_) return;
    if (event.has_status() && control_->queued_bytes() > kStatusQueueBytes) return;
    control_->Send(event);
  }

  // And the front end's lease: the agent acts when it is over, unless it stands still.
  void WatchAgent() {
    Clock::time_point look_at = last_heard_ + agent_dead_;
    if (lease_end_ && !lease_is_over_) look_at = std::min(look_at, *lease_end_);
    watch_timer_.expires_at(look_at);
    watch_timer_.async_wait([this](std::error_code error) {
      if (error || ending_) return;
      const Clock::time_point now = Clock::now();
      // When this very process could not run in time, the agent could not either: it gets another
      // turn, and time to say how long the lease is now.
      if (now > watch_timer_.expiry() + kStall) {
        last_heard_ = now;
        if (lease_end_) lease_end_ = std::max(*lease_end_, now + Lease::kCatchUp);
      }
      if (now >= last_heard_ + agent_dead_) return BeginEnding(Why::kAgentSilent);
      if (lease_end_ && now >= *lease_end_) OnLeaseOver();
      WatchAgent();
    });
  }

  // The agent stays, for what others need of it.
  void OnLeaseOver() {
    if (std::exchange(lease_is_over_, true)) return;
    pb::KeeperEvent event;
    event.mutable_front_end_gone();
    Tell(event);
    StartLadder(false);
    Advance();
  }

  // --- ending ---

  void BeginEnding(Why why) {
    if (!ending_) {
      ending_ = why;
      if (why == Why::kFrontEndGone || why == Why::kSignal) {
        inbound_.CloseSink();
        pb::KeeperEvent event;
        event.mutable_front_end_gone();
        Tell(event);
      }
      if (why == Why::kAgentSilent) KillAgent();
      StartLadder(false);
    }
    Advance();
  }

  void StartLadder(bool kill_now) {
    if (!ladder_) {
      ladder_.emplace();
      workers_.LadderBegan();
    }
    ladder_->kill_now = ladder_->kill_now || kill_now;
  }

  // Takes every step that is possible now. Called after whatever may have changed something.
  void Advance() {
    const bool agent_was_there = !agent_end_;
    Reap();
    if (agent_was_there && agent_end_) OnAgentEnd();
    if (ladder_) Climb();
    if (!ending_ || ladder_) return;
    if (!agent_end_ && !agent_unkillable_) {
      return Limit(agent_limit_, kAgentEndLimit, [this] { KillAgent(); });
    }
    if (!outbound_.ended()) return Limit(drain_limit_, kDrainLimit, [this] { io_.stop(); });
    io_.stop();
  }

  void OnAgentEnd() {
    if (!ending_) ending_ = Why::kAgentEnded;
    if (!gave_up_) StartLadder(false);  // what the agent itself had started is ours now
  }

  void Reap() {
    while (true) {
      siginfo_t child = {};
      const int status = waitid(P_ALL, 0, &child, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
      if (status != 0 || child.si_pid == 0) return;
      const bool killed = child.si_code == CLD_KILLED || child.si_code == CLD_DUMPED;
      const bool ended = killed || child.si_code == CLD_EXITED;
      if (child.si_pid == guard_.pid()) {
        if (ended) guard_.Reaped();
      } else if (child.si_pid != agent_pid_ || agent_end_) {
        workers_.OnChild(child);
      } else if (ended) {
        agent_end_ = AgentEnd{child.si_status, killed};
      }
    }
  }

  void Climb() {
    const LadderDecision decision =
        DecideLadder(*ladder_, Clock::now(), CountLeft(), ladder_options_);
    ladder_ = decision.next;
    switch (decision.action) {
      case LadderAction::kNone:
        break;
      case LadderAction::kTerm:
        SignalAll(std::array{SIGTERM, SIGCONT});
        break;
      case LadderAction::kKill:
        workers_.LadderKills();
        if (!cgroup_.empty()) KillCgroup(cgroup_);
        SignalAll(std::array{SIGKILL});
        break;
      case LadderAction::kDone:
        return EndLadder({});
      case LadderAction::kGiveUp:
        return EndLadder(DescribeLeft(All()));
    }
    ladder_timer_.expires_at(*decision.wake);
    ladder_timer_.async_wait([this](std::error_code error) {
      if (!error) Advance();
    });
  }

  // The children that are neither workers nor started by them.
  std::vector<pid_t> Companions() const {
    std::vector<pid_t> pids = {guard_.pid()};
    if (!agent_end_) pids.push_back(agent_pid_);
    return pids;
  }

  size_t CountLeft() const {
    // Whoever loses its parent becomes our child, so no child means no descendant.
    std::vector<pid_t> children = OwnChildren();
    for (const pid_t companion : Companions()) std::erase(children, companion);
    if (!children.empty() || cgroup_.empty()) return children.size();
    return CgroupProcesses(cgroup_).size();
  }

  // All that must end: what descends from us, and what else is in the workers' cgroup.
  std::vector<ProcessInfo> All() const {
    std::vector<ProcessInfo> all = Descendants(getpid(), Companions());
    if (cgroup_.empty()) return all;
    for (const ProcessInfo& info : CgroupProcesses(cgroup_)) {
      if (std::ranges::find(all, info.id, &ProcessInfo::id) == all.end()) all.push_back(info);
    }
    return all;
  }

  // Each process gets each signal once: by its group where that is a worker's (which no fork
  // outruns), else alone.
  void SignalAll(std::span<const int> signals) {
    std::vector<pid_t> groups;
    for (const ProcessInfo& info : All()) {
      if (std::ranges::find(workers_.groups(), info.group) != workers_.groups().end()) {
        if (std::ranges::find(groups, info.group) == groups.end()) groups.push_back(info.group);
        continue;
      }
      for (const int signal : signals) SignalProcess(info.id, signal);
    }
    for (const pid_t group : groups) {
      for (const int signal : signals) kill(-group, signal);
    }
  }

  void EndLadder(const LeftProcesses& left) {
    ladder_.reset();
    ladder_timer_.cancel();
    gave_up_ = !left.empty();
    if (gave_up_) {
      SayLine("these processes did not end after SIGKILL: " + LeftText(left));
    } else {
      DropCgroup();
      workers_.ForgetGroups();
      guard_.ForgetGroups();
    }
    if (!stop_requested_) return;
    stop_requested_ = false;
    pb::KeeperEvent event;
    *event.mutable_all_reaped()->mutable_left() = left;
    Tell(event);
  }

  void KillAgent() {
    if (agent_end_) return;
    killed_agent_ = true;
    kill(agent_pid_, SIGKILL);  // not reaped yet, so the pid is still the agent's
    Limit(kill_limit_, kAgentEndLimit, [this] {
      agent_unkillable_ = !agent_end_;
      Advance();
    });
  }

  // Starts a timer that is not started twice.
  template <class Action>
  void Limit(std::optional<asio::steady_timer>& timer, milliseconds limit, Action action) {
    if (timer) return;
    timer.emplace(io_, limit);
    timer->async_wait([action](std::error_code error) {
      if (!error) action();
    });
  }

  // --- the end ---

  // Says what went wrong, if anything did, and returns the exit code.
  int Verdict() const {
    const std::string how = AgentFailure();
    if (!how.empty()) {
      SayLine("agent (pid " + std::to_string(agent_pid_) + ") " + how +
              "; its workers were stopped");
      return ToInt(ExitCode::kInternal);
    }
    return ending_ == Why::kSignal ? ExitCodeForSignal(signal_) : ToInt(ExitCode::kOk);
  }

  std::string AgentFailure() const {
    if (!agent_end_) return "could not be ended";
    if (ending_ == Why::kAgentSilent) {
      return "was silent for " + std::to_string(agent_dead_.count()) + " ms and was killed";
    }
    if (killed_agent_) {
      return ending_ == Why::kAgentEnded ? "left its keeper, did not end and was killed" : "";
    }
    if (agent_end_->by_signal) return "was killed by " + SignalName(agent_end_->code);
    if (agent_end_->code != 0) return "ended with exit code " + std::to_string(agent_end_->code);
    return "";
  }

  asio::io_context io_{1};
  asio::signal_set signals_{io_};
  asio::steady_timer ladder_timer_{io_};
  asio::steady_timer watch_timer_{io_};
  std::optional<asio::steady_timer> agent_limit_;
  std::optional<asio::steady_timer> kill_limit_;
  std::optional<asio::steady_timer> drain_limit_;

  const pid_t agent_pid_;
  Guard guard_;
  KeeperPump inbound_;   // front end -> agent
  KeeperPump outbound_;  // agent -> front end
  KeeperWorkers workers_;
  std::unique_ptr<FramedSocket> control_;

  std::string job_id_;
  std::string cgroup_;  // the workers' (agent/supervisor/cgroup.h); empty: none
  LadderOptions ladder_options_;
  std::optional<LadderState> ladder_;
  milliseconds agent_dead_{0};
  Clock::time_point last_heard_;
  std::optional<Clock::time_point> lease_end_;  // as the agent told; none: nothing ends then
  std::optional<Why> ending_;                   // the first cause
  std::optional<AgentEnd> agent_end_;
  int signal_ = 0;
  bool detached_ = false;
  bool lease_is_over_ = false;
  bool stop_requested_ = false;
  bool killed_agent_ = false;
  bool agent_unkillable_ = false;
  bool gave_up_ = false;
};

// A closed standard descriptor would be taken by the next socket, and printing would corrupt it.
void OpenStandardFds() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Moves stdin and stdout away and puts /dev/null in their place, so that they can be closed for
// good and nothing prints into them.
bool TakeStdio(Streams& streams) {
  streams.front_end_in = Duplicate(STDIN_FILENO);
  streams.front_end_out = Duplicate(STDOUT_FILENO);
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

bool SocketPair(UniqueFd& ours, UniqueFd& agents) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) return false;
  ours.Reset(fds[0]);
  agents.Reset(fds[1]);
  return true;
}

InheritedLimits ChangeProcess() {
  InheritedLimits inherited;
  inherited.umask = umask(077);
  getrlimit(RLIMIT_CORE, &inherited.core);
  const rlimit no_core = {0, inherited.core.rlim_max};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(SIGPIPE, SIG_IGN);
  setsid();  // fails when we lead a session or a group already
  return inherited;
}

int Fail(const char* what) {
  SayLine(std::string("the keeper cannot start: ") + what + ": " + std::strerror(errno));
  return ToInt(ExitCode::kInternal);
}

}  // namespace

int RunKeeper(const KeeperOptions& options) {
  // Blocked until they are handled, so that none is lost or ends us half-way.
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : kHandledSignals) sigaddset(&handled, signal);
  sigprocmask(SIG_BLOCK, &handled, &before);
  OpenStandardFds();
  const InheritedLimits inherited = ChangeProcess();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return Fail("become sub-reaper");

  Streams streams;
  if (!TakeStdio(streams)) return Fail("take over stdin and stdout");
  const std::string hello = FormatHello(options.nonce, options.build_id);
  if (!WriteAll(streams.front_end_out.get(), hello, Deadline::After(kHelloLimit))) {
    return Fail("write the hello line");
  }
  UniqueFd agent_grpc, agent_control;
  if (!SocketPair(streams.grpc, agent_grpc) || !SocketPair(streams.control, agent_control)) {
    return Fail("socketpair");
  }
  Guard guard;
  if (!guard.Open()) return Fail("open the guard's pipe");
  const pid_t agent = fork();
  if (agent < 0) return Fail("fork");
  if (agent == 0) {
    setpgid(0, 0);
    streams = Streams();
    guard.HoldFromAgent();
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const int code = options.run_agent(agent_grpc.Release(), agent_control.Release());
    std::fflush(nullptr);
    _exit(code);
  }
  setpgid(agent, agent);
  agent_grpc.Reset();
  agent_control.Reset();
  UniqueFd(options.command_fd).Reset();

  for (const int signal : kHandledSignals) sigdelset(&before, signal);
  return Keeper(agent, inherited, std::move(streams), std::move(guard)).Run(before);
}

}  // namespace dslaunch
